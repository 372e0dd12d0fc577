//! The weights of a tile in the forward pass.

use cubecl::ir::types::matrix::MatrixIdent;
use cubecl::prelude::*;

use super::fragment::Fragment;
use super::layout::{CooperativeLayout, VECTOR};
use super::products::{add_products, zero_sums};
use super::rows::{CooperativeArgs, Words};
use super::stage::{Stage, is_visible, lane_column, lane_row, row_max, row_sum};
use crate::flash::call::MASKED_SCORE;
use crate::flash::cube::device_plan::RowAxis;
use crate::flash::cube::layout::FRAGMENT;

/// The sum of a row's weights of a tile above which its reference is computed again. The
/// largest number in `f16` is 65,504.
const MAX_TILE_SUM: f32 = 1024.0;

/// The exponent of a weight in `f32` above which the reference of its row is computed again.
const MAX_EXPONENT: f32 = 6.0;

/// The softmax of the rows of a lane, one in each fragment, and the sums of a plane.
#[derive(CubeType)]
pub(super) struct Softmax {
    /// The maximum of the dot products of each row when it was last computed.
    pub(super) reference: Array<f32>,
    /// The sum of the weights of each row, and of those of the current tile.
    pub(super) sums: Array<f32>,
    pub(super) tile_sums: Array<f32>,
    /// The sum of the weights of non-finite values.
    pub(super) added: Array<f32>,
    /// The negative reference in all columns, to which dot products are added.
    pub(super) offsets: Sequence<Fragment>,
    /// The weights of the current tile.
    pub(super) weights: Sequence<Fragment>,
    pub(super) contexts: Sequence<Fragment>,
}

/// Computes the weights of a tile without masks. Returns whether the plane must compute them
/// [exactly](write_exact_weights), because a row has no reference or too small a one.
#[cube]
pub(super) fn write_weights<E: Float>(
    softmax: &mut Softmax,
    operands: &Sequence<Fragment>,
    tiles: &Shared<[Words]>,
    stage: &mut Stage,
    args: &CooperativeArgs,
) -> bool {
    let layout = comptime!(args.layout);
    let fragments = comptime!(layout.fragments);
    let d_head = comptime!(layout.d_head);
    let stride = comptime!(layout.row_stride(layout.d_head));
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
        add_products::<E>(
            &scores,
            operands,
            tiles,
            offset,
            d_head,
            RowAxis::Queries,
            layout,
        );
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
pub(super) fn write_exact_weights<E: Float>(
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
    let stride = comptime!(layout.row_stride(layout.d_head));
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
        add_products::<E>(
            &scores,
            operands,
            tiles,
            offset,
            d_head,
            RowAxis::Queries,
            layout,
        );
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
        }
        rescale(softmax, &factors, stage, layout);
    }
    #[unroll]
    for step in 0..comptime!(layout.steps()) {
        let scores = zero_sums(fragments);
        #[unroll]
        for i in 0..fragments {
            scores.index(i).assign(softmax.offsets.index(i));
        }
        let offset = comptime!(step * FRAGMENT * stride);
        add_products::<E>(
            &scores,
            operands,
            tiles,
            offset,
            d_head,
            RowAxis::Queries,
            layout,
        );
        #[unroll]
        for i in 0..fragments {
            stage.read(scores.index(i), &mut elements);
            mask(&mut elements, bitmap, args, i, step);
            store_weights::<E>(
                softmax,
                &mut elements,
                removed,
                stage,
                bitmap,
                args,
                i,
                step,
            );
        }
    }
    #[unroll]
    for i in 0..fragments {
        softmax.tile_sums[i] = row_sum(softmax.tile_sums[i]);
    }
}

