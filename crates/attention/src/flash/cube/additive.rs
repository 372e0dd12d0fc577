//! Additive attention: MLP scores and their gradients.

use cubecl::prelude::*;

use super::call::KernelArgs;
use super::gradient::{GradTarget, load_gradients, tile_gradients};
use super::layout::Layout;
use super::memory::{
    Matrix, Rows, SharedMemory, Vec4, contiguous_rows, load_vec4, tile_row_offset, unit_position,
    zero_sums,
};
use super::program::KernelProgram;
use super::score::{key_tile, load_query_tile, load_run};
use super::tile::{additive_nt, matmul_nt, store_sums, store_weights};

/// `tanh`, with an absolute error of a few 1e-8. Shading languages guarantee less.
#[cube]
pub(super) fn tanh(x: f32) -> f32 {
    1.0f32 - 2.0f32 / ((2.0f32 * x).exp() + 1.0f32)
}

/// The vector of a head, as a matrix with one row.
#[cube]
pub(super) fn vector_of<'a, E: Float, N: Size, M: Numeric>(
    args: &'a KernelArgs<E, N, M>,
    head: usize,
) -> Matrix<'a, E, N> {
    let width = args.call.d_head as usize;
    let rows = Rows {
        start: head * width,
        stride: width,
        count: 1usize,
        width,
    };
    Matrix::new(args.parameter, rows)
}

/// The dot products of the rows of a tile, or the MLP scores of [`KernelProgram::Additive`], without
/// the scale.
#[cube]
pub(super) fn tile_products<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    head: usize,
    left: &Matrix<'_, E, N>,
    right: &Matrix<'_, E, N>,
    memory: &mut SharedMemory<E>,
    products: &mut Array<f32>,
) {
    if comptime!(args.program == KernelProgram::Additive) {
        let vector = vector_of::<E, N, M>(args, head);
        additive_nt::<E, N>(left, right, &vector, memory, products);
    } else {
        matmul_nt::<E, N>(left, right, memory, products);
    }
}

/// The gradients of MLP scores, for the rows of a unit: `Σ_j d_score_ij · vector · tanh'(left_i + right_j)`
/// and, for the vector, `Σ_j d_score_ij · tanh(left_i + right_j)`.
#[derive(CubeType)]
pub(super) struct AdditiveSums {
    pub(super) rows: Array<Vec4>,
    pub(super) vector: Array<Vec4>,
}

/// Adds the gradients of a tile, with the score gradients of [`store_weights`].
///
/// A masked pair contributes nothing, even if its elements are not finite.
#[cube]
pub(super) fn add_additive<E: Float, N: Size>(
    left: &Matrix<'_, E, N>,
    right: &Matrix<'_, E, N>,
    vector: &Matrix<'_, E, N>,
    memory: &mut SharedMemory<E>,
    sums: &mut AdditiveSums,
    #[comptime] blocks: usize,
    #[comptime] has_vector_grad: bool,
) {
    let layout = comptime!(memory.layout);
    let cube_side = comptime!(layout.cube_side);
    let unit_rows = comptime!(layout.unit_rows);
    let unit_vec4s = comptime!(layout.unit_vec4s);
    let staged_rows = comptime!(layout.staged_rows());
    let tile_vec4s = comptime!(layout.cube_side * layout.unit_vec4s);
    let staged = comptime!(layout.staged_rows() * layout.unit_vec4s / layout.cube_side);
    let unit = UNIT_POS as usize;
    let (unit_row, unit_column) = unit_position(layout);
    #[unroll]
    for block in 0..blocks {
        for part in 0..comptime!(layout.tile_n() / layout.staged_rows()) {
            // The score gradients are stored, and the previous part has been read.
            sync_cube();
            for step in 0..staged {
                let index = unit + step * comptime!(layout.units());
                let row = part * staged_rows + index / tile_vec4s;
                let vec4 = block * tile_vec4s + index % tile_vec4s;
                memory.full[index] = Vec4::cast_from(load_vec4::<E, N>(right, row, vec4));
            }
            sync_cube();
            #[unroll]
            for c in 0..unit_vec4s {
                let column = c * cube_side + unit_column;
                let vec4 = block * tile_vec4s + column;
                let factors = Vec4::cast_from(load_vec4::<E, N>(vector, 0usize, vec4));
                #[unroll]
                for i in 0..unit_rows {
                    let row = unit_row + i * cube_side;
                    let own = Vec4::cast_from(load_vec4::<E, N>(left, row, vec4));
                    let weights_offset =
                        tile_row_offset(row, layout) + part * comptime!(layout.staged_rows() / 4);
                    let index = (i * blocks + block) * unit_vec4s + c;
                    let mut row_sum = sums.rows[index];
                    let mut vector_sum = Vec4::new(0.0f32);
                    for four in 0..comptime!(layout.staged_rows() / 4) {
                        let d_scores = memory.full[weights_offset + four];
                        #[unroll]
                        for j in 0..4usize {
                            let d_score = d_scores.extract(j);
                            let other = memory.full[(four * 4 + j) * tile_vec4s + column];
                            #[unroll]
                            for k in 0..4usize {
                                let hidden = tanh(own.extract(k) + other.extract(k));
                                let d_hidden =
                                    d_score * factors.extract(k) * (1.0f32 - hidden * hidden);
                                let is_masked = d_score == 0.0f32;
                                let d_hidden = select(is_masked, 0.0f32, d_hidden);
                                row_sum.insert(k, row_sum.extract(k) + d_hidden);
                                if has_vector_grad {
                                    let d_vector = select(is_masked, 0.0f32, d_score * hidden);
                                    vector_sum.insert(k, vector_sum.extract(k) + d_vector);
                                }
                            }
                        }
                    }
                    sums.rows[index] = row_sum;
                    if has_vector_grad {
                        sums.vector[index] += vector_sum;
                    }
                }
            }
        }
    }
}

