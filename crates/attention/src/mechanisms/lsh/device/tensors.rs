//! The layout by tensor operations, for LibTorch on CUDA.

use burn::tensor::{Bool, Int, Tensor};

use super::super::with_previous_chunk;
use super::gather::gather_rows;
use super::{DeviceLayout, DevicePattern, Method, Sizes};
use crate::flash::{FlashOutput, merge_stacked};

/// Sorts the positions by hash and computes the masks. The products of hashes and positions must
/// fit into the integer type.
pub(super) fn layout(
    hashes: Tensor<2, Int>,
    pattern: &DevicePattern,
    sizes: Sizes,
) -> DeviceLayout {
    let Sizes { rounds, seq, .. } = sizes;
    let [sorted_heads, count, size, keys] = sizes.mask_dims();
    let order = sort(hashes, &sizes); // [sorted heads, seq]
    // The inverse permutation.
    let slot_of = order.clone().argsort(1);
    let slots = count * size;
    let padding = order
        .clone()
        .zeros_like()
        .repeat_dim(1, slots.div_ceil(seq));
    let padding = padding.slice_dim(1, 0..slots - seq);
    let positions = Tensor::cat(vec![order, padding], 1);
    let head_index = iota(sorted_heads, &positions);
    let first_row = head_index
        .clone()
        .remainder_scalar(sizes.all_heads() as i64)
        .mul_scalar(seq as i64);
    let query_rows = positions.clone() + first_row; // [sorted heads, slots]
    let key_rows = with_previous_chunk(query_rows.clone().reshape([sorted_heads, count, size, 1]));

    let offset = slot_of.clone().remainder_scalar(size as i64);
    let chunk = (slot_of.clone() - offset.clone()).div_scalar(size as i64);
    let first_key = head_index.clone().mul_scalar((count * keys) as i64);
    let key_slot = |chunk: Tensor<2, Int>, first: usize| {
        let slot = chunk.mul_scalar(keys as i64) + offset.clone() + first_key.clone();
        slot.add_scalar(first as i64)
            .reshape([rounds, 1, sizes.rows()])
    };
    let mut key_slots = vec![key_slot(chunk.clone(), keys - size)];
    if count > 1 {
        let next = chunk.clone().add_scalar(1).remainder_scalar(count as i64);
        key_slots.push(key_slot(next, 0));
    }
    let mask = Masks {
        positions: positions.reshape([sorted_heads, count, size, 1]),
        slot_of: slot_of.clone(),
        chunk_of: chunk,
        pattern,
        sizes,
    };
    let query_slots = slot_of + head_index.mul_scalar(slots as i64);
    DeviceLayout {
        method: Method::TensorOps,
        sizes,
        query_rows: query_rows.reshape([-1]),
        query_slots: query_slots.reshape([-1]),
        key_rows: key_rows.reshape([-1]),
        key_slots: Tensor::cat(key_slots, 1).reshape([-1]),
        mask: mask.mask(),
    }
}

/// The context of each position, `[rows, d_value]`, from that of each slot of the queries.
pub(super) fn merge(part: FlashOutput, layout: &DeviceLayout) -> Tensor<2> {
    let sizes = &layout.sizes;
    let rows = rows_of_rounds(&layout.query_rows, sizes);
    merge_stacked([part.context, part.log_sum_exp].map(|tensor| {
        let [heads, chunks, size, width] = tensor.dims();
        let slots = tensor.reshape([heads * chunks * size, width]);
        let unsorted = gather_rows(slots, &layout.query_slots, &rows);
        unsorted.reshape([sizes.rounds, sizes.rows(), width])
    }))
}

/// The row in each slot of the queries among the rows of all rounds.
fn rows_of_rounds(query_rows: &Tensor<1, Int>, sizes: &Sizes) -> Tensor<1, Int> {
    let [slots] = query_rows.dims();
    let rounds = Tensor::<1, Int>::arange(0..sizes.rounds as i64, &query_rows.device());
    let first_row = rounds
        .cast(query_rows.dtype())
        .mul_scalar(sizes.rows() as i64);
    let rows = query_rows
        .clone()
        .reshape([sizes.rounds, slots / sizes.rounds]);
    (rows + first_row.reshape([sizes.rounds, 1])).reshape([slots])
}

