//! Flex and NdArray: their tensors are numbers in the host's memory, and both
//! compute with the same [CPU body](super::cpu).

use std::borrow::Cow;

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use zoo_kernels::hosts::Host;

use super::call::{Arrived, InputGradients, Inputs, MoreHidden, Outputs, Saved, TiledSettings};
use super::cpu::{self, Call, Heads, Upstream};
#[cfg(any(feature = "flex", feature = "ndarray"))]
use super::ops::{TiledBackward, TiledForward};
use super::spread::Spread;

pub(super) fn forward<B: Host>(inputs: &Inputs<B>, settings: &TiledSettings) -> Outputs<B> {
    let shape = settings.shape;
    with_call(inputs, settings, |call| {
        let (context, stats) = cpu::forward(call);
        let tensor =
            |numbers, width| B::from_vec(numbers, &[shape.batch, shape.heads, shape.seq_q, width]);
        (
            tensor(context, shape.d_value),
            tensor(cpu::log_sum_exp(&stats), 1),
            tensor(stats, cpu::STATS),
        )
    })
}

pub(super) fn backward<B: Host>(
    saved: Saved<B>,
    arrived: Arrived<B>,
    settings: &TiledSettings,
) -> InputGradients<B> {
    let inputs = &saved.inputs;
    let context = B::elements(&saved.context);
    let stats = B::elements(&saved.stats);
    let d_context = B::elements(&arrived.d_context);
    let d_log_sum_exp = arrived.d_log_sum_exp.as_ref().map(B::elements);
    let count = context.len();
    assert!(
        d_context.len() == count && count == settings.shape.context(),
        "flash attention: {} numbers of the context and of its gradient expected, got {count} and \
         {}",
        settings.shape.context(),
        d_context.len()
    );
    let bias_dims = inputs
        .bias
        .as_ref()
        .filter(|_| arrived.wants_bias)
        .map(|bias| bias.shape().dims::<4>());
    let ([query, key, value], d_bias) = with_call(inputs, settings, |call| {
        let of_tiles = cpu::stats_of_tiles(call, &stats);
        let upstream = Upstream {
            context: &context,
            stats: of_tiles.as_deref().unwrap_or(&stats),
            d_context: &d_context,
            d_log_sum_exp: d_log_sum_exp.as_deref(),
        };
        let d_bias = bias_dims.map(|dims| cpu::backward_of_bias(call, &upstream, dims));
        (cpu::backward(call, &upstream), d_bias)
    });
    let like = |numbers, tensor: &FloatTensor<B>| B::from_vec(numbers, &tensor.shape());
    InputGradients {
        query: like(query, &inputs.query),
        key: like(key, &inputs.key),
        value: like(value, &inputs.value),
        bias: d_bias
            .zip(bias_dims)
            .map(|(numbers, dims)| B::from_vec(numbers, &dims)),
    }
}

/// Numbers head by head, and from one to the next; copied only if rows do not lie side by
/// side. The first rows of a larger room, as a cache gives them, are not copied.
fn heads<B: Host>(tensor: &FloatTensor<B>) -> (Cow<'_, [f32]>, usize) {
    let [batch, heads, rows, width] = tensor.shape().dims();
    if let Some((numbers, strides)) = B::strided(tensor) {
        // A stride along a dimension of one leads nowhere.
        let is = |dim: usize, stride: usize| {
            [batch, heads, rows, width][dim] == 1 || strides[dim] == stride
        };
        let apart = match heads {
            1 => strides[0],
            _ => strides[1],
        };
        let apart = if batch * heads == 1 {
            rows * width
        } else {
            apart
        };
        if is(0, heads * apart) && is(2, width) && is(3, 1) && apart >= rows * width {
            return (Cow::Borrowed(numbers), apart);
        }
    }
    (B::elements(tensor), rows * width)
}

/// The call that these tensors are, for the CPU body.
fn with_call<B: Host, R>(
    inputs: &Inputs<B>,
    settings: &TiledSettings,
    work: impl FnOnce(&Call<'_>) -> R,
) -> R {
    let Inputs {
        query, key, value, ..
    } = inputs;
    let hidden = match &inputs.hidden {
        MoreHidden::Nothing => None,
        MoreHidden::Where(hidden) => Some((B::bytes(hidden), hidden.shape().dims())),
    };
    let bias = inputs.bias.as_ref();
    let bias = bias.map(|bias| (B::elements(bias), bias.shape().dims()));
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
    let ((key, key_apart), (value, value_apart)) = (heads::<B>(key), heads::<B>(value));
    work(&Call {
        shape: settings.shape,
        plan: &cpu::plan(settings),
        rule: &settings.rule,
        hidden: hidden
            .as_ref()
            .map(|(bytes, dims)| Spread::new(bytes.as_ref(), *dims)),
        scale: settings.scale as f32,
        softcap: settings.softcap.map(|cap| cap as f32),
        alibi: settings.alibi.as_deref(),
        bias: bias
            .as_ref()
            .map(|(numbers, dims)| Spread::new(numbers.as_ref(), *dims)),
        dropout: settings.dropout,
        query: &B::elements(query),
        key: Heads {
            numbers: &key,
            apart: key_apart,
        },
        value: Heads {
            numbers: &value,
            apart: value_apart,
        },
    })
}

/// The op's two halves for a host backend.
#[cfg(any(feature = "flex", feature = "ndarray"))]
macro_rules! compute_on_the_host {
    ($backend:ty) => {
        #[allow(deprecated)] // Burn 0.22 is the last to carry NdArray; we carry it.
        impl TiledForward for $backend {
            fn tiled_forward(inputs: Inputs<Self>, settings: TiledSettings) -> Outputs<Self> {
                forward(&inputs, &settings)
            }
        }

        #[allow(deprecated)] // Burn 0.22 is the last to carry NdArray; we carry it.
        impl TiledBackward for $backend {
            fn tiled_backward(
                saved: Saved<Self>,
                arrived: Arrived<Self>,
                settings: &TiledSettings,
            ) -> InputGradients<Self> {
                backward::<Self>(saved, arrived, settings)
            }
        }
    };
}

#[cfg(feature = "flex")]
compute_on_the_host!(burn::backend::Flex);

#[cfg(feature = "ndarray")]
compute_on_the_host!(burn::backend::NdArray);
