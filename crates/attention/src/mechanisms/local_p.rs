//! Attention around a predicted position.
//!
//! Luong et al., [Effective Approaches to Attention-based Neural Machine
//! Translation](https://arxiv.org/abs/1508.04025), 2015: predictive alignment.
//!
//! ```text
//! p_t     = S · sigmoid(v_p · tanh(q_t W_p))    S the number of keys
//! weight  = softmax(score) · exp(-(j - p_t)² / 2σ²)
//! context = weight · value                      over the keys with |j - p_t| <= window; σ = window / 2
//! ```

use burn::tensor::{Bool, Device, FloatDType, Int, Tensor, TensorData};
use zoo_kernels::is_on_host;
use zoo_spec::LocalP;

use super::{
    Attention, Call, HeadSizes, Inputs, MechanismParams, Params, matrix_param, pair_flops,
    projection_flops, vector_param,
};
use crate::analysis::weights::WeightFunction;
use crate::flash::{FlashKernel, Program, flash_with_program, kernel_of_program};
use crate::mechanisms::multiplicative::project_query;
use crate::mechanisms::standard::{attend_with_weights, isolated_scores, softmax};
use crate::pattern::rule::query_position;
use crate::precision::{check_parameter, widen};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern};

impl Attention for LocalP {
    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        MechanismParams {
            vector: Some(vector_param(sizes, device)),
            matrix: Some(matrix_param(sizes, device)),
            ..MechanismParams::default()
        }
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        let predictor = (call.params.vector(&query), call.params.matrix(&query));
        local_predictive(query, key, value, predictor, self.window, call.options).into()
    }

    fn kernel(&self, tensors: [&Tensor<4>; 3], options: &AttentionOptions) -> Option<FlashKernel> {
        let program = Program::Gaussian {
            window: self.window as f32,
        };
        Some(kernel_of_program(tensors, options, program))
    }

    fn weight_fn(&self, inputs: &Inputs, params: &Params) -> WeightFunction {
        let query = &inputs.query;
        let predictor = (params.vector(query), params.matrix(query));
        WeightFunction::Predicted(Box::new(predictor), self.window)
    }

    fn flops(&self, shape: &AttentionShape, options: &AttentionOptions) -> f64 {
        pair_flops(shape, options) + projection_flops(shape)
    }
}

/// Attention to the `window` keys on either side of a predicted position; its weights sum to less
/// than 1.
///
/// If the pattern has key lengths or key padding, the number of keys is that of the example, so
/// that padding does not change the result. Vector and matrix get gradients through the distance
/// from the position, not through the window bounds. Half-precision tensors are computed in `f32`
/// and rounded once, at the end.
///
/// # Shapes
///
/// As [`flash`](crate::flash()), and
///
/// - vector: `[heads, d_head]`, the `v_p` of each head
/// - matrix: `[heads, d_head, d_head]`, the `W_p` of each head, multiplied from the right
///
/// # Panics
///
/// As [`flash`](crate::flash()), and if the window is zero.
pub fn local_predictive(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    predictor: (Tensor<2>, Tensor<3>),
    window: usize,
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = options.check_call(OP, [&query, &key, &value]);
    let positions = predict(&query, predictor, window, options, &shape);
    let program = Program::Gaussian {
        window: window as f32,
    };
    match order_independent(options) {
        Some(order) if is_on_host(&query) && shape.seq_q > 64 => {
            let options = options.clone().with_pattern(order.pattern);
            let queries = SortedQueries::new(&positions, &shape);
            let last_keys = queries.last_keys(order.is_causal, &shape, &positions);
            let parameter = Tensor::cat(vec![queries.sort(positions), last_keys], 3);
            let tensors = [queries.sort(query), key, value];
            let output = flash_with_program(OP, tensors, &options, program, Some(parameter));
            queries.unsort(output.context)
        }
        _ => {
            let tensors = [query, key, value];
            flash_with_program(OP, tensors, options, program, Some(positions)).context
        }
    }
}

/// A pattern whose only dependence on the order of queries is causal.
struct OrderIndependent {
    is_causal: bool,
    /// The other masks.
    pattern: Pattern,
}

