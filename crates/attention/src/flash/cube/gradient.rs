//! The score gradients of a tile whose rows are queries.

use cubecl::prelude::*;

use super::additive::tile_products;
use super::call::KernelArgs;
use super::memory::{Matrix, SharedMemory, unit_position};
use super::program::{inverse_temperature, probability, score_gradient, stats_width};
use super::random::{dropout_factor, load_dropout_keys};
use super::score::{
    QueryTile, Tile, finish_scores, inverse_sum, write_softcap_grads, zero_if_masked,
};
use super::tile::matmul_nt;

/// What [`tile_gradients`] computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum GradTarget {
    /// The gradients of the scores, to which a bias is added.
    Scores,
    /// The gradients of the dot products, without the scale.
    DotProducts,
}

/// The registers of a unit: the saved statistics of its rows, the keys of their dropout, and its
/// elements of a tile.
#[derive(CubeType)]
pub(super) struct Gradients {
    max: Array<f32>,
    inverse: Array<f32>,
    delta: Array<f32>,
    low: Array<u32>,
    high: Array<u32>,
    inverse_temperature: f32,
    weights: Array<f32>,
    softcap_grads: Array<f32>,
    /// The results of [`tile_gradients`].
    pub(super) products: Array<f32>,
}

#[cube]
pub(super) fn new_gradients<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
) -> Gradients {
    let rows = comptime!(args.layout.unit_rows);
    let elements = comptime!(args.layout.unit_elements());
    Gradients {
        max: Array::<f32>::new(rows),
        inverse: Array::<f32>::new(rows),
        delta: Array::<f32>::new(rows),
        low: Array::<u32>::new(rows),
        high: Array::<u32>::new(rows),
        inverse_temperature: inverse_temperature(args),
        weights: Array::<f32>::new(elements),
        softcap_grads: Array::<f32>::new(elements),
        products: Array::<f32>::new(elements),
    }
}

/// Loads the statistics of the rows of a query tile.
#[cube]
pub(super) fn load_rows<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    query_tile: &QueryTile<'_, E, N>,
    stats: &[f32],
    deltas: &[f32],
    state: &mut Gradients,
) {
    let layout = comptime!(args.layout);
    let program = comptime!(args.program);
    let call = &args.call;
    let cube_side = comptime!(layout.cube_side);
    let width = stats_width(call, program);
    let (unit_row, _) = unit_position(layout);
    let seq_q = call.seq_q as usize;
    #[unroll]
    for i in 0..comptime!(layout.unit_rows) {
        let row = query_tile.first + unit_row + i * cube_side;
        state.max[i] = 0.0f32;
        state.inverse[i] = 0.0f32;
        state.delta[i] = 0.0f32;
        if row < seq_q {
            let index = query_tile.head_index * seq_q + row;
            state.max[i] = stats[width * index];
            state.inverse[i] = inverse_sum(stats[width * index + 1]);
            state.delta[i] = deltas[index];
        }
    }
    load_dropout_keys::<E, N, M>(args, query_tile, &mut state.low, &mut state.high);
}

/// [`Gradients`] with the statistics of a query tile.
#[cube]
pub(super) fn load_gradients<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    query_tile: &QueryTile<'_, E, N>,
    stats: &[f32],
    deltas: &[f32],
) -> Gradients {
    let mut state = new_gradients::<E, N, M>(args);
    load_rows::<E, N, M>(args, query_tile, stats, deltas, &mut state);
    state
}

/// Writes each unit's elements of a tile's gradients to [`Gradients::products`].
#[cube]
pub(super) fn tile_gradients<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    query_tile: &QueryTile<'_, E, N>,
    d_contexts: &Matrix<'_, E, N>,
    tile: &Tile,
    memory: &mut SharedMemory<E>,
    state: &mut Gradients,
    #[comptime] target: GradTarget,
) {
    let layout = comptime!(args.layout);
    let is_plain = comptime!(args.is_plain);
    let program = comptime!(args.program);
    let call = &args.call;
    let rows = comptime!(layout.unit_rows);
    let columns = comptime!(layout.unit_columns());
    let has_softcap_grads = comptime!(!is_plain && target == GradTarget::DotProducts);
    let (_, unit_column) = unit_position(layout);
    let keys = query_tile.keys.at(tile.key);
    let values = query_tile.values.at(tile.key);
    let head = query_tile.head.head;
    tile_products::<E, N, M>(
        args,
        head,
        &query_tile.queries,
        &keys,
        memory,
        &mut state.products,
    );
    if has_softcap_grads {
        write_softcap_grads(
            &mut state.products,
            &mut state.softcap_grads,
            call,
            is_plain,
            layout,
        );
    }
    finish_scores::<E, N, M>(args, tile, &mut state.products, memory);
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..columns {
            state.weights[i * columns + j] = probability(
                state.products[i * columns + j],
                state.max[i],
                state.inverse[i],
                state.inverse_temperature,
                program,
            );
        }
    }
    matmul_nt::<E, N>(d_contexts, &values, memory, &mut state.products);
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for j in 0..columns {
            let weight = state.weights[i * columns + j];
            let mut d_weight = state.products[i * columns + j];
            if !is_plain {
                if call.dropout_threshold > 0u32 {
                    let key_in = unit_column * 4 + comptime!(layout.column_offset(j));
                    let key = tile.key + key_in;
                    d_weight *= dropout_factor(state.low[i], state.high[i], key, call);
                }
            }
            let mut gradient = score_gradient(
                weight,
                d_weight,
                state.delta[i],
                state.inverse_temperature,
                program,
            );
            if has_softcap_grads {
                if call.softcap > 0.0f32 {
                    gradient *= state.softcap_grads[i * columns + j];
                }
            }
            state.products[i * columns + j] = zero_if_masked(gradient, weight);
        }
    }
}