/// `[count, 1]`: the numbers from zero on.
fn iota<const D: usize>(count: usize, like: &Tensor<D, Int>) -> Tensor<2, Int> {
    let numbers = Tensor::<1, Int>::arange(0..count as i64, &like.device());
    numbers.cast(like.dtype()).reshape([count, 1])
}

/// The positions of each head in each round by hash, then by position: `[sorted heads, seq]`.
fn sort(digits: Tensor<2, Int>, sizes: &Sizes) -> Tensor<2, Int> {
    let Sizes { rounds, seq, .. } = *sizes;
    let heads = sizes.all_heads();
    let digits = digits.reshape([heads, seq, rounds, sizes.digits]);
    let digit = |index: usize| digits.clone().slice_dim(3, index..index + 1);
    let hash = (1..sizes.digits).fold(digit(0), |hash, index| {
        hash.mul_scalar(sizes.base as i64) + digit(index)
    });
    let hash = hash.reshape([heads * seq, rounds]).swap_dims(0, 1);
    let hash = hash.reshape([rounds * heads, seq]);
    let position = iota(seq, &hash).swap_dims(0, 1);
    (hash.mul_scalar(seq as i64) + position).argsort(1)
}

/// What the masks of all rounds are computed from.
struct Masks<'a> {
    /// `[sorted heads, chunks, size, 1]`: the position in each slot.
    positions: Tensor<4, Int>,
    /// `[sorted heads, seq]`.
    slot_of: Tensor<2, Int>,
    /// `[sorted heads, seq]`.
    chunk_of: Tensor<2, Int>,
    pattern: &'a DevicePattern,
    sizes: Sizes,
}

