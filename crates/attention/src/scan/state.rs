//! Linear attention as a recurrence: what was seen is one matrix, however much it was.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};

use super::features::FeatureMap;
use super::{mean, read_out, with_ones};
use crate::AttentionShape;
use crate::decode::cache::examples_of;
use crate::precision::{check, narrow, widen};
use crate::shape::check_device;

/// What linear attention keeps of all keys and values before: for each key and value
/// head a matrix of features by values. It does not grow.
///
/// ```text
/// S_i = γ S_(i-1) + φ(k_i) [v_i, 1]ᵀ        context_i = φ(q_i) · S_i, divided by its last
/// ```
#[derive(Debug, Clone)]
pub struct LinearState {
    features: Option<FeatureMap>,
    /// One for each key and value head, where things are forgotten.
    decays: Option<Vec<f64>>,
    /// `[batch, kv_heads, features, d_value + 1]`, or `d_value` where nothing is divided.
    sums: Option<Tensor<4>>,
    /// `[batch, kv_heads, 1, 1]`: the logarithm of what `sums` were divided by.
    shift: Option<Tensor<4>>,
}

impl LinearState {
    /// Nothing seen yet, for [`linear`](crate::linear()) attention.
    pub fn of_features(features: FeatureMap) -> Self {
        Self {
            features: Some(features),
            decays: None,
            sums: None,
            shift: None,
        }
    }

    /// Nothing seen yet, for [`retention`](crate::retention()).
    ///
    /// # Panics
    ///
    /// If a decay is outside of 0 to 1.
    pub fn of_retention(decays: Vec<f64>) -> Self {
        if let Some(decay) = decays.iter().find(|decay| !(0.0..=1.0).contains(*decay)) {
            panic!("{OP}: a decay must be from 0 to 1, got {decay}");
        }
        Self {
            features: None,
            decays: Some(decays),
            sums: None,
            shift: None,
        }
    }

    /// The state of these examples of the batch, in this order: some of them, some several
    /// times.
    ///
    /// # Panics
    ///
    /// If there is no such example.
    #[must_use]
    pub fn select(&self, examples: &[usize]) -> Self {
        let of = |tensor: &Option<Tensor<4>>| {
            let tensor = tensor.clone();
            tensor.map(|tensor| examples_of(tensor, examples))
        };
        Self {
            features: self.features.clone(),
            decays: self.decays.clone(),
            sums: of(&self.sums),
            shift: of(&self.shift),
        }
    }

    /// Numbers that are kept, however many keys there were.
    pub fn numbers(&self) -> usize {
        let of =
            |tensor: &Option<Tensor<4>>| tensor.as_ref().map_or(0, |it| it.shape().num_elements());
        of(&self.sums) + of(&self.shift)
    }

    /// Takes one key and value in, and attends to all there were.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, heads, 1, d_head]`
    /// - key: `[batch, kv_heads, 1, d_head]`
    /// - value: `[batch, kv_heads, 1, d_value]`
    /// - result: `[batch, heads, 1, d_value]`
    ///
    /// # Panics
    ///
    /// If the tensors do not fit together, or are more than one place long.
    pub fn step(
        &mut self,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
        scale: Option<f64>,
    ) -> Tensor<4> {
        let shape = AttentionShape::of(OP, &query, &key, &value);
        check(OP, [query.dtype(), key.dtype(), value.dtype()]);
        assert!(
            [shape.seq_q, shape.seq_k] == [1, 1],
            "{OP}: one place at a time, got {} queries and {} keys",
            shape.seq_q,
            shape.seq_k
        );
        self.extend(key, value, scale);
        self.attend(query, scale)
    }

