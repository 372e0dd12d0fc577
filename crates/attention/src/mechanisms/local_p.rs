//! Attention around a predicted position.
//!
//! Luong et al., [Effective Approaches to Attention-based Neural Machine
//! Translation](https://arxiv.org/abs/1508.04025), 2015: predictive alignment.
//!
//! ```text
//! p_t     = S · sigmoid(v_p · tanh(q_t W_p))    S the number of keys
//! weight  = softmax(score) · exp(-(j - p_t)² / 2σ²)
//! context = weight · value                      over the keys with |j - p_t| <= window; σ = window / 2
//! ```

use burn::tensor::{Bool, Device, FloatDType, Int, Tensor, TensorData};
use zoo_spec::LocalP;

use super::{
    Attention, HeadSizes, Inputs, MechanismParams, Output, Params, flops_of_matrix, flops_of_pairs,
    init_matrix, init_vector,
};
use crate::analysis::weighing::Weighing;
use crate::mechanisms::standard::{
    Attended, all_places, attend_by_weights, changed, scores_of, softmax,
};
use crate::precision::{check_parameter, widen};
use crate::{AttentionOptions, AttentionShape, Pattern};

impl Attention for LocalP {
    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        MechanismParams {
            vector: Some(init_vector(sizes, device)),
            matrix: Some(init_matrix(sizes, device)),
            ..MechanismParams::none()
        }
    }

    fn forward(&self, inputs: Inputs, params: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        let learned = (params.vector(&query), params.matrix(&query));
        local_predictive(query, key, value, learned, self.window, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn weighing(&self, params: &Params, query: &Tensor<4>, _: &AttentionShape) -> Weighing {
        let learned = (params.vector(query), params.matrix(query));
        Weighing::Predicted(Box::new(learned), self.window)
    }

    fn flops(&self, shape: &AttentionShape, options: &AttentionOptions) -> f64 {
        flops_of_pairs(shape, options) + flops_of_matrix(shape)
    }
}

/// Attends to the `window` keys on either side of a predicted place; returns its weights,
/// which sum up to less than 1.
///
/// The number of keys is that of the example where the pattern has key lengths or key
/// padding: padding changes nothing. Gradients reach vector and matrix through the
/// distances from the place; which keys are in the window has none. Half-precision tensors
/// are computed in `f32` and rounded once, at the end.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - vector: `[heads, d_head]`, the `v_p` of each head
/// - matrix: `[heads, d_head, d_head]`, the `W_p` of each head, with which queries are
///   multiplied from the left
/// - context: `[batch, heads, seq_q, d_value]`
/// - weights: `[batch, heads, seq_q, seq_k]`
///
/// # Panics
///
/// If the tensors or the options do not fit together, the window is zero, or the tensors
/// are not of one number type of up to 32 bits.
pub fn local_predictive(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    (vector, matrix): (Tensor<2>, Tensor<3>),
    window: usize,
    options: &AttentionOptions,
) -> Attended {
    let op = "local-p attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    let (heads, d_head) = (shape.heads, shape.d_head);
    options.pattern.check(op, &shape);
    assert!(window > 0, "{op}: a window must be at least 1, got 0");
    assert!(
        vector.dims() == [heads, d_head],
        "{op}: the vector must be [heads = {heads}, d_head = {d_head}], got {:?}",
        vector.dims()
    );
    assert!(
        matrix.dims() == [heads, d_head, d_head],
        "{op}: the matrix must be [heads = {heads}, d_head = {d_head}, d_head = {d_head}], got {:?}",
        matrix.dims()
    );
    check_parameter(op, "vector", query.dtype(), vector.dtype());
    check_parameter(op, "matrix", query.dtype(), matrix.dtype());

    let stored = query.dtype();
    let vector = vector.reshape([1, heads, 1, d_head]);
    let matrix = matrix.reshape([1, heads, d_head, d_head]);
    let [query, key, value, vector, matrix] = [query, key, value, vector, matrix].map(widen);
    let (device, dtype) = (query.device(), query.dtype());

    let inner = query.clone().matmul(matrix).tanh() * vector; // [batch, heads, seq_q, d_head]
    // sigmoid(x) = (1 + tanh(x / 2)) / 2: nothing that could be too large.
    let share = inner.sum_dim(3).mul_scalar(0.5).tanh().add_scalar(1.0); // [batch, heads, seq_q, 1]
    let place = match number_of_keys(&options.pattern, op, &shape, &share) {
        Some(keys) => share * keys.mul_scalar(0.5),
        None => share.mul_scalar(0.5 * shape.seq_k as f64),
    };
    let keys = Tensor::<1, Int>::arange(0..shape.seq_k as i64, &device)
        .cast(FloatDType::from(dtype))
        .reshape([1, 1, 1, shape.seq_k]);
    let away = keys - place; // [batch, heads, seq_q, seq_k]
    let outside: Tensor<4, Bool> = away.clone().detach().abs().greater_elem(window as f64);
    // 2σ² = window² / 2
    let near = away
        .square()
        .mul_scalar(-2.0 / (window as f64).powi(2))
        .exp();

    let scale = options.scale.unwrap_or(shape.default_scale());
    let scores = changed(
        scores_of(query, key, scale, &shape, true),
        options,
        all_places(&shape),
    );
    let hidden = options.pattern.hidden(op, &shape, &device);
    let weights = softmax(scores, hidden.into_iter().chain([outside])) * near; // [batch, heads, seq_q, seq_k]
    // What is outside of the window is hidden.
    attend_by_weights(weights, value, options, &shape, stored, true)
}

/// How many keys each example has up to its last one, `[batch, 1, 1, 1]` on the device of
/// `like`, where the pattern says it of keys alone.
fn number_of_keys(
    pattern: &Pattern,
    op: &str,
    shape: &AttentionShape,
    like: &Tensor<4>,
) -> Option<Tensor<4>> {
    let &AttentionShape { batch, seq_k, .. } = shape;
    let (device, dtype) = (&like.device(), like.dtype());
    match pattern {
        Pattern::KeyLengths(lengths) => {
            let lengths: Vec<f32> = lengths.iter().map(|&length| length as f32).collect();
            let lengths = TensorData::new(lengths, [batch, 1, 1, 1]);
            Some(Tensor::from_data(lengths, (device, dtype)))
        }
        Pattern::KeyPadding(_) => {
            let padding = pattern.hidden(op, shape, device)?; // [batch, 1, 1, seq_k]
            let numbers = Tensor::<1, Int>::arange(1..seq_k as i64 + 1, device)
                .cast(FloatDType::from(dtype))
                .reshape([1, 1, 1, seq_k])
                .expand([batch, 1, 1, seq_k]);
            Some(numbers.mask_fill(padding, 0.0).max_dim(3))
        }
        Pattern::And(a, b) => {
            let [a, b] = [a, b].map(|part| number_of_keys(part, op, shape, like));
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min_pair(b)),
                (a, b) => a.or(b),
            }
        }
        _ => None,
    }
}
