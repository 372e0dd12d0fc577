//! Exact softmax attention that never materialises the `seq_q x seq_k` score matrix, forward or
//! backward: memory is linear in the sequence length.
//!
//! ```text
//! context = softmax(scale · query · keyᵀ) · value    over the visible keys
//! ```
//!
//! with the modifications that [`AttentionOptions`] describes.
//!
//! Scores are computed one tile at a time and discarded; an online softmax merges the tiles. The
//! backward pass recomputes each tile from two saved values per query: the maximum of its scores
//! and the sum of their exponentials. Tiles that a [pattern](crate::Pattern) masks completely are
//! skipped.
//!
//! Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), 2022;
//! Dao, [FlashAttention-2](https://arxiv.org/abs/2307.08691), 2023.
//!
//! # Kernel selection
//!
//! Flex, NdArray and LibTorch on the CPU use dedicated CPU kernels. On a CPU with AMX they multiply
//! bf16 tensors with it; calls with a score from other than the dot product, another normaliser than the
//! softmax, or gathered keys are computed in `f32`. LibTorch on CUDA uses ATen's
//! kernels for the calls they support. wgpu, Vulkan and CUDA use CubeCL kernels. All other calls
//! use tile loops over the backend's own operations. [`selected_kernel`] returns which one is used.
//!
//! The CubeCL kernels support head and value dimensions of up to 256, in `f32`, and in half
//! precision where the GPU has matrix instructions for it. Score functions use the tile loops
//! there. With the feature `autotune` the fastest tile sizes are found by measurement.
//!
//! The kernels of a backend are compiled in by the feature of its name. Without that feature the
//! result is the same, but autodiff records the operations of the tile loops one by one, so
//! training keeps the score matrices in memory.

mod autodiff;
mod broadcast;
#[allow(deprecated)] // Burn 0.22 is the last to include NdArray and LibTorch, which we support.
mod call;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod cpu;
#[cfg(feature = "cube")]
mod cube;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod host;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod host_bf16;
#[allow(deprecated)] // as above
mod kernel_choice;
#[cfg(feature = "tch")]
#[allow(deprecated)] // as above
mod libtorch;
mod merge;
#[allow(deprecated)] // as above
mod ops;
mod portable;
mod sigmoid;
mod sink;

use std::borrow::Cow;
use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{Bool, DType, Tensor};
pub(crate) use zoo_kernels::has_kernels;
use zoo_kernels::precision::cast;

pub(crate) use self::broadcast::Broadcast;
pub(crate) use self::call::{DenseMask, Program};
use self::call::{Inputs, Optional, TiledSettings};
pub use self::kernel_choice::FlashKernel;
use self::kernel_choice::{bias_dtype, select};
#[cfg(feature = "cube")]
pub(crate) use self::merge::FULLY_MASKED;
#[cfg(feature = "tch")]
pub(crate) use self::merge::merge_stacked;
pub use self::merge::{FlashOutput, merge};
use self::ops::TiledForward;
pub(crate) use self::portable::additive;
pub use self::sigmoid::{sigmoid_attention, sigmoid_kernel};
pub use self::sink::flash_with_sink;
use crate::pattern::gather::GatherPlan;
use crate::pattern::rule::Rule;
use crate::precision::widen;
use crate::{AttentionOptions, Pattern};

/// Flash attention: exact softmax attention without materialising the attention weights.
///
/// Half-precision tensors are computed in `f32` and rounded once, at the end. Kernels that
/// [support half precision](FlashKernel::supports_half) multiply them directly and accumulate in
/// `f32`; they round weights and score gradients before the following matmul.
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
/// If the shapes of the tensors and the pattern do not match, or the tensors do not have
/// the same floating-point dtype of at most 32 bits.
pub fn flash(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Tensor<4> {
    flash_with_log_sum_exp(query, key, value, options).context
}

/// [`flash`] that also returns the log-sum-exp of each query's scores, by which partial results
/// are [merged](merge). Both outputs are differentiable.
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
) -> FlashOutput {
    flash_with_rule(query, key, value, options, Rule::Full)
}

