//! Exact softmax attention that never holds a `seq_q x seq_k` matrix, forward or
//! backward: memory grows with the length, not with its square.
//!
//! ```text
//! context = softmax(scale · query · keyᵀ) · value    over the keys a query may see
//! ```
//!
//! with what [`AttentionOptions`] say in between.
//!
//! Scores are computed a tile at a time and forgotten; a running softmax joins the
//! tiles. The backward pass recomputes each tile from two numbers that are saved for each
//! query, the maximum of its scores and the sum of their exponentials. Tiles that a [pattern](crate::Pattern)
//! shows to nobody are not computed at all.
//!
//! Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), 2022;
//! Dao, [FlashAttention-2](https://arxiv.org/abs/2307.08691), 2023.
//!
//! # Which body computes it
//!
//! Flex, NdArray and LibTorch on the CPU have a body made for it, LibTorch on CUDA has
//! ATen's for what that can do, and wgpu and Vulkan have kernels of CubeCL; else it is the
//! portable one, tile loops over the backend's own operations. [`which_body`] tells. The
//! kernels take heads and values of up to 256 numbers, in `f32`, and in half precision where a
//! GPU multiplies matrices of it by instructions of its own; the gradient by a
//! bias is the portable body's on those backends, and so is a pass that has one. With the
//! feature `autotune` they try which sizes are fastest on a GPU. A backend's
//! body is compiled in by the feature of its name. On a backend that is there without its feature the result
//! is the same, computed by operations that autodiff records one by one, so that
//! training holds the matrices after all.

mod autodiff;
mod body;
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray and LibTorch; we carry them.
mod call;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod cpu;
#[cfg(feature = "cube")]
mod cube;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod host;
#[cfg(feature = "tch")]
#[allow(deprecated)] // as above
mod libtorch;
mod merge;
#[allow(deprecated)] // as above
mod ops;
mod portable;
mod spread;

use std::sync::Arc;

#[cfg(any(feature = "tch", feature = "cube"))]
use burn::backend::BackendTensor;
#[cfg(feature = "cube")]
use burn::backend::TensorMetadata;
use burn::backend::{Dispatch, DispatchTensorKind};
use burn::tensor::{Bool, DType, Tensor};
#[cfg(any(feature = "flex", feature = "ndarray"))]
use zoo_kernels::cpu::InstructionSet;
pub(crate) use zoo_kernels::has_kernels as has_body;

pub use self::body::Body;
use self::call::{Bias, Inputs, MoreHidden, TiledSettings};
pub use self::merge::{Flashed, merge};
use self::ops::TiledForward;
pub(crate) use self::spread::Spread;
use crate::AttentionOptions;
use crate::pattern::rule::Rule;
use crate::precision::{narrow, widen, widened};

