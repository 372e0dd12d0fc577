//! Keys that hash as the query does.
//!
//! Kitaev et al., [Reformer](https://arxiv.org/abs/2001.04451), 2020.
//!
//! ```text
//! k_j     = q_j / |q_j|                  a query is a key, too
//! o_i     = Σ_j exp(s q_i·k_j) v_j / Σ_j exp(s q_i·k_j)     over the keys that i sees
//! hash(x) = argmax [xR; -xR]             another R for each round
//! ```
//!
//! In each round places are sorted by their hash, those of one hash by their place, and
//! cut into chunks. A place sees the keys of its own chunk and of the chunk before; before
//! the first is the last. Rounds are joined exactly: the sums go over all keys that are
//! seen in any of them, each of them once.
//!
//! No key is more like a query than its own, so that everybody would look at itself. A
//! place sees itself only if it sees nothing else.

mod hashing;
mod seats;
mod sight;

use burn::tensor::{Bool, Int, Tensor, TensorData};
use zoo_spec::Lsh;

pub use self::hashing::Hashing;
use self::seats::{Chunks, Round, Seating};
use self::sight::Sight;
use super::{Attention, Inputs, Output, Params};
use crate::analysis::weighing::Weighing;
use crate::flash::{Flashed, flash_with_log_sum_exp, merge};
use crate::precision::{check, narrow, widen};
use crate::{AttentionOptions, AttentionShape, Pattern};

