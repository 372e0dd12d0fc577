//! Backends whose tensors are in host memory: they share the [CPU kernels](super::cpu).

use std::borrow::Cow;

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use zoo_kernels::hosts::{Host, HostElement};

use super::broadcast::Broadcast;
use super::call::{InputGrads, Inputs, OutputGrads, Outputs, Saved, TiledSettings};
use super::cpu::{self, BackwardInputs, Call, Heads};
use super::host_bf16;
#[cfg(any(feature = "flex", feature = "ndarray"))]
use super::ops::{TiledBackward, TiledForward};

pub(super) fn forward<B: Host>(inputs: &Inputs<B>, settings: &TiledSettings) -> Outputs<B> {
    if inputs.query.dtype() == DType::BF16 {
        return host_bf16::forward(inputs, settings);
    }
    with_call(inputs, settings, |call: &Call<'_>| {
        let (context, stats) = cpu::forward(call);
        let context = B::from_vec(context, &settings.shape.context_dims());
        outputs::<B, _>(call, context, stats)
    })
}

/// Context, log-sum-exp and statistics as tensors.
pub(super) fn outputs<B: Host, T>(
    call: &Call<'_, T>,
    context: FloatTensor<B>,
    stats: Vec<f32>,
) -> Outputs<B> {
    let shape = call.shape;
    let dims = |width| [shape.batch, shape.heads, shape.seq_q, width];
    let stats_dims = dims(call.stats_width());
    let log_sum_exp = cpu::log_sum_exp(call, &stats);
    (
        context,
        B::from_vec(log_sum_exp, &dims(1)),
        B::from_vec(stats, &stats_dims),
    )
}

pub(super) fn backward<B: Host>(
    saved: Saved<B>,
    output_grads: OutputGrads<B>,
    settings: &TiledSettings,
) -> InputGrads<B> {
    if saved.inputs.query.dtype() == DType::BF16 {
        return host_bf16::backward(&saved, &output_grads, settings);
    }
    let inputs = &saved.inputs;
    let context = B::elements(&saved.context);
    let stats = B::elements(&saved.stats);
    let d_context = B::elements(&output_grads.d_context);
    let d_log_sum_exp = output_grads.d_log_sum_exp.as_ref().map(B::elements);
    check_contexts([context.len(), d_context.len()], settings);
    let bias_dims = bias_dims(inputs, &output_grads);
    let ([query, key, value, parameter], d_bias) =
        with_call(inputs, settings, |call: &Call<'_>| {
            let recomputed = cpu::recompute_stats(call, &stats);
            let hard = cpu::split_stats(call, &stats);
            let saved = BackwardInputs {
                context: hard.as_ref().map_or(&context, |hard| &hard.soft_context),
                stats: match &hard {
                    Some(hard) => &hard.stats,
                    None => recomputed.as_deref().unwrap_or(&stats),
                },
                selected: hard.as_ref().map_or(&[], |hard| &hard.selected),
                d_context: &d_context,
                d_log_sum_exp: d_log_sum_exp.as_deref(),
            };
            let d_bias = bias_dims.map(|dims| cpu::backward_bias(call, &saved, dims));
            (cpu::backward(call, &saved), d_bias)
        });
    let like = |values, tensor: &FloatTensor<B>| B::from_vec(values, &tensor.shape());
    InputGrads {
        qkv: [
            like(query, &inputs.query),
            like(key, &inputs.key),
            like(value, &inputs.value),
        ],
        bias: d_bias
            .zip(bias_dims)
            .map(|(values, dims)| B::from_vec(values, &dims)),
        parameter: inputs.parameter.as_ref().map(|it| like(parameter, it)),
    }
}

/// Checks the number of elements of the context and of its gradient, which the kernels read through raw
/// pointers.
pub(super) fn check_contexts([context, d_context]: [usize; 2], settings: &TiledSettings) {
    let expected = settings.shape.context_len();
    assert!(
        context == expected && d_context == expected,
        "flash attention: expected {expected} elements in the context and in its gradient, got \
         {context} and {d_context}"
    );
}

/// The dimensions of the bias, if its gradient is needed.
pub(super) fn bias_dims<B: Host>(
    inputs: &Inputs<B>,
    output_grads: &OutputGrads<B>,
) -> Option<[usize; 4]> {
    let bias = inputs.bias.as_ref();
    bias.filter(|_| output_grads.needs_bias_grad)
        .map(|bias| bias.shape().dims())
}

