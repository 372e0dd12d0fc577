//! The forward pass: context, log-sum-exp and softmax statistics of a query tile.

use cubecl::ir::types::matrix::MatrixIdent;
use cubecl::prelude::*;

use super::fragment::Fragment;
use super::layout::{VECTOR, row_stride};
use super::rows::{
    CooperativeArgs, Words, add_products, add_weighted, fetch_rows, fetched_len, head_rows,
    load_row_operands, new_weights, note_non_finite, put_rows, remove_non_finite, zero_sums,
};
use super::stage::{Stage, is_visible, lane_column, lane_row, row_max, row_sum};
use crate::flash::call::MASKED_SCORE;
use crate::flash::cube::device_plan::RowAxis;
use crate::flash::cube::layout::FRAGMENT;
use crate::flash::cube::score::load_run;

/// The sum of a row's weights of a tile above which its reference is computed again. The
/// largest number in `f16` is 65,504.
const MAX_TILE_SUM: f32 = 1024.0;

/// The softmax of the rows of a lane, one in each fragment, and the sums of a plane.
#[derive(CubeType)]
struct Softmax {
    /// The maximum of the dot products of each row when it was last computed.
    reference: Array<f32>,
    /// The sum of the weights of each row, and of those of the current tile.
    sums: Array<f32>,
    tile_sums: Array<f32>,
    /// The sum of the weights of non-finite values.
    added: Array<f32>,
    /// The negative reference in all columns, to which dot products are added.
    offsets: Sequence<Fragment>,
    /// The weights of the current tile.
    weights: Sequence<Fragment>,
    contexts: Sequence<Fragment>,
}

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(in crate::flash::cube) fn forward<E: Float>(
    args: &CooperativeArgs,
    context: &mut [Words],
    log_sum_exp: &mut [f32],
    stats: &mut [f32],
    #[define(E)] _dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    let d_head = comptime!(layout.d_head);
    let d_value = comptime!(layout.d_value);
    let value_offset = comptime!(layout.value_offset());
    // In descending order: with a causal mask the last queries have the most keys.
    let tile_row = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let example = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let kv_head = head / call.group as usize;
    let head_index = example * call.heads as usize + head;
    let first = tile_row * comptime!(layout.tile_m());
    let queries = head_rows(&call.query, example, head, call.seq_q);
    let keys = head_rows(&call.key, example, kv_head, call.seq_k);
    let values = head_rows(&call.value, example, kv_head, call.seq_k);

    let mut tiles = Shared::<[Words]>::new_aligned_slice(comptime!(layout.tiles_len()), 16usize);
    let mut removed = Shared::<[f32]>::new_slice(columns);
    let mut stage = Stage::new(comptime!(layout.planes));
    let operands = load_row_operands::<E>(args.query, &queries, first, &mut tiles, d_head, layout);
    let mut softmax = Softmax {
        reference: Array::<f32>::new(fragments),
        sums: Array::<f32>::new(fragments),
        tile_sums: Array::<f32>::new(fragments),
        added: Array::<f32>::new(fragments),
        offsets: zero_sums(fragments),
        weights: new_weights::<E>(comptime!(layout.steps() * layout.fragments)),
        contexts: zero_sums(comptime!(layout.fragments * layout.d_value / FRAGMENT)),
    };
    #[unroll]
    for i in 0..fragments {
        softmax.reference[i] = 0.0f32;
        softmax.sums[i] = 0.0f32;
        softmax.tile_sums[i] = 0.0f32;
        softmax.added[i] = 0.0f32;
    }

    let index = example * call.plan_example as usize + tile_row;
    let end_run = args.plan[index + 1];
    let mut run_index = args.plan[index];
    let mut tile = 0u32;
    let mut end_tile = 0u32;
    let mut bitmap = 0usize;
    let mut key_words = Array::<Words>::new(comptime!(fetched_len(columns, d_head, layout)));
    let mut value_words = Array::<Words>::new(comptime!(fetched_len(columns, d_value, layout)));
    if run_index < end_run {
        let run = load_run(run_index, args.plan, call);
        tile = run.first;
        end_tile = run.end;
        bitmap = run.bitmap;
        let key = tile as usize * columns;
        fetch_rows(
            args.key,
            &keys,
            key,
            &mut key_words,
            columns,
            d_head,
            layout,
        );
        fetch_rows(
            args.value,
            &values,
            key,
            &mut value_words,
            columns,
            d_value,
            layout,
        );
    }
    while run_index < end_run {
        // All planes have read the previous tile.
        sync_cube();
        if bitmap > 0 {
            if (UNIT_POS as usize) < columns {
                removed[UNIT_POS as usize] = 0.0f32;
            }
            sync_cube();
            note_non_finite(&value_words, &mut removed, d_value, layout);
        }
        put_rows(&key_words, &mut tiles, 0usize, columns, d_head, layout);
        put_rows(
            &value_words,
            &mut tiles,
            value_offset,
            columns,
            d_value,
            layout,
        );
        sync_cube();

        let mut next_run = run_index;
        let mut next_tile = tile + 1u32;
        let mut next_end = end_tile;
        let mut next_bitmap = bitmap;
        if next_tile == end_tile {
            next_run += 1u32;
            if next_run < end_run {
                let run = load_run(next_run, args.plan, call);
                next_tile = run.first;
                next_end = run.end;
                next_bitmap = run.bitmap;
            }
        }
        if next_run < end_run {
            let key = next_tile as usize * columns;
            fetch_rows(
                args.key,
                &keys,
                key,
                &mut key_words,
                columns,
                d_head,
                layout,
            );
            fetch_rows(
                args.value,
                &values,
                key,
                &mut value_words,
                columns,
                d_value,
                layout,
            );
        }

        let mut is_exact = bitmap > 0;
        if bitmap == 0 {
            is_exact = write_weights::<E>(&mut softmax, &operands, &tiles, &mut stage, args);
        }
        if is_exact {
            write_exact_weights::<E>(
                &mut softmax,
                &operands,
                &tiles,
                &removed,
                &mut stage,
                bitmap,
                args,
            );
        }
        #[unroll]
        for i in 0..fragments {
            softmax.sums[i] += softmax.tile_sums[i];
        }
        if bitmap > 0 {
            sync_cube();
            remove_non_finite(&mut tiles, value_offset, d_value, layout);
            sync_cube();
        }
        add_weighted::<E>(
            &softmax.contexts,
            &softmax.weights,
            &tiles,
            value_offset,
            d_value,
            layout,
        );
        run_index = next_run;
        tile = next_tile;
        end_tile = next_end;
        bitmap = next_bitmap;
    }

    let seq_q = call.seq_q as usize;
    let plane_row = first + PLANE_POS as usize * comptime!(layout.plane_rows());
    let mut inverse_sums = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        let row = plane_row + comptime!(i * FRAGMENT) + lane_row();
        let sum = softmax.sums[i];
        let scaled = softmax.reference[i] * call.scale;
        let row_max = select(sum == 0.0f32, MASKED_SCORE, scaled);
        // For a fully masked row the context is zero, and any positive divisor leaves it.
        let divisor = select(sum == 0.0f32, 1.0f32, sum);
        let index = head_index * seq_q + row;
        if lane_column() == 0 && row < seq_q {
            stats[2 * index] = row_max;
            stats[2 * index + 1] = sum;
            log_sum_exp[index] = row_max + divisor.ln();
        }
        inverse_sums[i] = 1.0f32 / divisor;
        softmax.added[i] = row_sum(softmax.added[i]);
    }
    stage.store_rows::<E>(
        context,
        &softmax.contexts,
        &inverse_sums,
        &softmax.added,
        head_index * seq_q,
        plane_row,
        seq_q,
        d_value,
        layout,
    );
}