impl Attention for Lsh {
    fn forward(&self, inputs: Inputs, _: &Params, options: &AttentionOptions) -> Output {
        lsh(inputs.query, inputs.value, self, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn weighing(&self, _: &Params, _: &Tensor<4>, _: &AttentionShape) -> Weighing {
        Weighing::Hashed(*self)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        // Its own chunk and the one before, in each round.
        let keys = (2 * self.bucket * self.rounds).min(shape.seq_k);
        2.0 * (shape.heads * shape.seq_q * keys * (shape.d_head + shape.d_value)) as f64
    }
}

/// Attends to the keys that hash as the query does, of those that the options' pattern
/// shows.
///
/// Up to `2 · bucket` places, all others are seen.
///
/// # Shapes
///
/// - query: `[batch, heads, seq, d_head]`
/// - value: `[batch, heads, seq, d_value]`
/// - result: `[batch, heads, seq, d_value]`
///
/// # Panics
///
/// If the tensors or the options do not fit together, there is no bucket or no round, or
/// the options have ALiBi, a bias or dropout.
pub fn lsh(
    query: Tensor<4>,
    value: Tensor<4>,
    hashing: &Lsh,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "lsh attention";
    let [batch, heads, seq, _] = query.dims();
    let [value_batch, value_heads, value_seq, _] = value.dims();
    assert!(
        [value_batch, value_heads, value_seq] == [batch, heads, seq],
        "{op}: keys are made of the queries: value must be [batch = {batch}, heads = {heads}, \
         seq = {seq}, d_value] to fit query {:?}, got {:?}",
        query.dims(),
        value.dims(),
    );
    let shape = AttentionShape::of(op, &query, &query, &value);
    check(op, [query.dtype(), query.dtype(), value.dtype()]);
    self::hashing::check(hashing, op);
    options.check(op, &shape);
    refuse_places(op, options);

    let sight = Sight::of(op, &options.pattern, &shape, &query.device());
    let Seating { chunks, rounds } = Seating::of(hashing, &query, &sight);
    // Rounded once, not part by part.
    let stored = query.dtype();
    let [query, value] = [query, value].map(widen);
    let key = units(query.clone());
    let rows = [query, key, value].map(|tensor| {
        let [.., width] = tensor.dims();
        tensor.reshape([batch * heads * seq, width])
    });
    let parts: Vec<Flashed> = rounds
        .into_iter()
        .map(|round| one_round(&rows, round, chunks, &shape, options))
        .collect();
    let context = match parts.as_slice() {
        [one] => one.context.clone(),
        several => merge(several).context,
    };
    narrow(context, stored)
}

/// Options that know places do not know where they are sorted to.
fn refuse_places(op: &str, options: &AttentionOptions) {
    let drops = |dropout: &crate::Dropout| dropout.probability > 0.0;
    for (what, is_given) in [
        ("ALiBi", options.alibi.is_some()),
        ("a bias", options.bias.is_some()),
        ("dropout", options.dropout.as_ref().is_some_and(drops)),
    ] {
        assert!(
            !is_given,
            "{op}: {what} is not supported, since it sorts positions by their hashes"
        );
    }
}

/// What is hidden from the queries `rows`, `[batch, heads, rows, seq]`: all that they meet in
/// no round, and what the options' pattern does not show.
pub(crate) fn hidden_by_hashes(
    op: &str,
    hashing: &Lsh,
    query: &Tensor<4>,
    options: &AttentionOptions,
    rows: &[usize],
) -> Tensor<4, Bool> {
    self::hashing::check(hashing, op);
    refuse_places(op, options);
    let shape = AttentionShape::of(op, query, query, query);
    let [batch, heads, _, seq] = shape.scores();
    let sight = Sight::of(op, &options.pattern, &shape, &query.device());
    let seating = Seating::of(hashing, query, &sight);
    let mut hidden = vec![true; batch * heads * rows.len() * seq];
    for (at, hidden) in hidden.chunks_exact_mut(seq).enumerate() {
        let (head, row) = (at / rows.len(), rows[at % rows.len()]);
        for key in seating.seen_by(head * seq + row) {
            hidden[key % seq] = false;
        }
    }
    let hidden = TensorData::new(hidden, [batch, heads, rows.len(), seq]);
    Tensor::from_data(hidden, &query.device())
}

/// Each row as long as 1; one of zeros stays so.
pub(crate) fn units(rows: Tensor<4>) -> Tensor<4> {
    let squares = rows.clone().square().sum_dim(3);
    // The root has no slope at zero.
    let none = squares.clone().equal_elem(0.0);
    rows.div(squares.mask_fill(none, 1.0).sqrt())
}

/// Every query with the keys it meets in a round, of these rows of queries, keys and
/// values.
fn one_round(
    [query, key, value]: &[Tensor<2>; 3],
    round: Round,
    chunks: Chunks,
    shape: &AttentionShape,
    options: &AttentionOptions,
) -> Flashed {
    let Chunks { count, seats } = chunks;
    let (heads, device) = (shape.batch * shape.heads, query.device());
    let index = |rows: &[i32]| Tensor::<1, Int>::from_ints(rows, &device);
    let seated = index(&round.rows);
    let seated = |rows: &Tensor<2>| {
        let [_, width] = rows.dims();
        let sorted = rows.clone().select(0, seated.clone());
        sorted.reshape([heads, count, seats, width])
    };
    // Chunks are examples.
    let of_chunks = |tensor: Tensor<4>| {
        let [_, _, places, width] = tensor.dims();
        tensor.reshape([heads * count, 1, places, width])
    };
    let hidden = TensorData::new(round.hidden, [heads * count, 1, seats, chunks.keys()]);
    let hidden = Tensor::<4, Bool>::from_data(hidden, &device);
    let part = flash_with_log_sum_exp(
        of_chunks(seated(query)),
        of_chunks(with_those_before(seated(key))),
        of_chunks(with_those_before(seated(value))),
        &options.clone().with_pattern(Pattern::Dense(hidden)),
    );
    let seat_of = index(&round.seat_of);
    let back = |tensor: Tensor<4>| {
        let [.., width] = tensor.dims();
        tensor
            .reshape([heads * count * seats, width])
            .select(0, seat_of.clone())
            .reshape([shape.batch, shape.heads, shape.seq_q, width])
    };
    Flashed {
        context: back(part.context),
        log_sum_exp: back(part.log_sum_exp),
    }
}

/// To each chunk of `[heads, chunks, seats, width]`, the places of the one before: twice as
/// many, unless there is no other.
fn with_those_before(chunks: Tensor<4>) -> Tensor<4> {
    let [_, count, ..] = chunks.dims();
    if count == 1 {
        return chunks;
    }
    let last = chunks.clone().slice_dim(1, count - 1..count);
    let others = chunks.clone().slice_dim(1, 0..count - 1);
    let before = Tensor::cat(vec![last, others], 1);
    Tensor::cat(vec![before, chunks], 2) // [heads, chunks, 2 seats, width]
}
