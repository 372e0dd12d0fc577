//! Arguments of the kernels.

use cubecl::prelude::*;

use super::layout::Layout;
use super::program::KernelProgram;
use crate::analysis::weights::HardSelection;
use crate::counter::head_key;
pub(super) use crate::cube::rows::{
    BroadcastStrides, BroadcastStridesLaunch, TensorStrides, TensorStridesLaunch,
};
use crate::flash::call::{Program, TiledSettings};

#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Head {
    pub(super) example: usize,
    pub(super) head: usize,
}

/// The inputs that all kernels over tiles share.
#[derive(CubeType, CubeLaunch)]
pub(super) struct KernelArgs<E: Float, N: Size, M: Numeric> {
    pub(super) query: &'static [Vector<E, N>],
    pub(super) key: &'static [Vector<E, N>],
    pub(super) value: &'static [Vector<E, N>],
    pub(super) plan: &'static [u32],
    pub(super) table: &'static [u32],
    pub(super) mask: &'static [M],
    pub(super) bias: &'static [E],
    /// The parameter of the program.
    pub(super) parameter: &'static [Vector<E, N>],
    pub(super) call: Call,
    /// Whether the scores of visible keys are the scaled dot products, without dropout.
    #[cube(comptime)]
    pub(super) is_plain: bool,
    #[cube(comptime)]
    pub(super) program: KernelProgram,
    #[cube(comptime)]
    pub(super) layout: Layout,
}

/// The sizes, strides and options of a call. Strides of broadcast dimensions are zero.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Call {
    pub(super) heads: u32,
    /// Query heads that share a key and value head.
    pub(super) group: u32,
    pub(super) seq_q: u32,
    pub(super) seq_k: u32,
    pub(super) d_head: u32,
    pub(super) d_value: u32,
    pub(super) query: TensorStrides,
    pub(super) key: TensorStrides,
    pub(super) value: TensorStrides,
    pub(super) d_context: TensorStrides,
    pub(super) scale: f32,
    /// Zero for none.
    pub(super) softcap: f32,
    pub(super) has_alibi: u32,
    /// 0 for none, 1 for a bias that broadcasts to the scores, 2 for one of relative positions.
    pub(super) has_bias: u32,
    pub(super) bias: BroadcastStrides,
    pub(super) has_mask: u32,
    pub(super) mask: BroadcastStrides,
    /// Weights whose random number is below this are dropped; zero for no dropout.
    pub(super) dropout_threshold: u32,
    /// The factor of the other weights.
    pub(super) dropout_scale: f32,
    pub(super) plan_rows: u32,
    /// The number of rows of the plan for each row of tiles.
    pub(super) splits: u32,
    /// The stride between the rows of examples in the plan; zero if all have the same plan.
    pub(super) plan_example: u32,
    pub(super) runs_offset: u32,
    pub(super) bitmaps_offset: u32,
}

/// Lookup table of the kernels: the ALiBi slope of each head, and the dropout seed of each head of
/// each example. With [`KernelProgram::Sampled`], one over the temperature is between them, and each
/// dropout seed is followed by the seed of the noise.
pub(super) fn table(settings: &TiledSettings) -> Option<Vec<u32>> {
    let shape = &settings.shape;
    let sampled = match settings.program {
        Program::Hard(HardSelection::Sampled { temperature, seed }) => Some((temperature, seed)),
        Program::Softmax
        | Program::Additive
        | Program::Gaussian { .. }
        | Program::Sigmoid
        | Program::Hard(HardSelection::Best) => None,
    };
    if settings.alibi.is_none() && settings.dropout.is_none() && sampled.is_none() {
        return None;
    }
    let mut table: Vec<u32> = match &settings.alibi {
        Some(slopes) => slopes.iter().map(|slope| slope.to_bits()).collect(),
        None => vec![0; shape.heads],
    };
    if let Some((temperature, _)) = sampled {
        table.push((1.0 / temperature as f32).to_bits());
    }
    for example in 0..shape.batch {
        for head in 0..shape.heads {
            let dropout = settings.dropout.map(|it| it.head_key([example, head]));
            // Inverted, so that dropout with the same seed is independent.
            let noise =
                sampled.map(|(_, seed)| head_key(!seed, [example, settings.first_head + head]));
            // The seed of the noise has the same index with and without dropout.
            let dropout = dropout.or(noise.map(|_| 0));
            for seed in dropout.into_iter().chain(noise) {
                table.extend([seed as u32, (seed >> 32) as u32]);
            }
        }
    }
    Some(table)
}
