//! Nyström attention: softmax attention approximated through landmarks, the means of segments of
//! queries and keys. Time and memory are linear in the sequence length.
//!
//! ```text
//! context = F Z (B V)      F = softmax(scale · Q K̃ᵀ)   A = softmax(scale · Q̃ K̃ᵀ)   B = softmax(scale · Q̃ Kᵀ)
//! ```
//!
//! `Z` is an approximate pseudo-inverse of `A`, by an iteration from the transposed matrix divided by
//! its largest sum of a column:
//!
//! ```text
//! Z ← Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4
//! ```
//!
//! `F` and `B` are computed by [`flash`](crate::flash()) and never materialised.
//!
//! Xiong et al., [Nyströmformer](https://arxiv.org/abs/2102.03902), 2021.

use burn::tensor::{Bool, Tensor};
use zoo_spec::{MechanismConfig, Nystrom};

use super::{Attention, Call, Inputs, Params};
use crate::analysis::weights::WeightFunction;
use crate::matmul::matmul;
use crate::mechanisms::standard::{dot_products, softmax};
use crate::precision::{narrow, widen};
use crate::scan::{KeyMask, grouped_matmul, reject_options_of_pairs};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern, flash};

impl Attention for Nystrom {
    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        nystrom(query, key, value, self, call.options).into()
    }

    fn weight_fn(&self, _: &Inputs, _: &Params) -> WeightFunction {
        WeightFunction::Landmarks(*self)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        let [rows, columns] = [shape.seq_q, shape.seq_k].map(|seq| self.landmarks.min(seq));
        let pairs = rows * shape.seq_k + shape.seq_q * columns;
        let outer = pairs * (shape.d_head + shape.d_value);
        // Products of A and Z, two of their product, and one of Z in each iteration.
        let iteration = rows * columns * rows + 2 * rows * rows * rows + columns * rows * rows;
        let inner = self.iterations * iteration + rows * columns * (shape.d_head + shape.d_value);
        2.0 * (shape.heads * (outer + inner)) as f64
    }
}

const OP: &str = "Nyström attention";

/// Nyström attention with the landmarks and iterations of a config.
///
/// A sequence of n positions has min(`landmarks`, n) segments: the first n mod m have one position
/// more than the others. The landmark of a segment of keys is the mean of its keys that are not
/// masked; a segment without such keys is masked. Half-precision tensors are computed in `f32`.
///
/// Shapes are those of [`flash`](crate::flash()).
///
/// # Panics
///
/// If the shapes do not match, or the tensors do not have the same dtype of at most 32 bits; if there
/// are no landmarks; if the pattern is not built from full, key lengths and key padding; if the
/// options change scores or weights.
pub fn nystrom(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    config: &Nystrom,
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = options.check_call(OP, [&query, &key, &value]);
    let stored = query.dtype();
    let landmarks = Landmarks::new(&query, key, config, options, &shape);
    let query = widen(query);
    let value = landmarks.key_mask.clear(widen(value));
    let options = AttentionOptions {
        scale: Some(landmarks.scale),
        // Masked keys and values are zero.
        assume_finite: true,
        ..options.clone()
    };
    let Landmarks {
        query_means,
        key,
        key_means,
        masked,
        inverse,
        ..
    } = landmarks;
    let means = flash(query_means, key, value, &options); // [batch, heads, m_q, d_value]
    let means = matmul(inverse, means); // [batch, heads, m_k, d_value]
    let options = options.with_pattern(match masked {
        Some(masked) => Pattern::KeyPadding(masked),
        None => Pattern::Full,
    });
    // Every query head has values of its own.
    let [batch, kv_heads, count, d_head] = key_means.dims();
    let key_means = key_means
        .reshape([batch, kv_heads, 1, count, d_head])
        .expand([batch, kv_heads, shape.group(), count, d_head])
        .reshape([batch, shape.heads, count, d_head]);
    narrow(flash(query, key_means, means, &options), stored)
}

/// The weights of the queries `rows`, `[batch, heads, rows, seq_k]`: `F Z B`. `selected` are these
/// queries.
pub(crate) fn landmark_weights(
    query: &Tensor<4>,
    selected: Tensor<4>,
    key: Tensor<4>,
    config: &Nystrom,
    options: &AttentionOptions,
    shape: &AttentionShape,
) -> Tensor<4> {
    let stored = query.dtype();
    let landmarks = Landmarks::new(query, key, config, options, shape);
    let of_keys = landmarks.key_mask.masked.clone();
    let of_keys = of_keys.map(|masked| masked.swap_dims(2, 3));
    let scores = |query: Tensor<4>, key: &Tensor<4>| {
        let [_, _, seq_q, _] = query.dims();
        let [_, _, seq_k, _] = key.dims();
        let shape = AttentionShape {
            seq_q,
            seq_k,
            ..*shape
        };
        dot_products(query, key.clone(), landmarks.scale, &shape)
    };
    let to_keys = softmax(
        scores(landmarks.query_means.clone(), &landmarks.key),
        of_keys,
    );
    let of_landmarks = landmarks.masked.clone().map(four_dims);
    let from_queries = softmax(scores(widen(selected), &landmarks.key_means), of_landmarks);
    let weights = matmul(matmul(from_queries, landmarks.inverse), to_keys);
    narrow(weights, stored)
}

