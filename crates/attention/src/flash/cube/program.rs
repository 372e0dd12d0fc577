//! The programs that the kernels compute: how weights follow from scores, and score gradients from
//! weight gradients.

use cubecl::prelude::*;
use serde::{Deserialize, Serialize};

use super::call::KernelArgs;
use super::score::weight;
use crate::analysis::weights::HardSelection;
use crate::flash::call::{MASKED_SCORE, MIN_VISIBLE_SCORE, Program, TiledSettings};

/// The program of a kernel, known at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum KernelProgram {
    Softmax,
    /// [`Program::Additive`].
    Additive,
    /// [`Program::Sigmoid`].
    Sigmoid,
    /// [`HardSelection::Best`].
    Best,
    /// [`HardSelection::Sampled`].
    Sampled,
}

impl KernelProgram {
    /// The program of a call, if the kernels support it.
    pub(super) fn new(settings: &TiledSettings) -> Option<Self> {
        let needs_tile_loops =
            settings.score_mod.is_some() || settings.has_relative_bias || settings.is_portable;
        if needs_tile_loops {
            return None;
        }
        match settings.program {
            Program::Softmax => Some(Self::Softmax),
            Program::Additive => Some(Self::Additive),
            Program::Sigmoid => Some(Self::Sigmoid),
            Program::Hard(HardSelection::Best) => Some(Self::Best),
            Program::Hard(HardSelection::Sampled { .. }) => Some(Self::Sampled),
            Program::Gaussian { .. } => None,
        }
    }

    /// Whether a query attends to a single key.
    pub(super) fn is_hard(self) -> bool {
        match self {
            Self::Best | Self::Sampled => true,
            Self::Softmax | Self::Additive | Self::Sigmoid => false,
        }
    }

    /// Statistics of a row: the maximum and the sum of its exponentials, and the index of a selected
    /// key.
    pub(super) fn stats_width(self) -> usize {
        if self.is_hard() { 3 } else { 2 }
    }

    /// The offset of the seeds from the end of the slopes in the [table](super::call::table).
    pub(super) fn seeds_offset(self) -> usize {
        usize::from(self == Self::Sampled)
    }

    /// Words of the seeds of a head in the table.
    pub(super) fn seeds_stride(self) -> usize {
        if self == Self::Sampled { 4 } else { 2 }
    }
}

/// One over the temperature of the softmax, 1 if there is none.
#[cube]
pub(super) fn inverse_temperature<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
) -> f32 {
    if comptime!(args.program == KernelProgram::Sampled) {
        f32::reinterpret(args.table[args.call.heads as usize])
    } else {
        1.0f32.runtime()
    }
}

/// A score divided by the temperature.
#[cube]
pub(super) fn soft_score(
    score: f32,
    inverse_temperature: f32,
    #[comptime] program: KernelProgram,
) -> f32 {
    if comptime!(program == KernelProgram::Sampled) {
        let soft = score * inverse_temperature;
        // These comparisons preserve NaN.
        let soft = select(soft < MIN_VISIBLE_SCORE, MIN_VISIBLE_SCORE, soft);
        select(score <= MASKED_SCORE, MASKED_SCORE, soft)
    } else {
        score
    }
}

/// The weight of a score, given the maximum of its row and one over the sum.
#[cube]
pub(super) fn probability(
    score: f32,
    row_max: f32,
    inverse_sum: f32,
    inverse_temperature: f32,
    #[comptime] program: KernelProgram,
) -> f32 {
    if comptime!(program == KernelProgram::Sigmoid) {
        sigmoid_weight(score)
    } else {
        weight(soft_score(score, inverse_temperature, program), row_max) * inverse_sum
    }
}

/// The sigmoid of a score, zero if masked.
#[cube]
pub(super) fn sigmoid_weight(score: f32) -> f32 {
    let exponential = (-score.abs()).exp();
    let numerator = select(score < 0.0f32, exponential, 1.0f32);
    let sigmoid = numerator / (1.0f32 + exponential);
    select(score <= MASKED_SCORE, 0.0f32, sigmoid)
}

/// The gradient of a score from that of its weight.
#[cube]
pub(super) fn score_gradient(
    weight: f32,
    d_weight: f32,
    delta: f32,
    inverse_temperature: f32,
    #[comptime] program: KernelProgram,
) -> f32 {
    if comptime!(program == KernelProgram::Sigmoid) {
        weight * (1.0f32 - weight) * d_weight
    } else if comptime!(program == KernelProgram::Sampled) {
        weight * (d_weight - delta) * inverse_temperature
    } else {
        weight * (d_weight - delta)
    }
}
