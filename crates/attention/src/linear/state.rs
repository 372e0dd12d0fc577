//! Linear attention as a recurrence: what was seen is one matrix, however much it was.

use burn::tensor::Tensor;

use super::features::FeatureMap;
use super::mean;
use crate::AttentionShape;
use crate::precision::{check, narrow, widen};

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
    /// Nothing seen yet, for [`linear`](super::linear) attention.
    pub fn of_features(features: FeatureMap) -> Self {
        Self {
            features: Some(features),
            decays: None,
            sums: None,
            shift: None,
        }
    }

    /// Nothing seen yet, for [`retention`](super::retention).
    pub fn of_retention(decays: Vec<f64>) -> Self {
        Self {
            features: None,
            decays: Some(decays),
            sums: None,
            shift: None,
        }
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
        let op = "a step of linear attention";
        let shape = AttentionShape::of(op, &query, &key, &value);
        check(op, [query.dtype(), key.dtype(), value.dtype()]);
        assert!(
            [shape.seq_q, shape.seq_k] == [1, 1],
            "{op}: one place at a time, got {} queries and {} keys",
            shape.seq_q,
            shape.seq_k
        );
        let features = self
            .features
            .as_ref()
            .map(|features| features.ready(op, &query));
        if let Some(decays) = &self.decays {
            assert!(
                decays.len() == shape.kv_heads,
                "{op}: a decay must be given for each of the {} key and value heads, got {}",
                shape.kv_heads,
                decays.len()
            );
        }
        let stored = query.dtype();
        let [query, key, value] = [query, key, value].map(widen);
        let AttentionShape {
            batch,
            heads,
            kv_heads,
            d_value,
            ..
        } = shape;
        let (query, key, value, key_shift) = match &features {
            Some(features) => {
                let scale = features.scale(scale, &shape);
                let query = features.of_queries(query, scale);
                let (key, shift) = features.of_one_key(key, scale);
                let ones = value.clone().slice_dim(3, 0..1).ones_like();
                (query, key, Tensor::cat(vec![value, ones], 3), shift)
            }
            None => {
                let scale = scale.unwrap_or(shape.default_scale());
                (query.mul_scalar(scale), key, value, None)
            }
        };
        let mut added = key.swap_dims(2, 3).matmul(value); // [batch, kv_heads, features, width]
        let mut sums = self.sums.take();
        if let Some(before) = &sums {
            assert!(
                before.dims() == added.dims(),
                "{op}: its sizes must be those of the first, a state of {:?}, got {:?}",
                before.dims(),
                added.dims()
            );
        }
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
        let sums = match (sums, &self.decays) {
            (None, _) => added,
            (Some(before), None) => before + added,
            (Some(before), Some(decays)) => {
                let decays: Vec<f32> = decays.iter().map(|&decay| decay as f32).collect();
                let data = burn::tensor::TensorData::new(decays, [1, kv_heads, 1, 1]);
                let options = (&before.device(), before.dtype());
                before.clone() * Tensor::from_data(data, options) + added
            }
        };
        self.sums = Some(sums.clone());
        let [.., count] = query.dims();
        let [.., width] = sums.dims();
        let result = query
            .reshape([batch, kv_heads, shape.group(), count])
            .matmul(sums)
            .reshape([batch, heads, 1, width]);
        let context = match features {
            Some(_) => mean(result, d_value),
            None => result,
        };
        narrow(context, stored)
    }
}