/// Computes the weights of a tile without masks. Returns whether the plane must compute them
/// [exactly](write_exact_weights), because a row has no reference or too small a one.
#[cube]
fn write_weights<E: Float>(
    softmax: &mut Softmax,
    operands: &Sequence<Fragment>,
    tiles: &Shared<[Words]>,
    stage: &mut Stage,
    args: &CooperativeArgs,
) -> bool {
    let layout = comptime!(args.layout);
    let fragments = comptime!(layout.fragments);
    let d_head = comptime!(layout.d_head);
    let stride = comptime!(row_stride(layout.d_head));
    let totals = zero_sums(fragments);
    let ones = Fragment::new::<E>(MatrixIdent::B, E::from_int(1));
    #[unroll]
    for step in 0..comptime!(layout.steps()) {
        let scores = zero_sums(fragments);
        #[unroll]
        for i in 0..fragments {
            scores.index(i).assign(softmax.offsets.index(i));
        }
        let offset = comptime!(step * FRAGMENT * stride);
        add_products::<E>(&scores, operands, tiles, offset, d_head, layout);
        #[unroll]
        for i in 0..fragments {
            let weights = softmax.weights.index(comptime!(step * fragments + i));
            scores.index(i).exponentiate(args.call.scale);
            weights.convert::<E>(scores.index(i));
            totals.index(i).multiply_add(weights, &ones);
        }
    }
    let mut is_exact = false;
    #[unroll]
    for i in 0..fragments {
        let total = stage.read_row(totals.index(i));
        softmax.tile_sums[i] = total;
        is_exact = is_exact || softmax.sums[i] == 0.0f32 || total > MAX_TILE_SUM;
    }
    plane_any(is_exact)
}

