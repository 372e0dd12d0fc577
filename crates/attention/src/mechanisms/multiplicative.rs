//! Multiplicative (bilinear) attention with a trained matrix:
//!
//! ```text
//! score_ij = q_i · W · k_j
//! context  = softmax(score) · value        over the visible keys
//! ```
//!
//! Luong et al., [Effective Approaches to Attention-based Neural Machine
//! Translation](https://arxiv.org/abs/1508.04025), 2015: their `general` score. With the identity
//! matrix it is their `dot` score.

use burn::tensor::{Device, Tensor};
use zoo_spec::Multiplicative;

use super::{
    Attention, Call, HeadSizes, Inputs, MechanismParams, Params, matrix_param, pair_flops,
    projection_flops,
};
use crate::analysis::weights::WeightFunction;
use crate::matmul::matmul;
use crate::precision::{check_parameter, narrow, widen};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, flash};

impl Attention for Multiplicative {
    fn default_scale(&self, _: usize) -> f64 {
        1.0
    }

    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        MechanismParams {
            matrix: Some(matrix_param(sizes, device)),
            ..MechanismParams::default()
        }
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        let matrix = call.params.matrix(&query);
        multiplicative(query, key, value, matrix, call.options).into()
    }

    fn weight_fn(&self, inputs: &Inputs, params: &Params) -> WeightFunction {
        WeightFunction::Multiplicative(params.matrix(&inputs.query))
    }

    fn attends_to_all_keys(&self) -> bool {
        true
    }

    fn flops(&self, shape: &AttentionShape, options: &AttentionOptions) -> f64 {
        pair_flops(shape, options) + projection_flops(shape)
    }
}

/// Attention with scores `q · W · k`, tile by tile. The default scale is 1.
///
/// Shapes and panics are those of [`flash`](crate::flash()); `matrix` is `[heads, d_head, d_head]`,
/// the `W` of each head.
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
    let query = project_query(op, query, matrix, &shape);
    let [key, value] = [key, value].map(widen);
    let options = AttentionOptions {
        scale: Some(options.scale.unwrap_or(1.0)),
        ..options.clone()
    };
    narrow(flash(query, key, value, &options), stored)
}

/// `q·W` in `f32`.
pub(crate) fn project_query(
    op: &str,
    query: Tensor<4>,
    matrix: Tensor<3>,
    shape: &AttentionShape,
) -> Tensor<4> {
    check_parameter(op, "matrix", &matrix, shape, query.dtype());
    let (heads, d_head) = (shape.heads, shape.d_head);
    let matrix = widen(matrix.reshape([1, heads, d_head, d_head]));
    matmul(widen(query), matrix)
}
