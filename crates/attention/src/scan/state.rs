//! Linear attention as a recurrence with a state of constant size.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};

use super::features::FeatureMap;
use super::{append_ones, grouped_matmul, weighted_mean};
use crate::AttentionShape;
use crate::decode::cache::select_batch;
use crate::matmul::matmul;
use crate::precision::{check, narrow, widen};
use crate::shape::check_device;

/// The recurrent state of linear attention: for each key/value head, a matrix of features by
/// values. Its size does not depend on the sequence length.
///
/// ```text
/// S_i = γ S_(i-1) + φ(k_i) [v_i, 1]ᵀ        context_i = φ(q_i) · S_i, divided by its last
/// ```
#[derive(Debug, Clone)]
pub struct LinearState {
    kind: Kind,
    /// `[batch, kv_heads, features, d_value + 1]`, or `d_value` for retention.
    sums: Option<Tensor<4>>,
    /// `[batch, kv_heads, 1, 1]`: the logarithm of the factor by which `sums` were divided.
    shift: Option<Tensor<4>>,
    /// Number of positions.
    len: usize,
}

#[derive(Debug, Clone)]
enum Kind {
    Features(FeatureMap),
    /// Retention: the decay of each key/value head.
    Decays(Vec<f64>),
}

impl LinearState {
    /// An empty state for [`linear`](crate::mechanisms::linear::linear()) attention.
    pub fn from_features(features: FeatureMap) -> Self {
        Self::empty(Kind::Features(features))
    }

    /// An empty state for [`retention`](crate::mechanisms::retention::retention()).
    ///
    /// # Panics
    ///
    /// If a decay is not between 0 and 1.
    pub fn from_decays(decays: Vec<f64>) -> Self {
        if let Some(decay) = decays.iter().find(|decay| !(0.0..=1.0).contains(*decay)) {
            panic!("{OP}: a decay must be from 0 to 1, got {decay}");
        }
        Self::empty(Kind::Decays(decays))
    }

    fn empty(kind: Kind) -> Self {
        Self {
            kind,
            sums: None,
            shift: None,
            len: 0,
        }
    }

    /// The state of the given batch indices, in this order; an index may be repeated.
    /// Panics if an index is out of range.
    #[must_use]
    pub fn select(&self, examples: &[usize]) -> Self {
        let select = |tensor: &Option<Tensor<4>>| {
            let tensor = tensor.clone();
            tensor.map(|tensor| select_batch(tensor, examples))
        };
        Self {
            kind: self.kind.clone(),
            sums: select(&self.sums),
            shift: select(&self.shift),
            len: self.len,
        }
    }

    /// Number of elements of the state.
    pub fn num_elements(&self) -> usize {
        [&self.sums, &self.shift]
            .into_iter()
            .flatten()
            .map(|tensor| tensor.shape().num_elements())
            .sum()
    }

    /// Adds keys and values to the state.
    ///
    /// # Shapes
    ///
    /// - key: `[batch, kv_heads, new, d_head]`
    /// - value: `[batch, kv_heads, new, d_value]`
    ///
    /// # Panics
    ///
    /// If the shapes do not match, or if they or the device differ from those of the first call.
    /// The state is then unchanged.
    pub fn extend(&mut self, key: Tensor<4>, value: Tensor<4>, scale: Option<f64>) {
        // Queries have the shape of the keys.
        let shape = AttentionShape::from_tensors(OP, &key, &key, &value);
        check(OP, [key.dtype(), key.dtype(), value.dtype()]);
        let [key, value] = [key, value].map(widen);
        let (key, value, key_shift) = match &self.kind {
            Kind::Features(features) => {
                let features = features.prepare(OP, &key, self.len + shape.seq_k);
                let scale = features.scale(scale, shape.default_scale());
                let (key, shift) = features.map_new_keys(key, scale, None, self.len);
                (key, append_ones(value), shift)
            }
            Kind::Decays(decays) => {
                assert!(
                    decays.len() == shape.kv_heads,
                    "{OP}: expected one decay for each of the {} key and value heads, got {}",
                    shape.kv_heads,
                    decays.len()
                );
                (decay_keys(key, decays), value, None)
            }
        };
        let mut added = matmul(key.swap_dims(2, 3), value); // [batch, kv_heads, features, width]
        if let Some(before) = &self.sums {
            assert!(
                before.dims() == added.dims(),
                "{OP}: keys and values must fit the state {:?}, got {:?}",
                before.dims(),
                added.dims()
            );
            check_device(OP, "a state", &added.device(), &before.device());
        }
        // Must not panic from here on: the sums taken out of the state would be lost.
        self.len += shape.seq_k;
        let mut sums = self.sums.take();
        if let Some(key_shift) = key_shift {
            // Rescale the old and the new sums to the same factor.
            if let (Some(before), Some(shift)) = (sums.take(), self.shift.take()) {
                let max = shift.clone().max_pair(key_shift.clone());
                sums = Some(before * (shift - max.clone()).exp());
                added = added * (key_shift - max.clone()).exp();
                self.shift = Some(max);
            } else {
                self.shift = Some(key_shift);
            }
        }
        self.sums = Some(match (sums, &self.kind) {
            (None, _) => added,
            (Some(before), Kind::Features(_)) => before + added,
            (Some(before), Kind::Decays(decays)) => {
                let decay = decay_powers(decays, shape.seq_k..shape.seq_k + 1, &before);
                before * decay + added
            }
        });
    }

