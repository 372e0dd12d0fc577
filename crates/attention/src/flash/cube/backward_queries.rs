//! The gradient of a query tile.

use cubecl::prelude::*;

use super::call::KernelArgs;
use super::gradient::{GradTarget, load_gradients, tile_gradients};
use super::memory::{SharedMemory, Vec4, contiguous_rows, zero_sums};
use super::score::{key_tile, load_query_tile, load_run, may_mask};
use super::tile::{add_weighted, store_sums, store_weights};

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(super) fn backward_queries<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    d_query: &mut [Vector<E, N>],
    #[comptime] blocks: usize,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let is_plain = comptime!(args.is_plain);
    let call = &args.call;
    let sums_len = comptime!(layout.unit_rows * blocks * layout.unit_vec4s);
    let query_tile = load_query_tile::<E, N, M>(args);
    let d_contexts = query_tile.d_contexts(d_context, call);

    let mut memory = SharedMemory::<E>::new(layout);
    let mut sums = zero_sums(sums_len);
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
            store_weights::<E>(&mut gradients.products, &mut memory);
            let keys = query_tile.keys.at(tile.key);
            let is_masked = may_mask(&tile, call, is_plain);
            add_weighted::<E, N>(&keys, &mut memory, &mut sums, is_masked, blocks);
        }
    }

    // Scaled once, after the accumulation, and not before rounding to half precision.
    #[unroll]
    for i in 0..sums_len {
        sums[i] *= Vec4::new(call.scale);
    }
    let d_queries = contiguous_rows(query_tile.head_index, call.seq_q, call.d_head);
    store_sums::<E, N>(d_query, &d_queries, query_tile.first, &sums, blocks, layout);
}
