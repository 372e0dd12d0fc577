//! Linformer: softmax attention to keys and values that learned matrices project along the sequence,
//! from any length to a constant number. Time and memory are linear in the sequence length.
//!
//! ```text
//! context_i = Σ_r softmax_r(scale · q_i · (E K)_r) (F V)_r
//! ```
//!
//! `E` and `F` have a column for each position and are shared by the heads of a layer. A shorter
//! sequence uses the first columns. Masked keys and values are zero.
//!
//! Wang et al., [Linformer](https://arxiv.org/abs/2006.04768), 2020.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use zoo_spec::{Linformer, MechanismConfig};

use super::{Attention, Call, HeadSizes, Inputs, MechanismParams, Params, init_projection};
use crate::analysis::weights::WeightFunction;
use crate::matmul::matmul;
use crate::mechanisms::standard::{dot_products, softmax};
use crate::precision::{narrow, widen};
use crate::scan::{KeyMask, reject_options_of_pairs};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern, flash};

impl Attention for Linformer {
    fn init_params(&self, _: HeadSizes, device: &Device) -> MechanismParams {
        let projection = init_projection(self.rank, self.length);
        let projection = TensorData::new(projection, [2, self.rank, self.length]);
        MechanismParams {
            projection: Some(Param::from_tensor(Tensor::from_data(projection, device))),
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
        let projection = call.params.projection(&query, [self.rank, self.length]);
        linformer(query, key, value, projection, call.options).into()
    }

    fn weight_fn(&self, inputs: &Inputs, params: &Params) -> WeightFunction {
        let sizes = [self.rank, self.length];
        WeightFunction::Projected(params.projection(&inputs.query, sizes))
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        let rows = shape.kv_heads * shape.seq_k + shape.heads * shape.seq_q;
        let width = shape.d_head + shape.d_value;
        2.0 * (rows * self.rank * width) as f64
    }
}

const OP: &str = "Linformer attention";

/// Linformer attention with the projections of keys and of values, `[2, rank, length]`.
///
/// Half-precision tensors are computed in `f32`. Other shapes are those of
/// [`flash`](crate::flash()).
///
/// # Panics
///
/// If the shapes do not match, or the tensors do not have the same dtype of at most 32 bits; if there
/// are more keys than columns; if the pattern is not built from full, key lengths and key padding; if
/// the options change scores or weights.
pub fn linformer(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    projection: Tensor<3>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = options.check_call(OP, [&query, &key, &value]);
    let key_mask = check(&query, &projection, options, &shape);
    let stored = query.dtype();
    let [of_keys, of_values] = projections(projection, shape.seq_k);
    let [key, value] = [key, value].map(|tensor| key_mask.clear(widen(tensor)));
    let key = matmul(of_keys, key); // [batch, kv_heads, rank, d_head]
    let value = matmul(of_values, value); // [batch, kv_heads, rank, d_value]
    let options = AttentionOptions {
        scale: Some(options.scale.unwrap_or(shape.default_scale())),
        // All projected keys are visible.
        assume_finite: true,
        ..options.clone().with_pattern(Pattern::Full)
    };
    narrow(flash(widen(query), key, value, &options), stored)
}

/// The weights of the queries in `query`, `[batch, heads, rows, seq_k]`: the weights of the projected
/// keys times the projection of values.
pub(crate) fn projected_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    projection: Tensor<3>,
    options: &AttentionOptions,
    shape: &AttentionShape,
) -> Tensor<4> {
    let key_mask = check(&query, &projection, options, shape);
    let stored = query.dtype();
    let [_, rank, _] = projection.dims();
    let [of_keys, of_values] = projections(projection, shape.seq_k);
    let key = matmul(of_keys, key_mask.clear(widen(key)));
    let [_, _, rows, _] = query.dims();
    let projected = AttentionShape {
        seq_q: rows,
        seq_k: rank,
        ..*shape
    };
    let scale = options.scale.unwrap_or(shape.default_scale());
    let weights = softmax(dot_products(widen(query), key, scale, &projected), None);
    let weights = matmul(weights, of_values); // [batch, heads, rows, seq_k]
    let weights = match key_mask.masked {
        Some(masked) => {
            let dims = weights.dims();
            weights.mask_fill(masked.swap_dims(2, 3).expand(dims), 0.0)
        }
        None => weights,
    };
    narrow(weights, stored)
}

/// The mask of the keys. Panics if the projection does not fit, or the options are not supported.
fn check(
    query: &Tensor<4>,
    projection: &Tensor<3>,
    options: &AttentionOptions,
    shape: &AttentionShape,
) -> KeyMask {
    let [count, rank, length] = projection.dims();
    assert!(
        count == 2 && rank > 0,
        "{OP}: the projections must be [2, rank, length], got {:?}",
        projection.dims()
    );
    assert!(
        shape.seq_k <= length,
        "{OP}: a sequence may have up to {length} positions, got {}; help: set `length` to that of \
         the longest sequence",
        shape.seq_k
    );
    let (got, expected) = (projection.dtype(), query.dtype());
    assert!(
        got == expected,
        "{OP}: the projections must have the dtype of the queries, {expected:?}, got {got:?}"
    );
    reject_options_of_pairs(OP, options);
    let capabilities = MechanismConfig::from(Linformer::default()).capabilities();
    let reason = capabilities.causal.err().unwrap_or_default();
    KeyMask::of_all_queries(OP, reason, &options.pattern, shape, &query.device())
}

/// The first columns of the projections of keys and of values, `[1, 1, rank, seq]`, in `f32`.
fn projections(projection: Tensor<3>, seq: usize) -> [Tensor<4>; 2] {
    let [_, rank, _] = projection.dims();
    let projection = widen(projection).slice_dim(2, 0..seq);
    [0, 1].map(|part| {
        let part = projection.clone().slice_dim(0, part..part + 1);
        part.reshape([1, 1, rank, seq])
    })
}