/// [`flash_with_log_sum_exp`] with an additional rule that no public pattern expresses.
pub(crate) fn flash_with_rule(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
    rule: Rule,
) -> FlashOutput {
    let extension = Extension {
        rule,
        ..Extension::default()
    };
    let stored = query.dtype();
    run(OP, [query, key, value], options, extension).rounded(stored)
}

/// [`flash_with_log_sum_exp`] whose context is not rounded to the dtype of the queries if the kernel
/// computes in `f32`. For results that are rounded after further operations.
pub(crate) fn flash_unrounded(
    op: &str,
    tensors: [Tensor<4>; 3],
    options: &AttentionOptions,
) -> FlashOutput {
    run(op, tensors, options, Extension::default())
}

/// Attention with another [`Program`], and its parameter.
pub(crate) fn flash_with_program(
    op: &str,
    tensors: [Tensor<4>; 3],
    options: &AttentionOptions,
    program: Program,
    parameter: Option<Tensor<4>>,
) -> FlashOutput {
    let extension = Extension {
        program,
        parameter,
        ..Extension::default()
    };
    let stored = tensors[0].dtype();
    run(op, tensors, options, extension).rounded(stored)
}

/// Attention over gathered tiles. The plan has the visible pairs of the pattern and of the rule; the
/// tensor masks of the pattern are applied, too.
pub(crate) fn flash_gathered(
    op: &str,
    tensors: [Tensor<4>; 3],
    options: &AttentionOptions,
    rule: Rule,
    plan: Arc<GatherPlan>,
) -> Tensor<4> {
    let extension = Extension {
        rule,
        gather: Some(plan),
        ..Extension::default()
    };
    let stored = tensors[0].dtype();
    let output = run(op, tensors, options, extension);
    output.rounded(stored).context
}

/// Whether the kernel of a call takes gathered tiles: those of the CPU do, and LibTorch's on CUDA.
pub(crate) fn supports_gather(tensors: [&Tensor<4>; 3], options: &AttentionOptions) -> bool {
    if options.pattern.depends_on_head() {
        return false;
    }
    let extension = Extension {
        gather: Some(Arc::default()),
        ..Extension::default()
    };
    zoo_kernels::is_on_host(tensors[0])
        || kernel_of(tensors, options, &extension).0 == FlashKernel::Aten
}

/// Arguments of a call besides the public options.
#[derive(Clone)]
struct Extension {
    /// Restricts the pattern.
    rule: Rule,
    /// The visible pairs of pattern and rule.
    gather: Option<Arc<GatherPlan>>,
    program: Program,
    parameter: Option<Tensor<4>>,
    /// Index of the first head of the tensors among the heads of the call.
    first_head: usize,
}

impl Default for Extension {
    fn default() -> Self {
        Self {
            rule: Rule::Full,
            gather: None,
            program: Program::Softmax,
            parameter: None,
            first_head: 0,
        }
    }
}

fn run(
    op: &str,
    [query, key, value]: [Tensor<4>; 3],
    options: &AttentionOptions,
    extension: Extension,
) -> FlashOutput {
    if options.pattern.depends_on_head() {
        let tensors = [query, key, value];
        return match heads_in_batch(op, &tensors, options, &extension) {
            Some(pattern) => {
                let [batch, heads, seq_q, _] = tensors[0].dims();
                let tensors = tensors.map(|tensor| {
                    let [batch, heads, seq, width] = tensor.dims();
                    tensor.reshape([batch * heads, 1, seq, width])
                });
                let options = options.clone().with_pattern(pattern);
                let output = run(op, tensors, &options, extension);
                let [.., d_value] = output.context.dims();
                FlashOutput {
                    context: output.context.reshape([batch, heads, seq_q, d_value]),
                    log_sum_exp: output.log_sum_exp.reshape([batch, heads, seq_q, 1]),
                }
            }
            None => per_head(op, tensors, options, &extension),
        };
    }
    let options = &one_bias(op, [&query, &key, &value], options);
    let prepared = prepare(op, [&query, &key, &value], options, &extension);
    compute([query, key, value], options, prepared, extension.parameter)
}

