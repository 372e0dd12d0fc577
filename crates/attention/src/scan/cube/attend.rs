//! Contexts and gradients of a chunk.
//!
//! All are `left · state + (left · middleᵀ ∘ mask) · right`: the first product reads the state of
//! the other chunks, the second is causal within the chunk.
//!
//! | result | left | middle | right | state |
//! |---|---|---|---|---|
//! | context | `φ(Q)` | `φ(K)` | `V` | `S` |
//! | `dφ(Q)` | `G` | `V` | `φ(K)` | `Sᵀ` |
//! | `dφ(K)` | `V` | `G` | `φ(Q)` | `Rᵀ` |
//! | `dV` | `φ(K)` | `φ(Q)` | `G` | `R` |
//!
//! The column of the values that is one, and that of `G` that belongs to it, are separate vectors.

use cubecl::prelude::*;

use super::call::{
    Call, Head, Kind, Role, ScanArgs, denominator_grad, feature_scale, inverse, is_visible,
    load_stored, power, query_index, row_power, slope,
};
use super::tile::{
    Along, BESIDE_SCORES, CHUNK, DEPTH, DEPTH_VEC4S, FLAGS, MEMORY_VEC4S, SCORES, SIDE_VEC4S,
    Slice, Tile, multiply, row_vec4, set_zero, side_index, slice, stage_depth, stage_finite,
    stage_state, store_scores, sum_over_row, unit_position, zeros,
};
use crate::cube::rows::{Vec4, contiguous_rows, store_vec4};

/// What [`attend`] computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Output {
    Context,
    QueryGrad,
    KeyGrad,
    ValueGrad,
}

impl Output {
    fn left(self) -> Role {
        match self {
            Self::Context => Role::Query,
            Self::QueryGrad => Role::Grad,
            Self::KeyGrad => Role::Value,
            Self::ValueGrad => Role::Key,
        }
    }

    fn middle(self) -> Role {
        match self {
            Self::Context => Role::Key,
            Self::QueryGrad => Role::Value,
            Self::KeyGrad => Role::Grad,
            Self::ValueGrad => Role::Query,
        }
    }

    fn right(self) -> Role {
        match self {
            Self::Context => Role::Value,
            Self::QueryGrad => Role::Key,
            Self::KeyGrad => Role::Query,
            Self::ValueGrad => Role::Grad,
        }
    }

    /// The input whose positions and width the result has.
    pub(super) fn like(self) -> Role {
        match self {
            // As wide as values.
            Self::Context => Role::Grad,
            Self::QueryGrad => Role::Query,
            Self::KeyGrad => Role::Key,
            Self::ValueGrad => Role::Value,
        }
    }

    /// The vec4s of a state, which are along its width, in the product with the left operand.
    fn state(self) -> Along {
        match self {
            Self::Context | Self::ValueGrad => Along::Side,
            Self::QueryGrad | Self::KeyGrad => Along::Depth,
        }
    }
}

const LEFT: Slice = slice(0, Along::Depth);
const MIDDLE: Slice = slice(1, Along::Depth);

