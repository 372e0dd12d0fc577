//! Rows of the plan whose key tiles are computed by several cubes.
//!
//! With few queries, as in decoding, there are fewer query tiles than a GPU computes at the same
//! time. The key tiles of each are divided over several rows of the plan; each has its own context
//! and statistics, which a second kernel merges.

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::device_plan::PlanKey;
use super::program::KernelProgram;
use crate::cube::launch::{buffer, cube_count, empty_like};
use crate::flash::call::{MASKED_SCORE, TiledSettings};

/// Multiprocessors of a GPU that does not report their number.
const MULTIPROCESSORS: usize = 128;

/// Cubes per multiprocessor that hide the latency of each other's loads.
pub(super) const CUBES_PER_MULTIPROCESSOR: usize = 4;

/// Tiles of a row below which all of them are computed by one cube.
const MIN_TILES: usize = 32;

/// The fewest tiles of a part, on average: each part is also merged.
const MIN_PART_TILES: usize = 4;

const MAX_SPLITS: usize = 64;

/// Units per cube of [`merge_parts`].
const UNITS: u32 = 64;

pub(super) fn multiprocessors(client: &Client) -> usize {
    let count = client.properties().hardware.num_streaming_multiprocessors;
    count.map_or(MULTIPROCESSORS, |count| count as usize)
}

/// The number of rows of the plan for each query tile: one, unless the query tiles are too few for
/// the GPU.
pub(super) fn num_splits(
    client: &Client,
    settings: &TiledSettings,
    program: KernelProgram,
    key: &PlanKey,
) -> usize {
    let is_merged = match program {
        KernelProgram::Softmax | KernelProgram::Additive => true,
        KernelProgram::Sigmoid | KernelProgram::Best | KernelProgram::Sampled => false,
    };
    let shape = &settings.shape;
    let multiprocessors = multiprocessors(client);
    let max_heads = client.properties().hardware.max_cube_count.1 as usize;
    let heads = shape.batch * shape.heads;
    if !is_merged || heads == 0 || 2 * heads > multiprocessors {
        return 1;
    }
    let plan = key.device_plan(shape);
    let cubes = plan.rows * heads;
    let tiles = plan.num_tiles() / plan.num_rows();
    if 2 * cubes > multiprocessors || tiles < MIN_TILES || shape.seq_q > max_heads {
        return 1;
    }
    (CUBES_PER_MULTIPROCESSOR * multiprocessors / cubes)
        .min(tiles / MIN_PART_TILES)
        .min(MAX_SPLITS)
}

/// Merges the results of the parts of each row by their sums of weights. `context` and `stats` are
/// `[batch, heads * splits, seq_q, _]`.
pub(super) fn merge_splits(
    context: &CubeTensor,
    stats: &CubeTensor,
    splits: usize,
    dtype: DType,
) -> [CubeTensor; 3] {
    let [batch, parts, seq_q, d_value] = context.meta.shape().dims();
    let heads = parts / splits;
    let result = |width, dtype| empty_like(context, [batch, heads, seq_q, width], dtype);
    let merged = result(d_value, dtype);
    let log_sum_exp = result(1, DType::F32);
    let merged_stats = result(2, DType::F32);
    // SAFETY: the kernel accesses the tensors within these sizes.
    unsafe {
        merge_parts::launch_unchecked(
            &context.client,
            cube_count([heads, seq_q, batch]),
            CubeDim::new_1d(UNITS),
            buffer(context),
            buffer(stats),
            buffer(&merged),
            buffer(&log_sum_exp),
            buffer(&merged_stats),
            splits as u32,
            d_value as u32,
            dtype_to_storage_type(dtype),
        );
    }
    [merged, log_sum_exp, merged_stats]
}

/// Each cube merges a query of a head.
#[cube(launch_unchecked)]
fn merge_parts<E: Float>(
    context: &[f32],
    stats: &[f32],
    merged: &mut [E],
    log_sum_exp: &mut [f32],
    merged_stats: &mut [f32],
    splits: u32,
    d_value: u32,
    #[define(E)] _dtype: ElemType,
) {
    let query = CUBE_POS_Y as usize;
    let seq_q = CUBE_COUNT_Y as usize;
    let head = (CUBE_POS_Z * CUBE_COUNT_X + CUBE_POS_X) as usize;
    let width = d_value as usize;
    let first = head * splits as usize * seq_q + query;
    let mut row_max = f32::cast_from(MASKED_SCORE);
    for part in 0..splits as usize {
        row_max = max(row_max, stats[2 * (first + part * seq_q)]);
    }
    let mut sum = 0.0f32;
    for part in 0..splits as usize {
        let row = first + part * seq_q;
        sum += stats[2 * row + 1] * (stats[2 * row] - row_max).exp();
    }
    let index = head * seq_q + query;
    // A fully masked row has the context zero, and any positive divisor leaves it.
    let divisor = max(sum, 0.5f32);
    if UNIT_POS == 0 {
        merged_stats[2 * index] = row_max;
        merged_stats[2 * index + 1] = sum;
        log_sum_exp[index] = row_max + divisor.ln();
    }
    let mut column = UNIT_POS as usize;
    while column < width {
        let mut total = 0.0f32;
        for part in 0..splits as usize {
            let row = first + part * seq_q;
            let weight = stats[2 * row + 1] * (stats[2 * row] - row_max).exp();
            // A part without visible keys has no context to read.
            if weight != 0.0f32 {
                total = fma(weight, context[row * width + column], total);
            }
        }
        merged[index * width + column] = E::cast_from(total / divisor);
        column += CUBE_DIM as usize;
    }
}
