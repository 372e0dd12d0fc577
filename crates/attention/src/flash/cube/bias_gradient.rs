//! The gradient of a bias, which may be broadcast over examples, heads, queries and keys.
//!
//! Each cube sums the score gradients of all examples and heads that share a tile of the bias. If the
//! bias is broadcast over queries, a cube also sums every `query_groups`-th tile of queries, and the
//! rows of its tile are rows of a partial result; keys likewise. The partial results are summed
//! afterwards.

use cubecl::prelude::*;

use super::call::{Head, KernelArgs};
use super::gradient::{GradTarget, load_rows, new_row_state, new_tile_registers, tile_gradients};
use super::layout::Layout;
use super::memory::{SharedMemory, unit_position};
use super::score::{key_tile, load_run, query_tile_of};
use super::support::COMPACT;
use crate::AttentionShape;

/// Rows or columns of a partial result, if the bias is broadcast over queries or keys.
const PARTIAL: usize = 256;

/// The layout of the kernel: that of the other gradients, if it divides partial results evenly.
pub(super) fn layout(layout: Layout) -> Layout {
    let divides = |size: usize| PARTIAL.is_multiple_of(size);
    if layout.tile().into_iter().all(divides) {
        layout
    } else {
        COMPACT
    }
}

/// The shape of the partial results for a bias of shape `dims`.
pub(super) fn partial_dims(dims: [usize; 4], shape: &AttentionShape) -> [usize; 4] {
    let [batch, heads, ..] = dims;
    let [rows, columns] = [(2, shape.seq_q), (3, shape.seq_k)].map(|(dim, seq)| {
        if is_broadcast(dims, dim, seq) {
            PARTIAL
        } else {
            seq
        }
    });
    [batch, heads, rows, columns]
}

/// Whether a bias has one element for all `seq` queries or keys.
pub(super) fn is_broadcast(dims: [usize; 4], dim: usize, seq: usize) -> bool {
    dims[dim] == 1 && seq > 1
}

/// How cubes divide the tiles of a bias.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct BiasGrid {
    /// Examples and heads that share an element of the bias.
    examples: u32,
    heads: u32,
    query_tiles: u32,
    query_groups: u32,
    key_groups: u32,
    rows: u32,
    columns: u32,
}

/// The grid of a bias of shape `dims`, and its cubes.
pub(super) fn grid(
    dims: [usize; 4],
    shape: &AttentionShape,
    layout: Layout,
) -> (BiasGridLaunch, [usize; 3]) {
    let [batch, heads, ..] = dims;
    let [rows, columns] = [2, 3].map(|dim| partial_dims(dims, shape)[dim]);
    let [tile_m, tile_n] = layout.tile();
    let (query_groups, key_groups) = (rows.div_ceil(tile_m), columns.div_ceil(tile_n));
    let grid = BiasGridLaunch::new(
        (shape.batch / batch) as u32,
        (shape.heads / heads) as u32,
        shape.seq_q.div_ceil(tile_m) as u32,
        query_groups as u32,
        key_groups as u32,
        rows as u32,
        columns as u32,
    );
    (grid, [query_groups * key_groups, heads, batch])
}

#[cube(launch_unchecked)]
pub(super) fn backward_bias<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    d_bias: &mut [f32],
    grid: BiasGrid,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let elements = comptime!(layout.unit_elements());
    let (unit_row, unit_column) = unit_position(layout);
    let query_group = CUBE_POS_X / grid.key_groups;
    let key_group = CUBE_POS_X % grid.key_groups;

    let mut memory = SharedMemory::<E>::new(layout);
    let mut registers = new_tile_registers::<E, N, M>(args);
    let mut products = Array::<f32>::new(elements);
    let mut sums = Array::<f32>::new(elements);
    let mut state = new_row_state::<E, N, M>(args);
    let target = comptime!(GradTarget::Scores);
    #[unroll]
    for i in 0..elements {
        sums[i] = 0.0f32;
    }

    for example in 0..grid.examples {
        for head in 0..grid.heads {
            let head = Head {
                example: (CUBE_POS_Z * grid.examples + example) as usize,
                head: (CUBE_POS_Y * grid.heads + head) as usize,
            };
            for query_tile in range_stepped(query_group, grid.query_tiles, grid.query_groups) {
                let query_tile = query_tile_of::<E, N, M>(args, head, query_tile as usize);
                let d_contexts = query_tile.d_contexts(d_context, call);
                load_rows::<E, N, M>(args, &query_tile, stats, deltas, &mut state, target);
                for run_index in query_tile.first_run..query_tile.end_run {
                    let run = load_run(run_index, args.plan, call);
                    // The first tile of the group in the run.
                    let skipped = max(run.first, key_group) - key_group;
                    let skipped = skipped.div_ceil(grid.key_groups) * grid.key_groups;
                    let first = key_group + skipped;
                    for tile_index in range_stepped(first, run.end, grid.key_groups) {
                        let tile = key_tile::<E, N>(&query_tile, tile_index, &run, layout);
                        tile_gradients::<E, N, M>(
                            args,
                            &query_tile,
                            &d_contexts,
                            &tile,
                            &state,
                            &mut memory,
                            &mut registers,
                            &mut products,
                            target,
                        );
                        #[unroll]
                        for i in 0..elements {
                            sums[i] += products[i];
                        }
                    }
                }
            }
        }
    }

    let columns = comptime!(layout.unit_columns());
    let first_row = query_group as usize * comptime!(layout.tile_m()) + unit_row;
    let first_column = key_group as usize * comptime!(layout.tile_n()) + unit_column * 4;
    let part = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) as usize;
    #[unroll]
    for i in 0..comptime!(layout.unit_rows) {
        let row = first_row + i * comptime!(layout.cube_side);
        #[unroll]
        for j in 0..columns {
            let column = first_column + comptime!(layout.column_offset(j));
            if row < grid.rows as usize && column < grid.columns as usize {
                let row_index = part * grid.rows as usize + row;
                d_bias[row_index * grid.columns as usize + column] = sums[i * columns + j];
            }
        }
    }
}
