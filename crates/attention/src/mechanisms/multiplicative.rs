//! Products of queries and keys through a matrix that is learned:
//!
//! ```text
//! score_ij = q_i · W · k_j
//! context  = softmax(score) · value        over the keys a query may see
//! ```
//!
//! Luong et al., [Effective Approaches to Attention-based Neural Machine
//! Translation](https://arxiv.org/abs/1508.04025), 2015: their `general` score. With the
//! identity for a matrix it is their `dot`.

use burn::tensor::{Device, Tensor};
use zoo_spec::Multiplicative;

use super::{
    Attention, HeadSizes, Inputs, MechanismParams, Output, Params, flops_of_matrix, flops_of_pairs,
    init_matrix,
};
use crate::analysis::weighing::Weighing;
use crate::precision::{check_parameter, narrow, widen};
use crate::{AttentionOptions, AttentionShape, flash};

impl Attention for Multiplicative {
    fn default_scale(&self, _: usize) -> f64 {
        1.0
    }

    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        MechanismParams {
            matrix: Some(init_matrix(sizes, device)),
            ..MechanismParams::none()
        }
    }

    fn forward(&self, inputs: Inputs, params: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        let matrix = params.matrix(&query);
        multiplicative(query, key, value, matrix, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn weighing(&self, params: &Params, query: &Tensor<4>, _: &AttentionShape) -> Weighing {
        Weighing::Multiplicative(params.matrix(query))
    }

    fn sees_all_keys(&self) -> bool {
        true
    }

    fn flops(&self, shape: &AttentionShape, options: &AttentionOptions) -> f64 {
        flops_of_pairs(shape, options) + flops_of_matrix(shape)
    }
}

/// Attends by `q · W · k`, tile by tile. Scores are multiplied by nothing unless a scale
/// is given.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - matrix: `[heads, d_head, d_head]`, the `W` of each head
/// - result: `[batch, heads, seq_q, d_value]`
///
/// # Panics
///
/// If the tensors or the options do not fit together, or the tensors are not of one
/// number type of up to 32 bits.
pub fn multiplicative(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    matrix: Tensor<3>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "multiplicative attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    let stored = query.dtype();
    let query = through(op, query, matrix, &shape);
    let [key, value] = [key, value].map(widen);
    let options = AttentionOptions {
        scale: Some(options.scale.unwrap_or(1.0)),
        ..options.clone()
    };
    narrow(flash(query, key, value, &options), stored)
}

/// `q·W` in `f32`: what products with keys are taken of.
pub(crate) fn through(
    op: &str,
    query: Tensor<4>,
    matrix: Tensor<3>,
    shape: &AttentionShape,
) -> Tensor<4> {
    let (heads, d_head) = (shape.heads, shape.d_head);
    assert!(
        matrix.dims() == [heads, d_head, d_head],
        "{op}: the matrix must be [heads = {heads}, d_head = {d_head}, d_head = {d_head}], got {:?}",
        matrix.dims()
    );
    check_parameter(op, "matrix", query.dtype(), matrix.dtype());
    let matrix = widen(matrix.reshape([1, heads, d_head, d_head]));
    widen(query).matmul(matrix)
}