/// Each cube computes 64 columns of a chunk of a head. Chunks are those from `first_chunk` on, and
/// `blocks` is the number of blocks of 64 columns. `denominators` is written with the context.
#[cube(launch_unchecked)]
pub(super) fn attend<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    states: &[Vec4],
    results: &mut [Vector<E, N>],
    denominators: &mut [f32],
    first_chunk: u32,
    blocks: u32,
    #[comptime] output: Output,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let kind = comptime!(args.kind);
    let tile = comptime!(kind.tile);
    let left = comptime!(output.left());
    let has_queries = comptime!(output.like().has_queries());
    let state_slice = comptime!(slice(2, output.state()));
    let has_totals = comptime!(kind.is_normalised && output == Output::Context);
    let call = &args.call;
    let chunk = (first_chunk + CUBE_POS_X / blocks) as usize;
    let block_vec4 = (CUBE_POS_X % blocks) as usize * SIDE_VEC4S;
    let first = chunk * CHUNK;
    let (unit_row, unit_column) = unit_position(tile);
    let group = call.group as usize;
    let mut own_head = CUBE_POS_Y as usize;
    let mut members = 1usize;
    if comptime!(!has_queries) {
        own_head *= group;
        if comptime!(kind.is_causal) {
            members = group;
        }
    }
    let own = Head {
        example: CUBE_POS_Z as usize,
        head: own_head,
        kv_head: own_head / group,
    };
    let mut state_chunk = 0usize;
    if comptime!(kind.is_causal) {
        state_chunk = chunk;
    }
    let state = call.state_offset(&own, state_chunk);

    let mut memory = Shared::<[Vec4]>::new_slice(comptime!(MEMORY_VEC4S));
    let mut flags = Shared::<[u32]>::new_slice(comptime!(FLAGS));
    for step in 0..comptime!(FLAGS.div_ceil(tile.units())) {
        let index = UNIT_POS as usize + step * comptime!(tile.units());
        if index < FLAGS {
            flags[index] = 0u32;
        }
    }
    let mut sums = zeros(comptime!(tile.unit_elements()));
    let mut scores = zeros(comptime!(tile.unit_elements()));
    // Sums of weights, of the keys that the unit has read.
    let mut totals = zeros(comptime!(tile.unit_side()));
    for member in 0..members {
        let head = Head {
            example: own.example,
            head: own_head + member,
            kv_head: own.kv_head,
        };
        set_zero(&mut scores, comptime!(tile.unit_elements()));
        for part in 0..call.width(left).div_ceil(DEPTH) {
            let vec4 = part * DEPTH_VEC4S;
            // Other units may still read the previous part.
            sync_cube();
            stage_depth::<E, N, M>(args, &head, first, vec4, &mut memory, left, LEFT);
            if comptime!(kind.is_causal) {
                let middle = comptime!(output.middle());
                stage_depth::<E, N, M>(args, &head, first, vec4, &mut memory, middle, MIDDLE);
            }
            if member == 0 {
                stage_state(
                    states,
                    state,
                    call,
                    part,
                    block_vec4,
                    &mut memory,
                    state_slice,
                    tile,
                );
            }
            sync_cube();
            if member == 0 {
                multiply(&mut memory, 0usize, &mut sums, LEFT, state_slice, tile);
                if comptime!(has_totals) {
                    add_state_totals(states, state, call, vec4, &mut memory, &mut totals, tile);
                }
            }
            if comptime!(kind.is_causal) {
                multiply(&mut memory, 0usize, &mut scores, LEFT, MIDDLE, tile);
            }
        }
        if comptime!(kind.is_causal) {
            if comptime!(kind.has_decay) {
                if member == 0 {
                    #[unroll]
                    for i in 0..comptime!(tile.unit_side()) {
                        let row = side_index(unit_row, i, tile);
                        let decay = row_power::<E, N, M>(args, &head, row, has_queries);
                        #[unroll]
                        for j in 0..comptime!(tile.unit_side()) {
                            sums[comptime!(i * tile.unit_side() + j)] *= decay;
                        }
                    }
                }
            }
            finish_scores::<E, N, M>(args, &head, first, &mut scores, output);
            if comptime!(has_totals) {
                #[unroll]
                for i in 0..comptime!(tile.unit_side()) {
                    #[unroll]
                    for j in 0..comptime!(tile.unit_side()) {
                        totals[i] += scores[comptime!(i * tile.unit_side() + j)];
                    }
                }
            }
            // Other units may still read the operands, which the scores replace.
            sync_cube();
            store_scores(&mut scores, &mut memory, tile);
            for part in 0..comptime!(CHUNK / DEPTH) {
                // The scores are stored, and the previous part has been read.
                sync_cube();
                stage_finite::<E, N, M>(
                    args,
                    &head,
                    first,
                    part * DEPTH,
                    block_vec4,
                    &mut memory,
                    &mut flags,
                    comptime!(output.right()),
                );
                sync_cube();
                multiply(
                    &mut memory,
                    part * DEPTH_VEC4S,
                    &mut sums,
                    SCORES,
                    BESIDE_SCORES,
                    tile,
                );
            }
        }
    }

    if comptime!(has_totals) {
        let mut row_totals = Array::<Vec4>::new(comptime!(tile.unit_vec4s()));
        #[unroll]
        for r in 0..comptime!(tile.unit_vec4s()) {
            let mut vec4 = Vec4::new(0.0f32);
            #[unroll]
            for i in 0..4usize {
                vec4.insert(i, totals[r * 4 + i]);
            }
            row_totals[r] = vec4;
        }
        sum_over_row(&mut row_totals, &mut memory, tile);
        #[unroll]
        for i in 0..comptime!(tile.unit_side()) {
            totals[i] = row_totals[comptime!(i / 4)].extract(comptime!(i % 4));
        }
    }
    // Flags are set only in causal order, with a barrier after it.
    let has_non_finite = flags[CHUNK] != 0u32;
    let like = comptime!(output.like());
    let mut head_index = own.example * call.heads as usize + own.head;
    if comptime!(!has_queries) {
        head_index /= group;
    }
    let rows = contiguous_rows(head_index, call.rows(like), call.width(like) as u32);
    #[unroll]
    for i in 0..comptime!(tile.unit_side()) {
        let row = side_index(unit_row, i, tile);
        let position = first + row;
        let first_row = call.first_position(like);
        if position >= first_row && position < first_row + call.rows(like) as usize {
            let mut is_poisoned = false;
            if has_non_finite {
                is_poisoned = attends_to_non_finite(&mut flags, row, has_queries);
            }
            let mut factor = 1.0f32;
            // The element of the left operand that belongs to the column of ones.
            let mut ones_grad = 0.0f32;
            if comptime!(has_totals) {
                factor = inverse(totals[i]);
                if block_vec4 == 0 && unit_column == 0 {
                    denominators[query_index(call, &own, position)] = totals[i];
                }
            }
            if comptime!(kind.is_normalised && output == Output::QueryGrad) {
                ones_grad = denominator_grad::<E, N, M>(args, &own, position);
            }
            if comptime!(kind.is_normalised && output == Output::KeyGrad) {
                ones_grad = 1.0f32;
            }
            let is_masked = !is_visible::<E, N, M>(args, &own, position, like);
            #[unroll]
            for c in 0..comptime!(tile.unit_vec4s()) {
                let vec4 = block_vec4 + unit_column + comptime!(c * tile.cube_side);
                let mut elements = row_vec4(&mut sums, i, c, tile);
                if comptime!(has_totals) {
                    elements *= Vec4::new(factor);
                }
                if comptime!(like.is_mapped()) {
                    if vec4 < call.feature_vec4s() {
                        if comptime!(kind.is_normalised) {
                            let totals = states[state + call.totals_offset() + vec4];
                            elements += Vec4::new(ones_grad) * totals;
                        }
                        elements *= slopes::<E, N, M>(args, &own, position, vec4, like);
                    }
                }
                if is_poisoned {
                    elements = Vec4::new(f32::reinterpret(call.nan_bits));
                }
                if is_masked {
                    elements = Vec4::new(0.0f32);
                }
                store_vec4::<E, N>(results, &rows, position - first_row, vec4, elements);
            }
        }
    }
}