/// Computes the weights of a tile in `f32`, with the masks of a bitmap, if there is one. The scores go
/// through shared memory anyway, because the weights are split into parts.
#[cube]
pub(super) fn write_split_weights<E: Float>(
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
    let stride = comptime!(layout.row_stride(layout.d_head));
    let scale = args.call.scale;
    let len = comptime!(layout.steps() * layout.fragments * VECTOR);
    let mut scores = Array::<f32>::new(len);
    let mut elements = Array::<f32>::new(VECTOR);
    let mut maxima = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        maxima[i] = MASKED_SCORE;
        softmax.tile_sums[i] = 0.0f32;
    }
    #[unroll]
    for step in 0..comptime!(layout.steps()) {
        let products = zero_sums(fragments);
        let offset = comptime!(step * FRAGMENT * stride);
        add_products::<E>(
            &products,
            operands,
            tiles,
            offset,
            d_head,
            RowAxis::Queries,
            layout,
        );
        #[unroll]
        for i in 0..fragments {
            stage.read(products.index(i), &mut elements);
            mask(&mut elements, bitmap, args, i, step);
            let mut maximum = maxima[i];
            #[unroll]
            for j in 0..VECTOR {
                maximum = max(maximum, elements[j]);
                scores[comptime!((step * fragments + i) * VECTOR + j)] = elements[j];
            }
            maxima[i] = maximum;
        }
    }
    let mut is_changed = false;
    let mut factors = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        let maximum = row_max(maxima[i]);
        let is_first = softmax.sums[i] == 0.0f32;
        let is_exceeded = (maximum - softmax.reference[i]) * scale > MAX_EXPONENT;
        let is_new = maximum > MASKED_SCORE && (is_first || is_exceeded);
        let reference = select(is_new, maximum, softmax.reference[i]);
        let factor = ((softmax.reference[i] - reference) * scale).exp();
        // The sum is zero, and the factor may be infinite.
        factors[i] = select(is_first, 1.0f32, factor);
        softmax.sums[i] *= factors[i];
        softmax.reference[i] = reference;
        is_changed = is_changed || (is_new && !is_first);
    }
    if plane_any(is_changed) {
        rescale(softmax, &factors, stage, layout);
    }
    #[unroll]
    for step in 0..comptime!(layout.steps()) {
        #[unroll]
        for i in 0..fragments {
            #[unroll]
            for j in 0..VECTOR {
                let score = scores[comptime!((step * fragments + i) * VECTOR + j)];
                let shifted = score - softmax.reference[i];
                elements[j] = select(score <= MASKED_SCORE, MASKED_SCORE, shifted);
            }
            store_weights::<E>(
                softmax,
                &mut elements,
                removed,
                stage,
                bitmap,
                args,
                i,
                step,
            );
        }
    }
    #[unroll]
    for i in 0..fragments {
        softmax.tile_sums[i] = row_sum(softmax.tile_sums[i]);
    }
}

/// Multiplies the contexts of each row by a factor.
#[cube]
fn rescale(
    softmax: &mut Softmax,
    factors: &Array<f32>,
    stage: &mut Stage,
    #[comptime] layout: CooperativeLayout,
) {
    let fragments = comptime!(layout.fragments);
    let mut elements = Array::<f32>::new(VECTOR);
    #[unroll]
    for i in 0..fragments {
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

/// Stores the weights of a lane's elements, dot products relative to the reference, as left operands, and
/// adds them to the sums.
#[cube]
fn store_weights<E: Float>(
    softmax: &mut Softmax,
    elements: &mut Array<f32>,
    removed: &Shared<[f32]>,
    stage: &mut Stage,
    bitmap: usize,
    args: &CooperativeArgs,
    #[comptime] fragment: usize,
    #[comptime] step: usize,
) {
    let layout = comptime!(args.layout);
    #[unroll]
    for j in 0..VECTOR {
        let score = elements[j];
        let power = (score * args.call.scale).exp();
        let weight = select(score <= MASKED_SCORE, 0.0f32, power);
        elements[j] = weight;
        softmax.tile_sums[fragment] += weight;
        if bitmap > 0 {
            let element = removed[comptime!(step * FRAGMENT) + lane_column() + j];
            if element != 0.0f32 && weight != 0.0f32 {
                softmax.added[fragment] += weight * element;
            }
        }
    }
    let index = comptime!(step * layout.fragments + fragment);
    stage.write_left::<E>(elements, &softmax.weights, index, comptime!(layout.ty));
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