/// Attends without holding the weights.
///
/// Half-precision tensors are computed in `f32` and rounded once, at the end; by the bodies
/// that [keep them](Body::keeps_half) they are multiplied as they are and added up in `f32`, with
/// weights and gradients by scores rounded before they are multiplied in turn.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - result: `[batch, heads, seq_q, d_value]`
///
/// # Panics
///
/// If the tensors or the pattern do not fit together, or the tensors are not of one
/// number type of up to 32 bits.
pub fn flash(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Tensor<4> {
    flash_with_log_sum_exp(query, key, value, options).context
}

/// [`flash`], and the log-sum-exp of each query's scores, with gradients through
/// both: what parts of an attention are joined by.
///
/// # Shapes
///
/// As for [`flash`].
///
/// # Panics
///
/// As for [`flash`].
pub fn flash_with_log_sum_exp(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Flashed {
    flash_by_rule(query, key, value, options, Rule::Full)
}

/// [`flash_with_log_sum_exp`], seeing no more than a rule shows that is no pattern's.
pub(crate) fn flash_by_rule(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
    rule: Rule,
) -> Flashed {
    let settled = settle([&query, &key, &value], options, rule);
    compute([query, key, value], options, settled, body)
}

/// [`flash_with_log_sum_exp`] as it is computed where no body of the backend was compiled
/// in. Right everywhere, and here only for tests to show it.
#[doc(hidden)]
pub fn recorded(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Flashed {
    let settled = settle([&query, &key, &value], options, Rule::Full);
    compute([query, key, value], options, settled, |_, _, _, _| {
        Body::Recorded
    })
}

/// [`flash_with_log_sum_exp`] by tile loops over the backend's operations even where there are
/// kernels of CubeCL. Here only for tests and measurements that compare the two.
#[doc(hidden)]
pub fn by_tiles(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Flashed {
    let mut settled = settle([&query, &key, &value], options, Rule::Full);
    settled.0.is_portable = true;
    compute([query, key, value], options, settled, body)
}

type Choose = fn(&DispatchTensorKind, DType, bool, &TiledSettings) -> Body;

fn compute(
    [query, key, value]: [Tensor<4>; 3],
    options: &AttentionOptions,
    (settings, hidden): (TiledSettings, Option<Tensor<4, Bool>>),
    choose: Choose,
) -> Flashed {
    let stored = query.dtype();
    let bias = options.bias.clone();
    let (body, dtype) = chosen(&query, hidden.is_some(), bias.as_ref(), &settings, choose);
    let wide = |tensor| {
        if dtype == stored {
            tensor
        } else {
            widen(tensor)
        }
    };
    let [query, key, value] = [query, key, value].map(|tensor| wide(tensor).into_dispatch());
    log::trace!("flash attention by {body}: {:?}", settings.shape);
    let inputs = Inputs::<Dispatch> {
        query,
        key,
        value,
        hidden: match hidden {
            Some(hidden) => MoreHidden::Where(hidden.into_dispatch()),
            None => MoreHidden::Nothing,
        },
        bias: match bias {
            Some(bias) if bias.dtype() == dtype => Bias::Added(bias.into_dispatch()),
            Some(bias) => Bias::Added(widen(bias).into_dispatch()),
            None => Bias::Nothing,
        },
    };
    let (context, log_sum_exp, _) = match body {
        Body::Recorded => portable::forward(inputs, &settings),
        _ => <Dispatch as TiledForward>::tiled_forward(inputs, settings),
    };
    Flashed {
        context: narrow(Tensor::from_dispatch(context), stored),
        log_sum_exp: Tensor::from_dispatch(log_sum_exp),
    }
}

/// What computes [`flash`] for such a call. What ran is also logged, at the level `trace`.
///
/// # Panics
///
/// As for [`flash`].
pub fn which_body(
    query: &Tensor<4>,
    key: &Tensor<4>,
    value: &Tensor<4>,
    options: &AttentionOptions,
) -> Body {
    let (settings, hidden) = settle([query, key, value], options, Rule::Full);
    let bias = options.bias.as_ref();
    chosen(query, hidden.is_some(), bias, &settings, body).0
}

/// What computes a call, and in which numbers: those that are stored, where there are kernels
/// for half precision and a bias is of the same type, and else `f32`.
fn chosen(
    query: &Tensor<4>,
    is_more_hidden: bool,
    bias: Option<&Tensor<4>>,
    settings: &TiledSettings,
    choose: Choose,
) -> (Body, DType) {
    let stored = query.dtype();
    let kind = query.clone().into_dispatch().kind;
    let has_more = is_more_hidden || bias.is_some();
    let keeps = choose(&kind, stored, has_more, settings);
    let takes_bias = match keeps {
        Body::Aten => bias.is_none_or(|bias| bias.dtype() == stored),
        // The gradient by a bias is the portable body's, in `f32`.
        Body::CubeMatrices => bias.is_none(),
        _ => false,
    };
    if keeps.keeps_half() && takes_bias {
        return (keeps, stored);
    }
    let dtype = widened(stored);
    (choose(&kind, dtype, has_more, settings), dtype)
}

/// Checks the sizes and takes the pattern apart, and shows of it what a rule shows, too.
fn settle(
    tensors: [&Tensor<4>; 3],
    options: &AttentionOptions,
    also: Rule,
) -> (TiledSettings, Option<Tensor<4, Bool>>) {
    let op = "flash attention";
    let shape = options.check_call(op, tensors);
    let device = tensors[0].device();
    options.check_device(op, &device);
    let (rule, hidden) = options.pattern.split(op, &shape, &device);
    let settings = TiledSettings {
        shape,
        rule: Arc::new(rule.and(also)),
        scale: options.scale.unwrap_or(shape.default_scale()),
        softcap: options.softcap,
        alibi: options.alibi.as_deref().map(Arc::from),
        // Nothing is dropped: then nothing needs to be drawn.
        dropout: options.dropout.filter(|dropout| dropout.probability > 0.0),
        assume_finite: options.assume_finite,
        is_portable: false,
    };
    (settings, hidden)
}

/// The body that computes a call on the backend of a tensor.
#[allow(unused_variables, clippy::only_used_in_recursion)] // by the features
fn body(kind: &DispatchTensorKind, dtype: DType, has_more: bool, settings: &TiledSettings) -> Body {
    match kind {
        _ if zoo_kernels::reference::is_on() => Body::Recorded,
        DispatchTensorKind::Autodiff(inner) => body(inner, dtype, has_more, settings),
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => InstructionSet::detect().into(),
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => InstructionSet::detect().into(),
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Float(tensor)) => {
            libtorch::body(tensor, dtype, has_more, settings)
        }
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Autodiff(tensor)) => {
            libtorch::body(tensor.primitive(), dtype, has_more, settings)
        }
        #[cfg(feature = "cube")]
        DispatchTensorKind::Cube(BackendTensor::Float(tensor)) => {
            cube::body(&tensor.device(), dtype, settings)
        }
        #[cfg(feature = "cube")]
        DispatchTensorKind::Cube(BackendTensor::Autodiff(tensor)) => {
            cube::body(&tensor.primitive().device(), dtype, settings)
        }
        #[allow(unreachable_patterns)] // which are left depends on the features
        _ => Body::Recorded,
    }
}