/// The options with a relative bias as part of the bias, if there are both.
fn one_bias<'a>(
    op: &str,
    tensors: [&Tensor<4>; 3],
    options: &'a AttentionOptions,
) -> Cow<'a, AttentionOptions> {
    let (Some(bias), Some(_)) = (&options.bias, &options.relative_bias) else {
        return Cow::Borrowed(options);
    };
    let shape = options.check_call(op, tensors);
    let relative = options.relative_bias_rows(&shape, 0..shape.seq_q);
    Cow::Owned(AttentionOptions {
        bias: relative.map(|relative| widen(bias.clone()) + relative),
        relative_bias: None,
        ..options.clone()
    })
}

/// The pattern with heads as part of the batch dimension, if nothing else depends on the head and
/// each head has its own keys and values.
fn heads_in_batch(
    op: &str,
    [query, key, value]: &[Tensor<4>; 3],
    options: &AttentionOptions,
    extension: &Extension,
) -> Option<Pattern> {
    let shape = options.check_call(op, [query, key, value]);
    options.pattern.check(op, &shape);
    let depends_on_head = options.alibi.is_some()
        || options.has_bias()
        || options.dropout.is_some()
        || options.score_mod.is_some()
        || extension.parameter.is_some();
    let is_sampled = matches!(extension.program, Program::Hard(_));
    if depends_on_head || is_sampled || shape.group() > 1 {
        return None;
    }
    options.pattern.with_heads_in_batch(shape.heads)
}

/// Computes each head separately, for a pattern that depends on the head.
fn per_head(
    op: &str,
    [query, key, value]: [Tensor<4>; 3],
    options: &AttentionOptions,
    extension: &Extension,
) -> FlashOutput {
    let shape = options.check_call(op, [&query, &key, &value]);
    let outputs = (0..shape.heads).map(|head| {
        let kv_head = head / shape.group();
        let slice = |tensor: &Tensor<4>, head| tensor.clone().slice_dim(1, head..head + 1);
        let tensors = [
            slice(&query, head),
            slice(&key, kv_head),
            slice(&value, kv_head),
        ];
        let extension = Extension {
            parameter: extension.parameter.as_ref().map(|it| slice(it, head)),
            first_head: head,
            ..extension.clone()
        };
        // The heads may have different kernels.
        let stored = tensors[0].dtype();
        run(op, tensors, &options.at_head(head), extension).rounded(stored)
    });
    let (contexts, log_sum_exps) = outputs
        .map(|output| (output.context, output.log_sum_exp))
        .unzip();
    FlashOutput {
        context: Tensor::cat(contexts, 1),
        log_sum_exp: Tensor::cat(log_sum_exps, 1),
    }
}

const OP: &str = "flash attention";