/// The landmarks of a call, in `f32`.
struct Landmarks {
    /// `[batch, heads, m_q, d_head]`
    query_means: Tensor<4>,
    /// All keys, with zeros for masked ones.
    key: Tensor<4>,
    /// `[batch, kv_heads, m_k, d_head]`
    key_means: Tensor<4>,
    key_mask: KeyMask,
    /// `[batch, m_k]`: segments whose keys are all masked.
    masked: Option<Tensor<2, Bool>>,
    /// `[batch, heads, m_k, m_q]`: the approximate pseudo-inverse.
    inverse: Tensor<4>,
    scale: f64,
}

impl Landmarks {
    fn new(
        query: &Tensor<4>,
        key: Tensor<4>,
        config: &Nystrom,
        options: &AttentionOptions,
        shape: &AttentionShape,
    ) -> Self {
        assert!(
            config.landmarks > 0,
            "{OP}: landmarks must be at least 1, got 0"
        );
        reject_options_of_pairs(OP, options);
        let capabilities = MechanismConfig::from(*config).capabilities();
        let reason = capabilities.causal.err().unwrap_or_default();
        let device = &query.device();
        let key_mask = KeyMask::of_all_queries(OP, reason, &options.pattern, shape, device);
        let scale = options.scale.unwrap_or(shape.default_scale());
        let [rows, columns] = [shape.seq_q, shape.seq_k].map(|seq| config.landmarks.min(seq));

        let query = widen(query.clone());
        let query_means = segment_sums(query.clone(), rows) / sizes(&query, rows);
        let key = key_mask.clear(widen(key));
        let sums = segment_sums(key.clone(), columns); // [batch, kv_heads, m_k, d_head]
        let (key_means, masked) = match &key_mask.masked {
            None => (sums / sizes(&key, columns), None),
            Some(masked) => {
                let [batch, ..] = key.dims();
                let masked = masked.clone().expand([batch, 1, shape.seq_k, 1]);
                let visible = key.clone().detach().slice_dim(1, 0..1).slice_dim(3, 0..1);
                let visible = visible.ones_like().mask_fill(masked, 0.0);
                let counts = segment_sums(visible, columns); // [batch, 1, m_k, 1]
                let is_empty = counts.clone().equal_elem(0.0);
                let means = sums / counts.clamp_min(1.0);
                (means, Some(is_empty.reshape([batch, columns])))
            }
        };
        let scores = grouped_matmul(
            query_means.clone().mul_scalar(scale),
            key_means.clone().swap_dims(2, 3),
        ); // [batch, heads, m_q, m_k]
        let weights = softmax(scores, masked.clone().map(four_dims));
        Self {
            inverse: pseudo_inverse(weights, config.iterations),
            query_means,
            key,
            key_means,
            key_mask,
            masked,
            scale,
        }
    }
}

/// A mask of keys, `[batch, keys]`, for all heads and queries.
fn four_dims(masked: Tensor<2, Bool>) -> Tensor<4, Bool> {
    let [batch, keys] = masked.dims();
    masked.reshape([batch, 1, 1, keys])
}

/// The sums of `count` segments of the rows of a tensor. The first ones have one row more than the
/// others, if `count` does not divide their number.
fn segment_sums(x: Tensor<4>, count: usize) -> Tensor<4> {
    let [batch, heads, seq, width] = x.dims();
    let (size, longer) = (seq / count, seq % count);
    let split = longer * (size + 1);
    let sums = |rows: std::ops::Range<usize>, count: usize| {
        let size = rows.len() / count;
        let rows = x.clone().slice_dim(2, rows);
        let rows = rows.reshape([batch, heads, count, size, width]);
        rows.sum_dim(3).reshape([batch, heads, count, width])
    };
    if longer == 0 {
        return sums(0..seq, count);
    }
    let parts = vec![sums(0..split, longer), sums(split..seq, count - longer)];
    Tensor::cat(parts, 2)
}

/// The numbers of rows in these segments, `[1, 1, count, 1]`.
fn sizes(x: &Tensor<4>, count: usize) -> Tensor<4> {
    let ones = x.clone().detach().slice_dim(0, 0..1).slice_dim(1, 0..1);
    segment_sums(ones.slice_dim(3, 0..1).ones_like(), count)
}

/// The approximate pseudo-inverse of `[batch, heads, m_q, m_k]`; zero for a matrix of zeros.
fn pseudo_inverse(matrix: Tensor<4>, iterations: usize) -> Tensor<4> {
    let [.., rows, _] = matrix.dims();
    let norm = matrix.clone().sum_dim(2).max_dim(3); // [batch, heads, 1, 1]
    let is_zero = norm.clone().equal_elem(0.0);
    let mut inverse = matrix.clone().swap_dims(2, 3) / norm.mask_fill(is_zero, 1.0);
    let identity = Tensor::<2>::eye(rows, &matrix.device()).cast(matrix.dtype());
    let identity = identity.reshape([1, 1, rows, rows]);
    let minus = |factor: f64, x: Tensor<4>| identity.clone().mul_scalar(factor) - x;
    for _ in 0..iterations {
        let product = matmul(matrix.clone(), inverse.clone()); // [batch, heads, m_q, m_q]
        let inner = minus(15.0, matmul(product.clone(), minus(7.0, product.clone())));
        let outer = minus(13.0, matmul(product, inner));
        inverse = matmul(inverse, outer).mul_scalar(0.25);
    }
    inverse
}