/// The pattern of the options without causality, if queries can be computed in any order.
fn order_independent(options: &AttentionOptions) -> Option<OrderIndependent> {
    let has_positions = options.alibi.is_some()
        || options.has_bias()
        || options.dropout.is_some()
        || options.score_mod.is_some();
    if has_positions {
        return None;
    }
    split_causal(&options.pattern)
}

fn split_causal(pattern: &Pattern) -> Option<OrderIndependent> {
    let (is_causal, pattern) = match pattern {
        Pattern::Full => (false, Pattern::Full),
        Pattern::Causal => (true, Pattern::Full),
        Pattern::KeyLengths(_) | Pattern::KeyPadding(_) => (false, pattern.clone()),
        Pattern::And(a, b) => {
            let [a, b] = [split_causal(a)?, split_causal(b)?];
            let pattern = match (a.pattern, b.pattern) {
                (Pattern::Full, other) | (other, Pattern::Full) => other,
                (a, b) => a.and(b),
            };
            (a.is_causal || b.is_causal, pattern)
        }
        _ => return None,
    };
    Some(OrderIndependent { is_causal, pattern })
}

/// The queries of each head in the order of their positions, so that the windows of neighbouring
/// queries overlap and most tiles of keys are skipped.
struct SortedQueries {
    /// For each sorted row, its row in `[batch, heads, seq_q]`.
    order: Vec<i32>,
    /// The inverse.
    rank: Vec<i32>,
}

impl SortedQueries {
    fn new(positions: &Tensor<4>, shape: &AttentionShape) -> Self {
        let positions: Vec<f32> = positions.clone().detach().into_data().iter().collect();
        let mut order: Vec<i32> = (0..positions.len() as i32).collect();
        for head in order.chunks_exact_mut(shape.seq_q) {
            head.sort_by(|&a, &b| positions[a as usize].total_cmp(&positions[b as usize]));
        }
        let mut rank = vec![0; order.len()];
        for (sorted, &row) in order.iter().enumerate() {
            rank[row as usize] = sorted as i32;
        }
        Self { order, rank }
    }

    fn sort(&self, tensor: Tensor<4>) -> Tensor<4> {
        select_rows(tensor, &self.order)
    }

    fn unsort(&self, tensor: Tensor<4>) -> Tensor<4> {
        select_rows(tensor, &self.rank)
    }

    /// The last key of each sorted query, `[batch, heads, seq_q, 1]`.
    fn last_keys(&self, is_causal: bool, shape: &AttentionShape, like: &Tensor<4>) -> Tensor<4> {
        let last = |&row: &i32| match is_causal {
            true => query_position(shape, row as usize % shape.seq_q) as f32,
            false => shape.seq_k as f32,
        };
        let values: Vec<f32> = self.order.iter().map(last).collect();
        let values = TensorData::new(values, like.dims());
        Tensor::from_data(values, (&like.device(), like.dtype()))
    }
}

/// Rows of `[batch, heads, seq, width]` in another order.
fn select_rows(tensor: Tensor<4>, rows: &[i32]) -> Tensor<4> {
    let dims = tensor.dims();
    let [batch, heads, seq, width] = dims;
    let rows = Tensor::<1, Int>::from_ints(rows, &tensor.device());
    tensor
        .reshape([batch * heads * seq, width])
        .select(0, rows)
        .reshape(dims)
}

/// [`local_predictive`] that materialises its weights and returns them, too.
///
/// # Panics
///
/// As [`local_predictive`].
pub fn local_predictive_with_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    predictor: (Tensor<2>, Tensor<3>),
    window: usize,
    options: &AttentionOptions,
) -> AttentionOutput {
    let shape = options.check_call(OP, [&query, &key, &value]);
    let positions = predict(&query, predictor, window, options, &shape);
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let (device, dtype) = (query.device(), query.dtype());
    let keys = Tensor::<1, Int>::arange(0..shape.seq_k as i64, &device)
        .cast(FloatDType::from(dtype))
        .reshape([1, 1, 1, shape.seq_k]);
    let distance = keys - positions; // [batch, heads, seq_q, seq_k]
    let outside: Tensor<4, Bool> = distance.clone().detach().abs().greater_elem(window as f64);
    // 2σ² = window² / 2
    let gaussian = distance
        .square()
        .mul_scalar(-2.0 / (window as f64).powi(2))
        .exp();
    let scores = isolated_scores(query, key, options, &shape, true);
    let mask = options.pattern.dense_mask(OP, &shape, &device);
    let weights = softmax(scores, mask.into_iter().chain([outside])) * gaussian;
    // Keys outside of the window are masked.
    attend_with_weights(weights, value, options, &shape, stored, true)
}

