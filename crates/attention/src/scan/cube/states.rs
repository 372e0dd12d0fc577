//! States between chunks: the sum of each chunk, and the sums over chunks.

use cubecl::prelude::*;

use super::call::{Head, Role, ScanArgs, denominator_grad};
use super::tile::{
    Along, CHUNK, DEPTH, MEMORY_VEC4S, SIDE_VEC4S, multiply, row_vec4, side_index, slice,
    stage_side, sum_over_row, unit_position, zeros,
};
use crate::cube::rows::Vec4;

/// Which positions a state sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Summed {
    /// `S`: `φ(K)ᵀ V` and the sum of `φ(K)`.
    Keys,
    /// `R`: `φ(Q)ᵀ G`, over all query heads that share a key and value head.
    Queries,
}

impl Summed {
    fn features(self) -> Role {
        match self {
            Self::Keys => Role::Key,
            Self::Queries => Role::Query,
        }
    }

    fn values(self) -> Role {
        match self {
            Self::Keys => Role::Value,
            Self::Queries => Role::Grad,
        }
    }
}

/// Each cube computes 64 x 64 elements of the state of a chunk alone. `value_blocks` is the number
/// of such blocks in the width of a state, `blocks` that of all.
#[cube(launch_unchecked)]
pub(super) fn sum_states<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    states: &mut [Vec4],
    blocks: u32,
    value_blocks: u32,
    #[comptime] summed: Summed,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let kind = comptime!(args.kind);
    let tile = comptime!(kind.tile);
    let features = comptime!(summed.features());
    let values = comptime!(summed.values());
    let left = comptime!(slice(0, Along::Side));
    let right = comptime!(slice(1, Along::Side));
    let call = &args.call;
    let chunk = (CUBE_POS_X / blocks) as usize;
    let block = CUBE_POS_X % blocks;
    let feature_vec4 = (block / value_blocks) as usize * SIDE_VEC4S;
    let value_vec4 = (block % value_blocks) as usize * SIDE_VEC4S;
    let first = chunk * CHUNK;
    let (unit_row, unit_column) = unit_position(tile);
    let example = CUBE_POS_Z as usize;
    let kv_head = CUBE_POS_Y as usize;
    let group = call.group as usize;
    let mut members = 1usize;
    if comptime!(summed == Summed::Queries) {
        members = group;
    }

    let mut memory = Shared::<[Vec4]>::new_slice(comptime!(MEMORY_VEC4S));
    let mut sums = zeros(comptime!(tile.unit_elements()));
    let mut totals = Array::<Vec4>::new(comptime!(tile.unit_vec4s()));
    #[unroll]
    for i in 0..comptime!(tile.unit_vec4s()) {
        totals[i] = Vec4::new(0.0f32);
    }
    for member in 0..members {
        let head = Head {
            example,
            head: kv_head * group + member,
            kv_head,
        };
        for part in 0..comptime!(CHUNK / DEPTH) {
            let row = part * DEPTH;
            // Other units may still read the previous part.
            sync_cube();
            stage_side::<E, N, M>(
                args,
                &head,
                first,
                row,
                feature_vec4,
                &mut memory,
                features,
                left,
                false,
            );
            stage_side::<E, N, M>(
                args,
                &head,
                first,
                row,
                value_vec4,
                &mut memory,
                values,
                right,
                comptime!(kind.has_decay),
            );
            sync_cube();
            multiply(&mut memory, 0usize, &mut sums, left, right, tile);
            if comptime!(kind.is_normalised) {
                if value_vec4 == 0 {
                    #[unroll]
                    for step in 0..comptime!(DEPTH / tile.cube_side) {
                        let depth = unit_column + comptime!(step * tile.cube_side);
                        let mut factor = 1.0f32;
                        if comptime!(summed == Summed::Queries) {
                            factor = denominator_grad::<E, N, M>(args, &head, first + row + depth);
                        }
                        #[unroll]
                        for i in 0..comptime!(tile.unit_vec4s()) {
                            let vec4 = unit_row + comptime!(i * tile.cube_side);
                            totals[i] += memory[depth * SIDE_VEC4S + vec4] * Vec4::new(factor);
                        }
                    }
                }
            }
        }
    }

    let head = Head {
        example,
        head: kv_head * group,
        kv_head,
    };
    let state = call.state_offset(&head, chunk);
    let value_vec4s = call.value_vec4s();
    #[unroll]
    for i in 0..comptime!(tile.unit_side()) {
        let feature = feature_vec4 * 4 + side_index(unit_row, i, tile);
        #[unroll]
        for c in 0..comptime!(tile.unit_vec4s()) {
            let vec4 = value_vec4 + unit_column + comptime!(c * tile.cube_side);
            if feature < call.feature_vec4s() * 4 && vec4 < value_vec4s {
                states[state + feature * value_vec4s + vec4] = row_vec4(&mut sums, i, c, tile);
            }
        }
    }
    if comptime!(kind.is_normalised) {
        if value_vec4 == 0 {
            sum_over_row(&mut totals, &mut memory, tile);
            #[unroll]
            for i in 0..comptime!(tile.unit_vec4s()) {
                let vec4 = feature_vec4 + unit_row + comptime!(i * tile.cube_side);
                if unit_column == 0 && vec4 < call.feature_vec4s() {
                    states[state + call.totals_offset() + vec4] = totals[i];
                }
            }
        }
    }
}