/// Whether a row of a chunk depends on a row of the right operand that is not finite.
#[cube]
fn attends_to_non_finite(
    flags: &mut Shared<[u32]>,
    row: usize,
    #[comptime] has_queries: bool,
) -> bool {
    let mut is_found = false;
    for other in 0..CHUNK {
        let mut attends = other >= row;
        if comptime!(has_queries) {
            attends = other <= row;
        }
        if attends && flags[other] != 0u32 {
            is_found = true;
        }
    }
    is_found
}

/// Adds `φ(q) · z` of four of a unit's features to the sums of weights, in the first columns of
/// units.
#[cube]
fn add_state_totals(
    states: &[Vec4],
    state: usize,
    call: &Call,
    first_vec4: usize,
    memory: &mut Shared<[Vec4]>,
    totals: &mut Array<f32>,
    #[comptime] tile: Tile,
) {
    let (unit_row, unit_column) = unit_position(tile);
    let vec4 = first_vec4 + unit_column;
    if unit_column < DEPTH_VEC4S && vec4 < call.feature_vec4s() {
        let features = states[state + call.totals_offset() + vec4];
        #[unroll]
        for i in 0..comptime!(tile.unit_side()) {
            let row = unit_row + comptime!(i * tile.cube_side);
            let query = memory[row * comptime!(LEFT.stride()) + unit_column];
            #[unroll]
            for k in 0..4usize {
                totals[i] = fma(query.extract(k), features.extract(k), totals[i]);
            }
        }
    }
}

/// Scores of a chunk from dot products: those of visible pairs, with their decay. Weight gradients
/// also have the gradient of the sum of weights.
#[cube]
fn finish_scores<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    first: usize,
    scores: &mut Array<f32>,
    #[comptime] output: Output,
) {
    let kind: Kind = comptime!(args.kind);
    let tile = comptime!(kind.tile);
    let (unit_row, unit_column) = unit_position(tile);
    let has_row_grad = comptime!(kind.is_normalised && output == Output::QueryGrad);
    let has_column_grad = comptime!(kind.is_normalised && output == Output::KeyGrad);
    let mut column_grads = zeros(comptime!(tile.unit_side()));
    if comptime!(has_column_grad) {
        #[unroll]
        for j in 0..comptime!(tile.unit_side()) {
            let position = first + side_index(unit_column, j, tile);
            column_grads[j] = denominator_grad::<E, N, M>(args, head, position);
        }
    }
    #[unroll]
    for i in 0..comptime!(tile.unit_side()) {
        let row = side_index(unit_row, i, tile);
        let mut row_grad = 0.0f32;
        if comptime!(has_row_grad) {
            row_grad = denominator_grad::<E, N, M>(args, head, first + row);
        }
        #[unroll]
        for j in 0..comptime!(tile.unit_side()) {
            let index = comptime!(i * tile.unit_side() + j);
            let column = side_index(unit_column, j, tile);
            let mut later = row;
            let mut earlier = column;
            if comptime!(!output.like().has_queries()) {
                later = column;
                earlier = row;
            }
            let mut score = scores[index];
            if comptime!(has_row_grad) {
                score += row_grad;
            }
            if comptime!(has_column_grad) {
                score += column_grads[j];
            }
            scores[index] = 0.0f32;
            if later >= earlier {
                if comptime!(kind.has_decay) {
                    score *= power::<E, N, M>(args, head, later - earlier);
                }
                scores[index] = score;
            }
        }
    }
}

/// The derivatives of features by their inputs.
#[cube]
fn slopes<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    position: usize,
    vec4: usize,
    #[comptime] role: Role,
) -> Vec4 {
    let scale = feature_scale(&args.call, role);
    let inputs = load_stored::<E, N, M>(args, head, position, vec4, role);
    let mut slopes = Vec4::new(0.0f32);
    #[unroll]
    for i in 0..4usize {
        let slope = slope(scale * inputs.extract(i), comptime!(args.kind.map));
        slopes.insert(i, scale * slope);
    }
    slopes
}
