//! Arguments of the kernels, and rows of their operands.

use cubecl::prelude::*;

use super::tile::{CHUNK, Tile};
use crate::cube::rows::{Matrix, TensorStrides, Vec4, load_vec4};
use crate::scan::features::RELU_FLOOR;

/// An operand whose rows are positions of the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// `φ(Q)`
    Query,
    /// `φ(K)`, zero where masked.
    Key,
    /// `V`, zero where masked.
    Value,
    /// `G`: output gradients, divided by the sum of weights.
    Grad,
}

impl Role {
    /// Whether its rows are features.
    pub(super) fn is_mapped(self) -> bool {
        match self {
            Self::Query | Self::Key => true,
            Self::Value | Self::Grad => false,
        }
    }

    /// Whether its rows are queries; else they are keys.
    pub(super) fn has_queries(self) -> bool {
        match self {
            Self::Query | Self::Grad => true,
            Self::Key | Self::Value => false,
        }
    }
}

/// An elementwise feature map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Map {
    Elu1,
    Relu,
    Identity,
}

/// What is known of a call when a kernel is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) map: Map,
    pub(super) is_causal: bool,
    pub(super) has_mask: bool,
    /// Whether contexts are weighted means.
    pub(super) is_normalised: bool,
    pub(super) has_decay: bool,
    pub(super) tile: Tile,
}

/// The inputs that the kernels share.
#[derive(CubeType, CubeLaunch)]
pub(super) struct ScanArgs<E: Float, N: Size, M: Numeric> {
    pub(super) query: &'static [Vector<E, N>],
    pub(super) key: &'static [Vector<E, N>],
    pub(super) value: &'static [Vector<E, N>],
    pub(super) d_context: &'static [Vector<E, N>],
    pub(super) masked: &'static [M],
    /// `[batch, heads, seq_q]`: sums of weights.
    pub(super) denominators: &'static [f32],
    /// `[batch, heads, seq_q]`: `dO · O`.
    pub(super) deltas: &'static [f32],
    /// `[kv_heads, CHUNK + 1]`: powers of the decay.
    pub(super) powers: &'static [f32],
    pub(super) call: Call,
    #[cube(comptime)]
    pub(super) kind: Kind,
}

/// Sizes, strides and factors of a call.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Call {
    pub(super) heads: u32,
    /// Query heads that share a key and value head.
    pub(super) group: u32,
    pub(super) seq_q: u32,
    pub(super) seq_k: u32,
    pub(super) d_head: u32,
    pub(super) d_value: u32,
    pub(super) query: TensorStrides,
    pub(super) key: TensorStrides,
    pub(super) value: TensorStrides,
    pub(super) d_context: TensorStrides,
    /// Strides of the mask, zero for examples that share it.
    pub(super) masked_example: u32,
    pub(super) masked_key: u32,
    pub(super) query_scale: f32,
    pub(super) key_scale: f32,
    /// The positions of the first query and the first key.
    pub(super) first_query: u32,
    pub(super) first_key: u32,
    /// States of a head; one for each chunk of keys, or of queries.
    pub(super) chunks: u32,
    /// Vec4s of a state.
    pub(super) state_vec4s: u32,
    /// The bits of NaN, which a shader cannot contain as a constant.
    pub(super) nan_bits: u32,
}

/// A query head of an example, and its key and value head.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Head {
    pub(super) example: usize,
    pub(super) head: usize,
    pub(super) kv_head: usize,
}

#[cube]
impl Call {
    /// The width of the rows of an operand.
    pub(super) fn width(&self, #[comptime] role: Role) -> usize {
        let mut width = self.d_value;
        if comptime!(role.is_mapped()) {
            width = self.d_head;
        }
        width as usize
    }

    /// The position of the first row of an operand.
    pub(super) fn first_position(&self, #[comptime] role: Role) -> usize {
        let mut first = self.first_key;
        if comptime!(role.has_queries()) {
            first = self.first_query;
        }
        first as usize
    }

    /// The number of rows of an operand.
    pub(super) fn rows(&self, #[comptime] role: Role) -> u32 {
        let mut rows = self.seq_k;
        if comptime!(role.has_queries()) {
            rows = self.seq_q;
        }
        rows
    }

    /// Vec4s of a row of a state.
    pub(super) fn value_vec4s(&self) -> usize {
        (self.d_value as usize).div_ceil(4)
    }

    /// Vec4s of the features, whose number is padded to a multiple of four in states.
    pub(super) fn feature_vec4s(&self) -> usize {
        (self.d_head as usize).div_ceil(4)
    }

    /// The offset of the state of a chunk, `[features, d_value]`, in vec4.
    pub(super) fn state_offset(&self, head: &Head, chunk: usize) -> usize {
        let kv_heads = (self.heads / self.group) as usize;
        let head_index = head.example * kv_heads + head.kv_head;
        (head_index * self.chunks as usize + chunk) * self.state_vec4s as usize
    }

    /// The offset of the sums of features from that of their state. They are the column of the state
    /// that belongs to a value of one.
    pub(super) fn totals_offset(&self) -> usize {
        self.feature_vec4s() * 4 * self.value_vec4s()
    }
}

/// Whether a position has a row of an operand, which is not masked.
#[cube]
pub(super) fn is_visible<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    position: usize,
    #[comptime] role: Role,
) -> bool {
    let call = &args.call;
    let first = call.first_position(role);
    let mut is_visible = position >= first && position < first + call.rows(role) as usize;
    if comptime!(args.kind.has_mask && !role.has_queries()) {
        if is_visible {
            let offset = head.example * call.masked_example as usize
                + (position - first) * call.masked_key as usize;
            is_visible = u32::cast_from(args.masked[offset]) == 0u32;
        }
    }
    is_visible
}