/// How states are summed over chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Order {
    /// Each becomes the sum of those before it.
    Ascending,
    /// Each becomes the sum of those after it.
    Descending,
    /// The first becomes the sum of all.
    Total,
}

/// States that are loaded at once, so that a unit waits for memory once and not for each.
const BATCH: usize = 8;

/// Units per cube of [`scan_states`].
pub(super) const SCAN_UNITS: usize = 64;

/// Sums states over the chunks of a head, in place. Each unit computes a vec4 of them.
#[cube(launch_unchecked)]
pub(super) fn scan_states(
    states: &mut [Vec4],
    powers: &[f32],
    chunks: u32,
    state_vec4s: u32,
    #[comptime] order: Order,
    #[comptime] has_decay: bool,
) {
    let index = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let stride = state_vec4s as usize;
    let chunks = chunks as usize;
    if index < stride {
        let kv_head = CUBE_POS_Y as usize;
        let head_index = CUBE_POS_Z as usize * CUBE_COUNT_Y as usize + kv_head;
        let first = head_index * chunks * stride + index;
        let mut decay = 1.0f32;
        if comptime!(has_decay) {
            decay = powers[kv_head * comptime!(CHUNK + 1) + CHUNK];
        }
        let mut sum = Vec4::new(0.0f32);
        let mut loaded = Array::<Vec4>::new(BATCH);
        for batch in 0..chunks.div_ceil(BATCH) {
            #[unroll]
            for i in 0..BATCH {
                let step = batch * BATCH + i;
                loaded[i] = Vec4::new(0.0f32);
                if step < chunks {
                    loaded[i] = states[first + chunk_of(step, chunks, order) * stride];
                }
            }
            #[unroll]
            for i in 0..BATCH {
                let step = batch * BATCH + i;
                if comptime!(order != Order::Total) {
                    if step < chunks {
                        states[first + chunk_of(step, chunks, order) * stride] = sum;
                    }
                }
                if comptime!(has_decay) {
                    sum *= Vec4::new(decay);
                }
                sum += loaded[i];
            }
        }
        if comptime!(order == Order::Total) {
            states[first] = sum;
        }
    }
}

/// The chunk of a step.
#[cube]
fn chunk_of(step: usize, chunks: usize, #[comptime] order: Order) -> usize {
    let mut chunk = step;
    if comptime!(order == Order::Descending) {
        chunk = chunks - 1 - step;
    }
    chunk
}
