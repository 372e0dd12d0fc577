//! The gradient of a bias, which may be broadcast over examples, heads, queries and keys, or be given
//! for each relative position of query and key.
//!
//! Each cube sums the score gradients of all examples and heads that share a tile of the bias. If the
//! bias is broadcast over queries, a cube also sums every `query_groups`-th tile of queries, and the
//! rows of its tile are rows of a partial result; keys likewise. The pairs of a diagonal of square
//! tiles have the same relative positions, so the partial result of a relative bias has a tile for
//! each diagonal. [`sum_partial`] sums the partial results.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, Shape, Slice};
use cubecl::prelude::*;

use super::call::{Head, KernelArgs};
use super::gradient::{GradTarget, Gradients, load_rows, new_gradients, tile_gradients};
use super::layout::Layout;
use super::memory::{SharedMemory, unit_position};
use super::score::{key_tile, load_run, query_tile_of};
use super::support::COMPACT;
use crate::flash::call::TiledSettings;
use crate::flash::portable::relative_bias::sum_diagonals;

/// Rows or columns of a partial result, if the bias is broadcast over queries or keys.
const PARTIAL: usize = 256;

/// Rows and columns of the tiles of a relative bias.
const RELATIVE_TILE: usize = 32;

/// Cubes along the first axis, which loop over the tiles.
const MAX_CUBES: usize = 1 << 15;

/// The layout of the kernel: that of the other gradients, if it divides partial results evenly.
pub(super) fn layout(layout: Layout, settings: &TiledSettings) -> Layout {
    let divides = |size: usize| PARTIAL.is_multiple_of(size);
    if !settings.has_relative_bias && layout.tile().into_iter().all(divides) {
        layout
    } else {
        COMPACT
    }
}

/// The shape of the partial results for a bias of shape `dims`.
pub(super) fn partial_dims(dims: [usize; 4], settings: &TiledSettings) -> [usize; 4] {
    let shape = &settings.shape;
    let [batch, heads, ..] = dims;
    if settings.has_relative_bias {
        return [
            batch,
            heads,
            num_diagonals(settings) * RELATIVE_TILE,
            RELATIVE_TILE,
        ];
    }
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
fn is_broadcast(dims: [usize; 4], dim: usize, seq: usize) -> bool {
    dims[dim] == 1 && seq > 1
}

/// Diagonals of the tiles of a relative bias.
fn num_diagonals(settings: &TiledSettings) -> usize {
    let [queries, keys] =
        [settings.shape.seq_q, settings.shape.seq_k].map(|seq| seq.div_ceil(RELATIVE_TILE));
    queries + keys - 1
}

/// The gradient of a bias of shape `dims` from its partial results.
pub(super) fn sum_partial(
    mut partial: FloatTensor<Cube>,
    dims: [usize; 4],
    settings: &TiledSettings,
) -> FloatTensor<Cube> {
    let shape = &settings.shape;
    if settings.has_relative_bias {
        return sum_relative(partial, dims, settings);
    }
    for (dim, seq) in [(2, shape.seq_q), (3, shape.seq_k)] {
        if is_broadcast(dims, dim, seq) {
            partial = Cube::float_sum_dim(partial, dim);
        }
    }
    partial
}

/// The gradient of a relative bias. Element `x` of the sums of diagonal `d` is element
/// `d * RELATIVE_TILE + x` of the bias, after the padding of the last queries.
fn sum_relative(
    partial: FloatTensor<Cube>,
    dims: [usize; 4],
    settings: &TiledSettings,
) -> FloatTensor<Cube> {
    let [_, heads, _, len] = dims;
    let diagonals = num_diagonals(settings);
    let tile = RELATIVE_TILE;
    let tiles = Cube::float_reshape(partial, Shape::from([heads, diagonals, tile, tile]));
    let sums = sum_diagonals::<Cube>(tiles); // [heads, diagonals, 1, 2 * tile - 1]
    let zeros = |dims: [usize; 4]| {
        let device = burn::backend::TensorMetadata::device(&sums);
        Cube::float_zeros(Shape::from(dims), &device, burn::tensor::FloatDType::F32)
    };
    let all = Slice::full();
    let columns = |range| Cube::float_slice(sums.clone(), &[all, all, all, Slice::from(range)]);
    // The second half of a diagonal's sums overlaps with the first half of the next one's.
    let block = [heads, 1, 1, tile];
    let first = Cube::float_cat(vec![columns(0..tile), zeros(block)], 1);
    let padding = zeros([heads, diagonals, 1, 1]);
    let second = Cube::float_cat(vec![columns(tile..2 * tile - 1), padding], 3);
    let second = Cube::float_cat(vec![zeros(block), second], 1);
    let sum = Cube::float_add(first, second);
    let sum = Cube::float_reshape(sum, Shape::from([1, heads, 1, (diagonals + 1) * tile]));
    let start = settings.shape.seq_q.next_multiple_of(tile) - settings.shape.seq_q;
    Cube::float_slice(sum, &[all, all, all, Slice::from(start..start + len)])
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
    #[cube(comptime)]
    is_relative: bool,
}

/// The grid of a bias of shape `dims`, and its cubes.
pub(super) fn grid(
    dims: [usize; 4],
    settings: &TiledSettings,
    layout: Layout,
) -> (BiasGridLaunch, [usize; 3]) {
    let shape = &settings.shape;
    let [batch, heads, ..] = dims;
    let [rows, columns] = [2, 3].map(|dim| partial_dims(dims, settings)[dim]);
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
        settings.has_relative_bias,
    );
    let cubes = (query_groups * key_groups).min(MAX_CUBES);
    (grid, [cubes, heads, batch])
}