/// [`flash_with_log_sum_exp`] as computed on a backend whose feature is not enabled. For tests.
#[doc(hidden)]
pub fn composite(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> FlashOutput {
    zoo_kernels::without_kernels(|| flash_with_log_sum_exp(query, key, value, options))
}

/// [`flash_with_log_sum_exp`] by tile loops over the backend's operations, even where there are
/// GPU kernels. For tests and benchmarks that compare the two.
#[doc(hidden)]
pub fn tile_loops(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> FlashOutput {
    let options = &one_bias(OP, [&query, &key, &value], options);
    let mut prepared = prepare(OP, [&query, &key, &value], options, &Extension::default());
    prepared.0.is_portable = true;
    let stored = query.dtype();
    compute([query, key, value], options, prepared, None).rounded(stored)
}

/// The context is in the type that the kernel computes in.
fn compute(
    [query, key, value]: [Tensor<4>; 3],
    options: &AttentionOptions,
    (settings, mask): (TiledSettings, Option<Tensor<4, Bool>>),
    parameter: Option<Tensor<4>>,
) -> FlashOutput {
    let bias = kernel_bias(options);
    let (kernel, dtype) = select(&query, mask.is_some(), bias.as_ref(), &settings);
    let qkv = [query, key, value].map(|tensor| cast(tensor, dtype).into_dispatch());
    log::trace!("flash attention: kernel {kernel}, {:?}", settings.shape);
    let mask = match mask {
        Some(mask) => DenseMask::Bool(mask.into_dispatch()),
        None => DenseMask::None,
    };
    let bias = match bias {
        Some(bias) => Optional::Tensor(cast(bias, bias_dtype(kernel, dtype)).into_dispatch()),
        None => Optional::None,
    };
    let parameter = match parameter {
        Some(parameter) => Optional::Tensor(cast(parameter, dtype).into_dispatch()),
        None => Optional::None,
    };
    let inputs = Inputs::<Dispatch>::new(qkv, mask, [bias, parameter]);
    let (context, log_sum_exp, _) = match kernel {
        FlashKernel::Composite => portable::forward(inputs, &settings),
        _ => <Dispatch as TiledForward>::tiled_forward(inputs, settings),
    };
    FlashOutput {
        context: Tensor::from_dispatch(context),
        log_sum_exp: Tensor::from_dispatch(log_sum_exp),
    }
}

/// The kernel that [`flash`] uses for such a call. It is also logged, at level `trace`.
///
/// # Panics
///
/// As for [`flash`].
pub fn selected_kernel(
    query: &Tensor<4>,
    key: &Tensor<4>,
    value: &Tensor<4>,
    options: &AttentionOptions,
) -> FlashKernel {
    kernel_of([query, key, value], options, &Extension::default()).0
}

/// The kernel that computes attention with a program, see [`flash_with_program`].
pub(crate) fn kernel_of_program(
    tensors: [&Tensor<4>; 3],
    options: &AttentionOptions,
    program: Program,
) -> FlashKernel {
    let extension = Extension {
        program,
        ..Extension::default()
    };
    kernel_of(tensors, options, &extension).0
}

/// Whether keys and values are read by a kernel for few queries, at the cost of the visible keys only,
/// and in the dtype that they have.
pub(crate) fn reads_keys_in_place(tensors: [&Tensor<4>; 3], options: &AttentionOptions) -> bool {
    let (kernel, dtype) = kernel_of(tensors, options, &Extension::default());
    kernel.is_cpu() && kernel != FlashKernel::CpuAmx && dtype == tensors[1].dtype()
}

/// The kernel of a call and the dtype it computes in; that of the first head if the pattern depends on
/// the head.
fn kernel_of(
    tensors: [&Tensor<4>; 3],
    options: &AttentionOptions,
    extension: &Extension,
) -> (FlashKernel, DType) {
    if options.pattern.depends_on_head() {
        let heads = tensors.map(|tensor| tensor.clone().slice_dim(1, 0..1));
        return kernel_of(heads.each_ref(), &options.at_head(0), extension);
    }
    let options = &one_bias(OP, tensors, options);
    let (settings, mask) = prepare(OP, tensors, options, extension);
    let bias = kernel_bias(options);
    select(tensors[0], mask.is_some(), bias.as_ref(), &settings)
}

/// The bias as the kernels take it: `[1, heads, 1, seq_q + seq_k - 1]` if it is relative.
fn kernel_bias(options: &AttentionOptions) -> Option<Tensor<4>> {
    let relative = options.relative_bias.clone();
    let relative = relative.map(|bias| bias.unsqueeze_dims(&[0, 2]));
    options.bias.clone().or(relative)
}

/// Checks the shapes and splits the pattern, restricted by another rule, into a rule and a dense
/// mask.
fn prepare(
    op: &str,
    tensors: [&Tensor<4>; 3],
    options: &AttentionOptions,
    extension: &Extension,
) -> (TiledSettings, Option<Tensor<4, Bool>>) {
    let shape = options.check_call(op, tensors);
    let device = tensors[0].device();
    options.check_device(op, &device);
    let (rule, mask) = options.pattern.split(op, &shape, &device);
    let settings = TiledSettings {
        shape,
        rule: Arc::new(rule.and(extension.rule.clone())),
        gather: extension.gather.clone(),
        scale: options.scale.unwrap_or(shape.default_scale()),
        softcap: options.softcap,
        alibi: options.alibi.as_deref().map(Arc::from),
        has_relative_bias: options.relative_bias.is_some(),
        // A probability of zero needs no random numbers.
        dropout: options.dropout.filter(|dropout| dropout.probability > 0.0),
        assume_finite: options.assume_finite,
        program: extension.program,
        first_head: extension.first_head,
        is_tracked: false,
        score_mod: options.score_mod.clone(),
        is_portable: false,
    };
    (settings, mask)
}
