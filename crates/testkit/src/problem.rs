//! One attention problem: its sizes, its mask, and the numbers that go in.

use crate::draw::Draw;
use crate::mask::Mask;

/// The sizes and the mask of one attention call, under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// How tests and benches call it.
    pub name: &'static str,
    /// Examples.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; `heads / kv_heads` query heads share each.
    pub kv_heads: usize,
    /// Queries.
    pub seq_q: usize,
    /// Keys and values.
    pub seq_k: usize,
    /// Numbers in a query and in a key.
    pub d_head: usize,
    /// Numbers in a value.
    pub d_value: usize,
    /// What scores are multiplied by; `None` is `1/sqrt(d_head)`.
    pub scale: Option<f64>,
    /// Who sees whom.
    pub mask: Mask,
    /// Standard deviation of the inputs.
    pub spread: f64,
}

/// The numbers of a [`Problem`], each tensor row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// `[batch, heads, seq_q, d_head]`
    pub query: Vec<f32>,
    /// `[batch, kv_heads, seq_k, d_head]`
    pub key: Vec<f32>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub value: Vec<f32>,
    /// `[batch, heads, seq_q, d_value]`: the gradient that arrives at the
    /// result. Random, because a constant one hides errors that sum to zero.
    pub upstream: Vec<f32>,
}

impl Problem {
    /// An unmasked problem `[batch, heads, seq_q, seq_k, d_head]` with as many
    /// KV heads as heads and values as wide as keys.
    pub const fn new(name: &'static str, sizes: [usize; 5]) -> Self {
        let [batch, heads, seq_q, seq_k, d_head] = sizes;
        Self {
            name,
            batch,
            heads,
            kv_heads: heads,
            seq_q,
            seq_k,
            d_head,
            d_value: d_head,
            scale: None,
            mask: Mask::Full,
            spread: 1.0,
        }
    }

    /// The scale in force.
    pub fn scale(&self) -> f64 {
        self.scale.unwrap_or(1.0 / (self.d_head as f64).sqrt())
    }

    /// For every `[batch, heads, seq_q, seq_k]`, row by row: is it hidden?
    pub fn hidden(&self) -> Vec<bool> {
        self.mask.hidden(self)
    }

    /// `[batch, heads, seq_q, d_head]`
    pub fn query_shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq_q, self.d_head]
    }

    /// `[batch, kv_heads, seq_k, d_head]`
    pub fn key_shape(&self) -> [usize; 4] {
        [self.batch, self.kv_heads, self.seq_k, self.d_head]
    }

    /// `[batch, kv_heads, seq_k, d_value]`
    pub fn value_shape(&self) -> [usize; 4] {
        [self.batch, self.kv_heads, self.seq_k, self.d_value]
    }

    /// `[batch, heads, seq_q, d_value]`
    pub fn context_shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq_q, self.d_value]
    }

    /// `[batch, heads, seq_q, seq_k]`
    pub fn scores_shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq_q, self.seq_k]
    }

    /// The problem's numbers, always the same for the same name and sizes.
    pub fn inputs(&self) -> Inputs {
        let mut draw = Draw::named(self.name);
        let count = |shape: [usize; 4]| shape.iter().product();
        Inputs {
            query: draw.normals(count(self.query_shape()), self.spread),
            key: draw.normals(count(self.key_shape()), self.spread),
            value: draw.normals(count(self.value_shape()), self.spread),
            upstream: draw.normals(count(self.context_shape()), 1.0),
        }
    }
}