/// The gradient of a query tile, and the terms of each query in the gradient of the vector. Each
/// cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(super) fn backward_queries_additive<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    d_query: &mut [Vector<E, N>],
    d_vector: &mut [Vector<E, N>],
    #[comptime] blocks: usize,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let query_tile = load_query_tile::<E, N, M>(args);
    let d_contexts = query_tile.d_contexts(d_context, call);
    let vector = vector_of::<E, N, M>(args, query_tile.head.head);

    let mut memory = SharedMemory::<E>::new(layout);
    let mut sums = new_additive_sums(layout, blocks, true);
    let mut gradients = load_gradients::<E, N, M>(args, &query_tile, stats, deltas);

    for run_index in query_tile.first_run..query_tile.end_run {
        let run = load_run(run_index, args.plan, call);
        for tile_index in run.first..run.end {
            let tile = key_tile::<E, N>(&query_tile, tile_index, &run, layout);
            tile_gradients::<E, N, M>(
                args,
                &query_tile,
                &d_contexts,
                &tile,
                &mut memory,
                &mut gradients,
                GradTarget::DotProducts,
            );
            let queries = &query_tile.queries;
            let keys = query_tile.keys.at(tile.key);
            store_weights::<E>(&mut gradients.products, &mut memory);
            add_additive::<E, N>(
                queries,
                &keys,
                &vector,
                &mut memory,
                &mut sums,
                blocks,
                true,
            );
        }
    }

    let scale = Vec4::new(call.scale);
    #[unroll]
    for i in 0..comptime!(layout.unit_rows * blocks * layout.unit_vec4s) {
        sums.rows[i] *= scale;
        sums.vector[i] *= scale;
    }
    let rows = contiguous_rows(query_tile.head_index, call.seq_q, call.d_head);
    store_sums::<E, N>(d_query, &rows, query_tile.first, &sums.rows, blocks, layout);
    store_sums::<E, N>(
        d_vector,
        &rows,
        query_tile.first,
        &sums.vector,
        blocks,
        layout,
    );
}

/// Sums of zero, of a vector only if its gradient is computed.
#[cube]
pub(super) fn new_additive_sums(
    #[comptime] layout: Layout,
    #[comptime] blocks: usize,
    #[comptime] has_vector_grad: bool,
) -> AdditiveSums {
    let len = comptime!(layout.unit_rows * blocks * layout.unit_vec4s);
    AdditiveSums {
        rows: zero_sums(len),
        vector: zero_sums(comptime!(if has_vector_grad { len } else { 1 })),
    }
}