/// Computes the weights of a tile with the masks of a bitmap, if there is one, relative to the
/// maximum of each row.
#[cube]
fn write_exact_weights<E: Float>(
    softmax: &mut Softmax,
    operands: &Sequence<Fragment>,
    tiles: &Shared<[Words]>,
    removed: &Shared<[f32]>,
    stage: &mut Stage,
    bitmap: usize,
    args: &CooperativeArgs,
) {
    let layout = comptime!(args.layout);
    let fragments = comptime!(layout.fragments);
    let d_head = comptime!(layout.d_head);
    let stride = comptime!(row_stride(layout.d_head));
    let scale = args.call.scale;
    let mut elements = Array::<f32>::new(VECTOR);
    // The maximum relative to the reference, which does not become smaller.
    let mut shifts = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        shifts[i] = select(softmax.sums[i] == 0.0f32, MASKED_SCORE, 0.0f32);
        softmax.tile_sums[i] = 0.0f32;
    }
    #[unroll]
    for step in 0..comptime!(layout.steps()) {
        let scores = zero_sums(fragments);
        #[unroll]
        for i in 0..fragments {
            scores.index(i).assign(softmax.offsets.index(i));
        }
        let offset = comptime!(step * FRAGMENT * stride);
        add_products::<E>(&scores, operands, tiles, offset, d_head, layout);
        #[unroll]
        for i in 0..fragments {
            stage.read(scores.index(i), &mut elements);
            mask(&mut elements, bitmap, args, i, step);
            let mut shift = shifts[i];
            #[unroll]
            for j in 0..VECTOR {
                shift = max(shift, elements[j]);
            }
            shifts[i] = shift;
        }
    }
    let mut is_shifted = false;
    let mut factors = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        let shift = row_max(shifts[i]);
        // A row without keys has no reference.
        let shift = select(shift <= MASKED_SCORE, 0.0f32, shift);
        is_shifted = is_shifted || shift != 0.0f32;
        factors[i] = (-shift * scale).exp();
        // The sum is zero, and the factor may be infinite.
        factors[i] = select(softmax.sums[i] == 0.0f32, 1.0f32, factors[i]);
        softmax.sums[i] *= factors[i];
        softmax.reference[i] += shift;
    }
    if plane_any(is_shifted) {
        #[unroll]
        for i in 0..fragments {
            stage.write_row(-softmax.reference[i], softmax.offsets.index(i));
            #[unroll]
            for column in 0..comptime!(layout.d_value / FRAGMENT) {
                let sums = softmax.contexts.index(comptime!(column * fragments + i));
                stage.read(sums, &mut elements);
                #[unroll]
                for j in 0..VECTOR {
                    elements[j] *= factors[i];
                }
                stage.write(&elements, sums);
            }
        }
    }
    #[unroll]
    for step in 0..comptime!(layout.steps()) {
        let scores = zero_sums(fragments);
        #[unroll]
        for i in 0..fragments {
            scores.index(i).assign(softmax.offsets.index(i));
        }
        let offset = comptime!(step * FRAGMENT * stride);
        add_products::<E>(&scores, operands, tiles, offset, d_head, layout);
        #[unroll]
        for i in 0..fragments {
            stage.read(scores.index(i), &mut elements);
            mask(&mut elements, bitmap, args, i, step);
            #[unroll]
            for j in 0..VECTOR {
                let score = elements[j];
                let power = (score * scale).exp();
                let weight = select(score <= MASKED_SCORE, 0.0f32, power);
                elements[j] = weight;
                softmax.tile_sums[i] += weight;
                if bitmap > 0 {
                    let element = removed[comptime!(step * FRAGMENT) + lane_column() + j];
                    if element != 0.0f32 && weight != 0.0f32 {
                        softmax.added[i] += weight * element;
                    }
                }
            }
            let weights = softmax.weights.index(comptime!(step * fragments + i));
            stage.write_left::<E>(&elements, weights);
        }
    }
    #[unroll]
    for i in 0..fragments {
        softmax.tile_sums[i] = row_sum(softmax.tile_sums[i]);
    }
}

/// Masks a lane's elements of a fragment of rows and a step of columns.
#[cube]
fn mask(
    elements: &mut Array<f32>,
    bitmap: usize,
    args: &CooperativeArgs,
    #[comptime] fragment: usize,
    #[comptime] step: usize,
) {
    let layout = comptime!(args.layout);
    if bitmap > 0 {
        let row = PLANE_POS as usize * comptime!(layout.plane_rows())
            + comptime!(fragment * FRAGMENT)
            + lane_row();
        #[unroll]
        for i in 0..VECTOR {
            let column = comptime!(step * FRAGMENT) + lane_column() + i;
            let is_visible = is_visible(
                args.plan,
                &args.call,
                bitmap,
                row,
                column,
                RowAxis::Queries,
                layout,
            );
            elements[i] = select(is_visible, elements[i], MASKED_SCORE);
        }
    }
}