/// The elements head by head and the stride between heads; copied only if the rows of a head are
/// not contiguous. A key/value cache, whose heads have unused capacity at the end, is not copied.
fn heads<B: Host, T: HostElement>(tensor: &FloatTensor<B>) -> (Cow<'_, [T]>, usize) {
    let [batch, heads, rows, width] = tensor.shape().dims();
    if let Some((values, strides)) = T::strided::<B>(tensor) {
        // The stride of a dimension of size 1 is irrelevant.
        let has_stride = |dim: usize, stride: usize| {
            [batch, heads, rows, width][dim] == 1 || strides[dim] == stride
        };
        let stride = match (batch, heads) {
            (1, 1) => rows * width,
            (_, 1) => strides[0],
            _ => strides[1],
        };
        if has_stride(0, heads * stride)
            && has_stride(2, width)
            && has_stride(3, 1)
            && stride >= rows * width
        {
            return (Cow::Borrowed(values), stride);
        }
    }
    (T::elements::<B>(tensor), rows * width)
}

/// Runs a function on the arguments of the CPU kernels.
pub(super) fn with_call<B: Host, T: HostElement, R>(
    inputs: &Inputs<B>,
    settings: &TiledSettings,
    run: impl FnOnce(&Call<'_, T>) -> R,
) -> R {
    let Inputs {
        query, key, value, ..
    } = inputs;
    let mask = inputs.mask.as_ref();
    let mask = mask.map(|mask| (B::bytes(mask), mask.shape().dims()));
    let bias = inputs.bias.as_ref();
    let bias = bias.map(|bias| (B::elements(bias), bias.shape().dims()));
    let parameter = inputs.parameter.as_ref().map(B::elements);
    let shape = &settings.shape;
    let dims = [query, key, value].map(|tensor| tensor.shape().dims::<4>());
    let expected = [
        [shape.batch, shape.heads, shape.seq_q, shape.d_head],
        [shape.batch, shape.kv_heads, shape.seq_k, shape.d_head],
        [shape.batch, shape.kv_heads, shape.seq_k, shape.d_value],
    ];
    // The kernels read through raw pointers.
    assert!(
        dims == expected,
        "flash attention: query, key and value must be {expected:?}, got {dims:?}"
    );
    let ((key, key_stride), (value, value_stride)) = (heads::<B, T>(key), heads::<B, T>(value));
    run(&Call {
        shape: settings.shape,
        plan: &cpu::plan(settings),
        rule: &settings.rule,
        gather: settings.gather.as_deref(),
        mask: mask
            .as_ref()
            .map(|(bytes, dims)| Broadcast::new(bytes.as_ref(), *dims)),
        scale: settings.scale as f32,
        softcap: settings.softcap.map(|cap| cap as f32),
        alibi: settings.alibi.as_deref(),
        bias: bias
            .as_ref()
            .map(|(values, dims)| match settings.has_relative_bias {
                true => Broadcast::relative(values, shape.seq_q, shape.seq_k),
                false => Broadcast::new(values, *dims),
            }),
        has_relative_bias: settings.has_relative_bias,
        dropout: settings.dropout,
        program: settings.program,
        parameter: parameter.as_deref().unwrap_or_default(),
        score_mod: settings.score_mod.as_ref(),
        first_head: settings.first_head,
        is_tracked: settings.is_tracked,
        query: &T::elements::<B>(query),
        key: Heads {
            values: &key,
            stride: key_stride,
        },
        value: Heads {
            values: &value,
            stride: value_stride,
        },
    })
}

/// Implements the op for a backend whose tensors are in host memory.
#[cfg(any(feature = "flex", feature = "ndarray"))]
macro_rules! impl_host_backend {
    ($backend:ty) => {
        #[allow(deprecated)] // Burn 0.22 is the last to include NdArray, which we support.
        impl TiledForward for $backend {
            fn tiled_forward(inputs: Inputs<Self>, settings: TiledSettings) -> Outputs<Self> {
                forward(&inputs, &settings)
            }
        }

        #[allow(deprecated)] // Burn 0.22 is the last to include NdArray, which we support.
        impl TiledBackward for $backend {
            fn tiled_backward(
                saved: Saved<Self>,
                output_grads: OutputGrads<Self>,
                settings: &TiledSettings,
            ) -> InputGrads<Self> {
                backward::<Self>(saved, output_grads, settings)
            }
        }
    };
}

#[cfg(feature = "flex")]
impl_host_backend!(burn::backend::Flex);

#[cfg(feature = "ndarray")]
impl_host_backend!(burn::backend::NdArray);