/// A vec4 of the row of a tensor at a visible position, as it is stored.
#[cube]
#[allow(unused_assignments)] // kernel variables must be initialised before a branch
pub(super) fn load_stored<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    position: usize,
    vec4: usize,
    #[comptime] role: Role,
) -> Vec4 {
    let call = &args.call;
    let row = position - call.first_position(role);
    let rows = call.rows(role);
    let example = head.example;
    let mut stored = Vec4::new(0.0f32);
    if comptime!(role == Role::Query) {
        let matrix = call
            .query
            .matrix(args.query, example, head.head, rows, call.d_head);
        stored = load_as_f32::<E, N>(&matrix, row, vec4);
    } else if comptime!(role == Role::Key) {
        let matrix = call
            .key
            .matrix(args.key, example, head.kv_head, rows, call.d_head);
        stored = load_as_f32::<E, N>(&matrix, row, vec4);
    } else if comptime!(role == Role::Value) {
        let matrix = call
            .value
            .matrix(args.value, example, head.kv_head, rows, call.d_value);
        stored = load_as_f32::<E, N>(&matrix, row, vec4);
    } else {
        let matrix = call
            .d_context
            .matrix(args.d_context, example, head.head, rows, call.d_value);
        stored = load_as_f32::<E, N>(&matrix, row, vec4);
    }
    stored
}

#[cube]
fn load_as_f32<E: Float, N: Size>(matrix: &Matrix<'_, E, N>, row: usize, vec4: usize) -> Vec4 {
    Vec4::cast_from(load_vec4::<E, N>(matrix, row, vec4))
}

/// A vec4 of the row of an operand; zeros outside of the sequence, and for masked keys.
#[cube]
pub(super) fn load_operand<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    position: usize,
    vec4: usize,
    #[comptime] role: Role,
) -> Vec4 {
    let call = &args.call;
    let kind = comptime!(args.kind);
    let mut elements = Vec4::new(0.0f32);
    if is_visible::<E, N, M>(args, head, position, role) {
        let stored = load_stored::<E, N, M>(args, head, position, vec4, role);
        if comptime!(role.is_mapped()) {
            let scale = feature_scale(call, role);
            #[unroll]
            for i in 0..4usize {
                // The features of padding are zero.
                if vec4 * 4 + i < call.d_head as usize {
                    elements.insert(i, feature(scale * stored.extract(i), kind.map));
                }
            }
        } else if comptime!(role == Role::Grad && kind.is_normalised) {
            let inverse = inverse(args.denominators[query_index(call, head, position)]);
            elements = stored * Vec4::new(inverse);
        } else {
            elements = stored;
        }
    }
    elements
}

/// The factor of queries or keys before the feature map.
#[cube]
pub(super) fn feature_scale(call: &Call, #[comptime] role: Role) -> f32 {
    let mut scale = call.key_scale;
    if comptime!(role.has_queries()) {
        scale = call.query_scale;
    }
    scale
}

#[cube]
fn is_nan(x: f32) -> bool {
    u32::reinterpret(x) & 0x7fff_ffffu32 > 0x7f80_0000u32
}

/// `φ(x)`. `min` and `max` of NaN are a number on a GPU.
#[cube]
pub(super) fn feature(x: f32, #[comptime] map: Map) -> f32 {
    let mut feature = x;
    if comptime!(map != Map::Identity) {
        if !is_nan(x) {
            let above = max(x, 0.0f32);
            if comptime!(map == Map::Elu1) {
                feature = above + min(x, 0.0f32).exp();
            } else {
                feature = above + RELU_FLOOR;
            }
        }
    }
    feature
}

/// `φ'(x)`
#[cube]
pub(super) fn slope(x: f32, #[comptime] map: Map) -> f32 {
    let mut slope = 1.0f32;
    if comptime!(map == Map::Elu1) {
        slope = min(x, 0.0f32).exp();
    }
    if comptime!(map == Map::Relu) {
        slope = select(x > 0.0f32, 1.0f32, 0.0f32);
    }
    slope
}

/// The reciprocal of a sum of weights; zero if it is negligible.
#[cube]
pub(super) fn inverse(denominator: f32) -> f32 {
    select(denominator < 1e-30f32, 0.0f32, 1.0f32 / denominator)
}

/// The index of the query at a position, counted over all heads.
#[cube]
pub(super) fn query_index(call: &Call, head: &Head, position: usize) -> usize {
    let row = position - call.first_query as usize;
    (head.example * call.heads as usize + head.head) * call.seq_q as usize + row
}

/// The last column of `G`, `-(dO · O) / n`, which belongs to a value of one; zero where there is no
/// query.
#[cube]
pub(super) fn denominator_grad<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    position: usize,
) -> f32 {
    let mut gradient = 0.0f32;
    if is_visible::<E, N, M>(args, head, position, Role::Query) {
        let index = query_index(&args.call, head, position);
        gradient = -args.deltas[index] * inverse(args.denominators[index]);
    }
    gradient
}

/// A power of the decay of a head, up to that of a chunk.
#[cube]
pub(super) fn power<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    exponent: usize,
) -> f32 {
    args.powers[head.kv_head * comptime!(CHUNK + 1) + exponent]
}

/// The decay between a row of a chunk and the states: that before the chunk for a query, that after
/// it for a key.
#[cube]
pub(super) fn row_power<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    row: usize,
    #[comptime] is_query: bool,
) -> f32 {
    let mut exponent = comptime!(CHUNK - 1) - row;
    if comptime!(is_query) {
        exponent = row + 1;
    }
    power::<E, N, M>(args, head, exponent)
}