    /// Takes keys and values in.
    ///
    /// # Shapes
    ///
    /// - key: `[batch, kv_heads, new, d_head]`
    /// - value: `[batch, kv_heads, new, d_value]`
    ///
    /// # Panics
    ///
    /// If the tensors do not fit together, or their sizes or device changed since the first. The
    /// state is then what it was before.
    pub fn extend(&mut self, key: Tensor<4>, value: Tensor<4>, scale: Option<f64>) {
        // As if each key asked: a query has its sizes.
        let shape = AttentionShape::of(OP, &key, &key, &value);
        check(OP, [key.dtype(), key.dtype(), value.dtype()]);
        let features = self.features.as_ref();
        let features = features.map(|features| features.ready(OP, &key));
        if let Some(decays) = &self.decays {
            assert!(
                decays.len() == shape.kv_heads,
                "{OP}: a decay must be given for each of the {} key and value heads, got {}",
                shape.kv_heads,
                decays.len()
            );
        }
        let [key, value] = [key, value].map(widen);
        let (key, value, key_shift) = match features {
            Some(features) => {
                let (key, shift) = features.of_new_keys(key, features.scale(scale, &shape), None);
                (key, with_ones(value), shift)
            }
            None => (self.faded(key), value, None),
        };
        let mut added = key.swap_dims(2, 3).matmul(value); // [batch, kv_heads, features, width]
        if let Some(before) = &self.sums {
            assert!(
                before.dims() == added.dims(),
                "{OP}: its sizes must be those of the first, a state of {:?}, got {:?}",
                before.dims(),
                added.dims()
            );
            check_device(OP, "a state", &added.device(), &before.device());
        }
        // Nothing may fail from here on: what is taken out would be lost.
        let mut sums = self.sums.take();
        if let Some(key_shift) = key_shift {
            // What was added up, and what is added, as shares of the same.
            if let (Some(before), Some(shift)) = (sums.take(), self.shift.take()) {
                let most = shift.clone().max_pair(key_shift.clone());
                sums = Some(before * (shift - most.clone()).exp());
                added = added * (key_shift - most.clone()).exp();
                self.shift = Some(most);
            } else {
                self.shift = Some(key_shift);
            }
        }
        self.sums = Some(match (sums, &self.decays) {
            (None, _) => added,
            (Some(before), None) => before + added,
            (Some(before), Some(_)) => {
                let faded = self.fading(shape.seq_k..shape.seq_k + 1, &before);
                before * faded + added
            }
        });
    }

    /// Attends to all keys there were.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, heads, seq_q, d_head]`
    /// - result: `[batch, heads, seq_q, d_value]`
    ///
    /// # Panics
    ///
    /// If there were none, or the query does not fit to them.
    pub fn attend(&self, query: Tensor<4>, scale: Option<f64>) -> Tensor<4> {
        let stored = query.dtype();
        check(OP, [stored; 3]);
        let query = widen(query);
        let Some(sums) = self.sums.clone() else {
            panic!("{OP}: there must be a key before there is a query");
        };
        let [batch, heads, _, d_head] = query.dims();
        let [own_batch, kv_heads, own_features, width] = sums.dims();
        assert!(
            batch == own_batch && heads.is_multiple_of(kv_heads),
            "{OP}: a query of batch = {own_batch} and a multiple of {kv_heads} heads, got {batch} \
             and {heads}"
        );
        let usual = 1.0 / (d_head as f64).sqrt();
        let query = match &self.features {
            Some(features) => {
                let features = features.ready(OP, &query);
                let scale = features.scale_or(scale, usual);
                features.of_queries(query, scale)
            }
            None => query.mul_scalar(scale.unwrap_or(usual)),
        };
        let [.., features] = query.dims();
        assert!(
            features == own_features,
            "{OP}: a query must have {own_features} features like the keys, got {features}"
        );
        let result = read_out(query, sums);
        let context = match self.features {
            Some(_) => mean(result, width - 1),
            None => result,
        };
        narrow(context, stored)
    }

    /// Keys as far as they count once the last of them is there.
    fn faded(&self, key: Tensor<4>) -> Tensor<4> {
        let [_, _, new, _] = key.dims();
        if new == 1 {
            return key;
        }
        let faded = self.fading(0..new, &key).flip([2]);
        key * faded
    }

    /// What is left after so many steps: `[1, kv_heads, steps, 1]`.
    fn fading(&self, steps: Range<usize>, like: &Tensor<4>) -> Tensor<4> {
        let decays = self.decays.as_deref().unwrap_or_default();
        let shape = [1, decays.len(), steps.len(), 1];
        let powers: Vec<f32> = decays
            .iter()
            .flat_map(|decay| steps.clone().map(|step| decay.powf(step as f64) as f32))
            .collect();
        Tensor::from_data(
            TensorData::new(powers, shape),
            (&like.device(), like.dtype()),
        )
    }
}

const OP: &str = "a step of linear attention";
