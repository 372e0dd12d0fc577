//! States between the chunks of a head, and their sums over segments of chunks.

use super::call::{Call, Chunk, Head};
use super::load::NO_SHIFT;
use super::rows;
use crate::scan::call::ScanMap;

/// A sum of outer products over the chunks so far.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) sums: Vec<f32>,
    /// The logarithm to base 2 of the factor by which the sums were divided. Forward, with random
    /// features: the maximum exponent of the keys so far. Backward it is negative, since the state
    /// is multiplied by the features of keys.
    pub(super) shift: f32,
    /// Whether nothing was added yet.
    pub(super) is_empty: bool,
    /// In causal order, forward: the first non-finite key; backward: the last key that a non-finite
    /// query attends to.
    pub(super) bad: Option<usize>,
}

impl State {
    pub(super) fn empty(call: &Call<'_>, len: usize) -> Self {
        Self {
            sums: vec![0.0; len],
            shift: match call.map {
                ScanMap::Exponential(_) => NO_SHIFT,
                ScanMap::Elu1 | ScanMap::Relu | ScanMap::Features | ScanMap::Decay(_) => 0.0,
            },
            is_empty: true,
            bad: None,
        }
    }

    /// Changes the shift.
    pub(super) fn shift_to(&mut self, shift: f32) {
        if shift != self.shift {
            if !self.is_empty {
                rows::scale((self.shift - shift).exp2(), &mut self.sums);
            }
            self.shift = shift;
        }
    }

    /// The state after `local`, which began empty, if this one came before it; states decay by
    /// `decay` over the chunks of `local`.
    pub(super) fn followed_by(&self, local: &Self, decay: f32) -> Self {
        let mut after = local.clone();
        after.shift = self.shift.max(local.shift);
        after.is_empty = self.is_empty && local.is_empty;
        // The first that the recurrence meets.
        after.bad = self.bad.or(local.bad);
        let [before, added] = [self, local].map(|state| (state.shift - after.shift).exp2());
        rows::combine(decay * before, &self.sums, added, &mut after.sums);
        after
    }
}

/// Splits chunks into segments of about equal length.
pub(super) fn segments(chunks: &[Chunk], count: usize) -> Vec<&[Chunk]> {
    let size = chunks.len().div_ceil(count.max(1)).max(1);
    chunks.chunks(size).collect()
}

/// By how much a state decays over chunks.
pub(super) fn decay_over(call: &Call<'_>, head: Head, chunks: &[Chunk]) -> f32 {
    let positions: usize = chunks.iter().map(Chunk::len).sum();
    match call.decay(head) {
        Some(decay) => decay.powi(positions as i32) as f32,
        None => 1.0,
    }
}