const OP: &str = "local-p attention";

/// The predicted position of each query, in `f32`: `[batch, heads, seq_q, 1]`.
fn predict(
    query: &Tensor<4>,
    (vector, matrix): (Tensor<2>, Tensor<3>),
    window: usize,
    options: &AttentionOptions,
    shape: &AttentionShape,
) -> Tensor<4> {
    options.pattern.check(OP, shape);
    assert!(window > 0, "{OP}: a window must be at least 1, got 0");
    check_parameter(OP, "vector", &vector, shape, query.dtype());
    let vector = widen(vector.reshape([1, shape.heads, 1, shape.d_head]));
    let projected = project_query(OP, query.clone(), matrix, shape); // [batch, heads, seq_q, d_head]
    let score = if is_on_host(query) {
        score_of_zero_key(projected, vector)
    } else {
        (projected.tanh() * vector).sum_dim(3)
    }; // [batch, heads, seq_q, 1]
    // sigmoid(x) = (1 + tanh(x / 2)) / 2, which cannot overflow.
    let fraction = score.mul_scalar(0.5).tanh().add_scalar(1.0);
    match num_keys(&options.pattern, OP, shape, &fraction) {
        Some(keys) => fraction * keys.mul_scalar(0.5),
        None => fraction.mul_scalar(0.5 * shape.seq_k as f64),
    }
}

/// `vector · tanh(query)` by the kernels of additive attention: the score of a key of zeros, which is
/// the log-sum-exp of the scores if there is no other key.
fn score_of_zero_key(query: Tensor<4>, vector: Tensor<4>) -> Tensor<4> {
    let [batch, heads, _, d_head] = query.dims();
    let options = (&query.device(), query.dtype());
    let key = Tensor::zeros([batch, heads, 1, d_head], options);
    let value = Tensor::zeros([batch, heads, 1, 1], options);
    let options = AttentionOptions::new().with_scale(1.0);
    let tensors = [query, key, value];
    flash_with_program(OP, tensors, &options, Program::Additive, Some(vector)).log_sum_exp
}

/// The number of keys of each example up to the last valid one, `[batch, 1, 1, 1]` on the device of
/// `like`, if the pattern has key lengths or key padding.
fn num_keys(
    pattern: &Pattern,
    op: &str,
    shape: &AttentionShape,
    like: &Tensor<4>,
) -> Option<Tensor<4>> {
    let &AttentionShape { batch, seq_k, .. } = shape;
    let (device, dtype) = (&like.device(), like.dtype());
    match pattern {
        Pattern::KeyLengths(lengths) => {
            let lengths: Vec<f32> = lengths.iter().map(|&length| length as f32).collect();
            let lengths = TensorData::new(lengths, [batch, 1, 1, 1]);
            Some(Tensor::from_data(lengths, (device, dtype)))
        }
        Pattern::KeyPadding(_) => {
            let padding = pattern.dense_mask(op, shape, device)?; // [batch, 1, 1, seq_k]
            let counts = Tensor::<1, Int>::arange(1..seq_k as i64 + 1, device)
                .cast(FloatDType::from(dtype))
                .reshape([1, 1, 1, seq_k])
                .expand([batch, 1, 1, seq_k]);
            Some(counts.mask_fill(padding, 0.0).max_dim(3))
        }
        Pattern::And(a, b) => {
            let [a, b] = [a, b].map(|part| num_keys(part, op, shape, like));
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min_pair(b)),
                (a, b) => a.or(b),
            }
        }
        _ => None,
    }
}