    /// Attends to all keys so far. The last query is at the position of the last key; for
    /// `FeatureMap::Cosine`, there must be at most as many queries as keys.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, heads, seq_q, d_head]`
    /// - result: `[batch, heads, seq_q, d_value]`
    ///
    /// # Panics
    ///
    /// If the state is empty, or the query does not match it.
    pub fn attend(&self, query: Tensor<4>, scale: Option<f64>) -> Tensor<4> {
        let stored = query.dtype();
        check(OP, [stored; 3]);
        let query = widen(query);
        let Some(sums) = self.sums.clone() else {
            panic!("{OP}: the state is empty; help: call `extend` first");
        };
        let [batch, heads, seq_q, d_head] = query.dims();
        let [own_batch, kv_heads, own_features, width] = sums.dims();
        assert!(
            batch == own_batch && heads.is_multiple_of(kv_heads),
            "{OP}: query must have batch = {own_batch} and a multiple of {kv_heads} heads, got \
             {batch} and {heads}"
        );
        let default_scale = 1.0 / (d_head as f64).sqrt();
        let query = match &self.kind {
            Kind::Features(features) => {
                let is_aligned = seq_q <= self.len || !matches!(features, FeatureMap::Cosine(_));
                assert!(
                    is_aligned,
                    "{OP}: cosine features need at most as many queries as keys, got {seq_q} and {}",
                    self.len
                );
                let features = features.prepare(OP, &query, self.len);
                let scale = features.scale(scale, default_scale);
                features.map_queries(query, scale, self.len.saturating_sub(seq_q)..)
            }
            Kind::Decays(_) => query.mul_scalar(scale.unwrap_or(default_scale)),
        };
        let [.., features] = query.dims();
        assert!(
            features == own_features,
            "{OP}: query must have {own_features} features like the keys, got {features}"
        );
        let sums = grouped_matmul(query, sums);
        let context = match self.kind {
            Kind::Features(_) => weighted_mean(sums, width - 1),
            Kind::Decays(_) => sums,
        };
        narrow(context, stored)
    }
}

/// Keys multiplied by their decay up to the last of them.
fn decay_keys(key: Tensor<4>, decays: &[f64]) -> Tensor<4> {
    let [_, _, new, _] = key.dims();
    if new == 1 {
        return key;
    }
    let decay = decay_powers(decays, 0..new, &key).flip([2]);
    key * decay
}

/// The decays to the power of each step: `[1, kv_heads, steps, 1]`.
fn decay_powers(decays: &[f64], steps: Range<usize>, like: &Tensor<4>) -> Tensor<4> {
    let powers = |decay: &f64| {
        let decay = *decay;
        steps
            .clone()
            .map(move |step| decay.powf(step as f64) as f32)
    };
    let values: Vec<f32> = decays.iter().flat_map(powers).collect();
    let values = TensorData::new(values, [1, decays.len(), steps.len(), 1]);
    Tensor::from_data(values, (&like.device(), like.dtype()))
}

const OP: &str = "linear attention state";