impl Masks<'_> {
    fn mask(&self) -> Tensor<4, Bool> {
        let [sorted_heads, count, size, _] = self.sizes.mask_dims();
        let heads = self.sizes.all_heads();
        let slots = iota(count * size, &self.positions).reshape([1, count, size, 1]);
        let is_padding = slots.greater_equal_elem(self.sizes.seq as i64);
        let is_padding = is_padding.expand([sorted_heads, count, size, 1]);
        let key_padding = with_previous_chunk(is_padding.clone()).swap_dims(2, 3);
        let [query, key] = self.queries_and_keys(self.positions.clone());
        let hidden = self.hidden(&query, &key, is_padding.bool_or(key_padding));
        let is_own = key.equal(query);
        let mut mask = hidden.clone().bool_or(is_own.clone());
        for earlier in 0..self.sizes.rounds - 1 {
            mask = mask.bool_or(self.seen(earlier));
        }
        // A position without any other visible key attends to itself, in the first round.
        let first = |mask: Tensor<4, Bool>| mask.slice_dim(0, 0..heads);
        let is_own = first(is_own).bool_and(first(hidden).bool_not());
        let is_visible = is_own.bool_and(self.is_alone(&mask));
        let own = first(mask.clone()).bool_and(is_visible.bool_not());
        if sorted_heads == heads {
            return own;
        }
        Tensor::cat(vec![own, mask.slice_dim(0, heads..sorted_heads)], 0)
    }

    /// A value of each slot as that of a query, `[.., size, 1]`, and of a key, `[.., 1, keys]`.
    fn queries_and_keys(&self, slots: Tensor<4, Int>) -> [Tensor<4, Int>; 2] {
        let keys = with_previous_chunk(slots.clone()).swap_dims(2, 3);
        [slots, keys]
    }

    /// The pairs that the pattern masks, in addition to some others.
    fn hidden(
        &self,
        query: &Tensor<4, Int>,
        key: &Tensor<4, Int>,
        others: Tensor<4, Bool>,
    ) -> Tensor<4, Bool> {
        let Sizes {
            batch,
            heads,
            rounds,
            ..
        } = self.sizes;
        let dims = self.sizes.mask_dims();
        let mut hidden = others;
        if self.pattern.is_causal {
            hidden = hidden.bool_or(key.clone().greater(query.clone()));
        }
        if let Some(lengths) = &self.pattern.lengths {
            let lengths = lengths.clone().reshape([1, batch, 1]).cast(key.dtype());
            let lengths = lengths.expand([rounds, batch, heads]);
            let lengths = lengths.reshape([dims[0], 1, 1, 1]);
            hidden = hidden.bool_or(key.clone().greater_equal(lengths));
        }
        if let Some(mask) = &self.pattern.mask {
            let [of_batch, of_heads, of_query, of_key] = mask.dims();
            let strides = [of_heads * of_query * of_key, of_query * of_key, of_key, 1];
            let stride = |dim: usize| match mask.dims()[dim] {
                1 => 0,
                _ => strides[dim] as i64,
            };
            let head = iota(dims[0], key).remainder_scalar((batch * heads) as i64);
            let of_example = head.clone().remainder_scalar(heads as i64);
            let example = (head - of_example.clone()).div_scalar(heads as i64);
            let first = example.mul_scalar(stride(0)) + of_example.mul_scalar(stride(1));
            let index = query.clone().mul_scalar(stride(2))
                + key.clone().mul_scalar(stride(3))
                + first.reshape([dims[0], 1, 1, 1]);
            let flat = mask.clone().reshape([of_batch * strides[0]]);
            hidden = hidden.bool_or(flat.select(0, index.reshape([-1])).reshape(dims));
        }
        hidden
    }

    /// The pairs of the rounds after an earlier one that were visible in that one.
    fn seen(&self, earlier: usize) -> Tensor<4, Bool> {
        let Sizes { rounds, seq, .. } = self.sizes;
        let [sorted_heads, count, size, _] = self.sizes.mask_dims();
        let heads = self.sizes.all_heads();
        let chunk_of = self.chunk_of.clone();
        let chunk_of = chunk_of
            .slice_dim(0, earlier * heads..(earlier + 1) * heads)
            .reshape([1, heads, seq])
            .expand([rounds, heads, seq])
            .reshape([sorted_heads, seq]);
        let positions = self.positions.clone().reshape([sorted_heads, count * size]);
        let chunks = chunk_of.gather(1, positions);
        let [query, key] = self.queries_and_keys(chunks.reshape([sorted_heads, count, size, 1]));
        let previous = query.clone().add_scalar(count as i64 - 1);
        let previous = previous.remainder_scalar(count as i64);
        let is_seen = key.clone().equal(query).bool_or(key.equal(previous));
        let is_later = iota(sorted_heads, &self.positions)
            .greater_equal_elem(((earlier + 1) * heads) as i64)
            .reshape([sorted_heads, 1, 1, 1]);
        is_seen.bool_and(is_later)
    }

    /// Whether the query of each slot of the first round has no visible key in any round,
    /// `[batch · heads, chunks, size, 1]`.
    fn is_alone(&self, mask: &Tensor<4, Bool>) -> Tensor<4, Bool> {
        let Sizes { rounds, seq, .. } = self.sizes;
        let [sorted_heads, count, size, _] = self.sizes.mask_dims();
        let heads = self.sizes.all_heads();
        let attends = mask.clone().bool_not().any_dim(3).int();
        let attends = attends.reshape([sorted_heads, count * size]);
        let attends = attends.gather(1, self.slot_of.clone());
        let attends = attends.reshape([rounds, heads, seq]).sum_dim(0);
        let positions = self.positions.clone().slice_dim(0, 0..heads);
        let positions = positions.reshape([heads, count * size]);
        let attends = attends.reshape([heads, seq]).gather(1, positions);
        attends.equal_elem(0).reshape([heads, count, size, 1])
    }
}
