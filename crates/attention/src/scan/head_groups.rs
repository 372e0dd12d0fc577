//! Evaluation of a few heads at a time at inference.
//!
//! Features, sums and quotients are read and written a dozen times. Those of a few heads stay in
//! the cache, and no step allocates more than allocators keep. In training all heads are computed
//! at once, because gradients would have to be assembled from as many slices.

use std::ops::Range;

use burn::tensor::Tensor;

use super::key_mask::KeyMask;
use crate::AttentionShape;

/// Maximum number of elements of the keys of a group: 2 MiB.
const MAX_ELEMENTS: usize = 1 << 19;

/// The result of `attend` for all heads, computed in groups of heads of one example if they are
/// large.
pub(crate) fn in_head_groups(
    [query, key, value]: [Tensor<4>; 3],
    key_mask: &KeyMask,
    shape: &AttentionShape,
    attend: impl Fn([Tensor<4>; 3], &KeyMask, &AttentionShape) -> Tensor<4>,
) -> Tensor<4> {
    let head_elements = shape.seq_k.max(shape.seq_q) * shape.d_head.max(shape.d_value);
    let group_size = (MAX_ELEMENTS / head_elements).max(1);
    let is_small = shape.batch * shape.kv_heads <= group_size;
    if is_small || query.device().is_autodiff() {
        return attend([query, key, value], key_mask, shape);
    }
    let slice = |tensor: &Tensor<4>, example: usize, heads: Range<usize>| {
        let tensor = tensor.clone().slice_dim(0, example..example + 1);
        tensor.slice_dim(1, heads)
    };
    let examples = (0..shape.batch).map(|example| {
        let key_mask = KeyMask {
            is_causal: key_mask.is_causal,
            masked: key_mask.masked.as_ref().map(|masked| {
                let [batch, ..] = masked.dims();
                let index = if batch == 1 { 0 } else { example };
                masked.clone().slice_dim(0, index..index + 1)
            }),
        };
        let firsts = (0..shape.kv_heads).step_by(group_size);
        let parts = firsts.map(|first| {
            let kv_heads = first..shape.kv_heads.min(first + group_size);
            let group = shape.group();
            let heads = kv_heads.start * group..kv_heads.end * group;
            let shape = AttentionShape {
                batch: 1,
                heads: heads.len(),
                kv_heads: kv_heads.len(),
                ..*shape
            };
            let tensors = [
                slice(&query, example, heads),
                slice(&key, example, kv_heads.clone()),
                slice(&value, example, kv_heads),
            ];
            attend(tensors, &key_mask, &shape)
        });
        Tensor::cat(parts.collect(), 1)
    });
    Tensor::cat(examples.collect(), 0)
}
