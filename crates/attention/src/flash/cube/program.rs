//! The programs that the kernels compute: how weights follow from scores, and score gradients from
//! weight gradients.

use cubecl::prelude::*;
use serde::{Deserialize, Serialize};

use super::call::{Call, KernelArgs};
use super::score::weight;
use crate::analysis::weights::HardSelection;
use crate::flash::call::{MASKED_SCORE, MIN_VISIBLE_SCORE, Program, TiledSettings};

/// Statistics of hard attention before the soft context, which is aligned to vec4.
pub(super) const HARD_STATS: usize = 4;

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
        if settings.score_mod.is_some() || settings.is_portable {
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

    /// Statistics of a row, as saved by the forward pass: the maximum and the sum of its exponentials.
    /// Hard attention appends the index of the selected key and an unused element; if the key is
    /// sampled and a gradient is needed, followed by the context of the soft weights.
    pub(super) fn stats_width(self, settings: &TiledSettings) -> usize {
        match self {
            Self::Softmax | Self::Additive | Self::Sigmoid => 2,
            Self::Sampled if settings.is_tracked => HARD_STATS + settings.shape.d_value,
            Self::Best | Self::Sampled => HARD_STATS,
        }
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

/// The width of saved statistics, see [`KernelProgram::stats_width`].
#[cube]
pub(super) fn stats_width(call: &Call, #[comptime] program: KernelProgram) -> usize {
    if comptime!(program == KernelProgram::Sampled) {
        HARD_STATS + call.d_value as usize
    } else {
        comptime!(if program.is_hard() { HARD_STATS } else { 2 }).runtime()
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