#[cube(launch_unchecked)]
pub(super) fn backward_bias<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    d_bias: &mut [f32],
    grid: &BiasGrid,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let elements = comptime!(layout.unit_elements());
    let columns = comptime!(layout.unit_columns());
    let (unit_row, unit_column) = unit_position(layout);
    let part = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) as usize;

    let mut memory = SharedMemory::<E>::new(layout);
    let mut sums = Array::<f32>::new(elements);
    let mut gradients = new_gradients::<E, N, M>(args);
    let groups = grid.query_groups * grid.key_groups;
    for group in range_stepped(CUBE_POS_X, groups, CUBE_COUNT_X) {
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
                add_head::<E, N, M>(
                    args,
                    d_context,
                    stats,
                    deltas,
                    grid,
                    group,
                    head,
                    &mut memory,
                    &mut gradients,
                    &mut sums,
                );
            }
        }
        let first_row = (group / grid.key_groups) as usize * comptime!(layout.tile_m());
        let first_column = (group % grid.key_groups) as usize * comptime!(layout.tile_n());
        #[unroll]
        for i in 0..comptime!(layout.unit_rows) {
            let row = first_row + unit_row + i * comptime!(layout.cube_side);
            #[unroll]
            for j in 0..columns {
                let column = first_column + unit_column * 4 + comptime!(layout.column_offset(j));
                if row < grid.rows as usize && column < grid.columns as usize {
                    let row_index = part * grid.rows as usize + row;
                    d_bias[row_index * grid.columns as usize + column] = sums[i * columns + j];
                }
            }
        }
    }
}

/// Adds the score gradients of the tiles of a head that are in a group.
#[cube]
fn add_head<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    grid: &BiasGrid,
    group: u32,
    head: Head,
    memory: &mut SharedMemory<E>,
    gradients: &mut Gradients,
    sums: &mut Array<f32>,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let target = comptime!(GradTarget::Scores);
    let mut query_start = group / grid.key_groups;
    let mut query_step = grid.query_groups;
    let mut key_group = group % grid.key_groups;
    let mut key_step = grid.key_groups;
    if comptime!(grid.is_relative) {
        query_start = 0u32.runtime();
        query_step = 1u32.runtime();
        // More than there are tiles: at most one tile of keys for a tile of queries.
        key_step = NO_TILE.runtime();
    }
    for query_index in range_stepped(query_start, grid.query_tiles, query_step) {
        if comptime!(grid.is_relative) {
            let diagonal = group + query_index + 1u32;
            let has_tile = diagonal >= grid.query_tiles;
            key_group = select(has_tile, diagonal - grid.query_tiles, NO_TILE);
        }
        let query_tile = query_tile_of::<E, N, M>(args, head, query_index as usize);
        let d_contexts = query_tile.d_contexts(d_context, call);
        load_rows::<E, N, M>(args, &query_tile, stats, deltas, gradients);
        for run_index in query_tile.first_run..query_tile.end_run {
            let run = load_run(run_index, args.plan, call);
            // The first tile of the group in the run.
            let skipped = max(run.first, key_group) - key_group;
            let first = key_group + skipped.div_ceil(key_step) * key_step;
            for tile_index in range_stepped(first, run.end, key_step) {
                let tile = key_tile::<E, N>(&query_tile, tile_index, &run, layout);
                tile_gradients::<E, N, M>(
                    args,
                    &query_tile,
                    &d_contexts,
                    &tile,
                    memory,
                    gradients,
                    target,
                );
                #[unroll]
                for i in 0..comptime!(layout.unit_elements()) {
                    sums[i] += gradients.products[i];
                }
            }
        }
    }
}

/// Above the index of every tile, also if it is doubled.
const NO_TILE: u32 = 1 << 30;
