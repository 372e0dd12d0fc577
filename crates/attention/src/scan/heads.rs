//! A few heads at a time, where nothing is to be learned from them.
//!
//! Features, sums and quotients go through memory a dozen times. Those of a few heads stay
//! in the cache, and no step asks for memory that is larger than allocators keep. A
//! gradient would be put together from as many parts of the same tensors: for training all
//! heads are taken at once.

use std::ops::Range;

use burn::tensor::Tensor;

use super::sight::Sight;
use crate::AttentionShape;

/// Numbers that keys of some heads may have: 2 MiB.
const NUMBERS: usize = 1 << 19;

/// The result of `attend` for queries, keys and values of all heads, some heads of one
/// example at a time where they are large.
pub(crate) fn some_at_a_time(
    [query, key, value]: [Tensor<4>; 3],
    sight: &Sight,
    shape: &AttentionShape,
    attend: impl Fn([Tensor<4>; 3], &Sight, &AttentionShape) -> Tensor<4>,
) -> Tensor<4> {
    let of_a_head = shape.seq_k.max(shape.seq_q) * shape.d_head.max(shape.d_value);
    let together = (NUMBERS / of_a_head).max(1);
    let is_small = shape.batch * shape.kv_heads <= together;
    if is_small || query.device().is_autodiff() {
        return attend([query, key, value], sight, shape);
    }
    let cut = |tensor: &Tensor<4>, example: usize, heads: Range<usize>| {
        let own = tensor.clone().slice_dim(0, example..example + 1);
        own.slice_dim(1, heads)
    };
    let examples = (0..shape.batch).map(|example| {
        let sight = Sight {
            is_causal: sight.is_causal,
            hidden: sight.hidden.as_ref().map(|hidden| {
                let [batch, ..] = hidden.dims();
                let own = if batch == 1 { 0 } else { example };
                hidden.clone().slice_dim(0, own..own + 1)
            }),
        };
        let firsts = (0..shape.kv_heads).step_by(together);
        let parts = firsts.map(|first| {
            let kv_heads = first..shape.kv_heads.min(first + together);
            let group = shape.group();
            let heads = kv_heads.start * group..kv_heads.end * group;
            let some = AttentionShape {
                batch: 1,
                heads: heads.len(),
                kv_heads: kv_heads.len(),
                ..*shape
            };
            let tensors = [
                cut(&query, example, heads),
                cut(&key, example, kv_heads.clone()),
                cut(&value, example, kv_heads),
            ];
            attend(tensors, &sight, &some)
        });
        Tensor::cat(parts.collect(), 1)
    });
    Tensor::cat(examples.collect(), 0)
}
