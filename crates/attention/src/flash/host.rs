//! Flex and NdArray: their tensors are numbers in the host's memory, and both
//! compute with the same [CPU body](super::cpu).

use std::borrow::Cow;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, TensorMetadata};

use super::cpu::{self, Call, Heads, Upstream};
use super::ops::{Arrived, Bias, InputGradients, MoreHidden, Saved, TiledSettings};
use super::sight::Sights;
use super::spread::Spread;

/// A backend whose tensors can be read and made as slices.
pub(super) trait Host: Backend {
    /// The numbers of a tensor, row by row; copied only if they do not lie so.
    fn numbers(tensor: &FloatTensor<Self>) -> Cow<'_, [f32]>;
    /// All numbers from the first of a tensor to its last, and how far apart neighbours
    /// along each dimension are; `None` where that is backwards or not known.
    fn strided(tensor: &FloatTensor<Self>) -> Option<(&[f32], [usize; 4])>;
    /// A bool tensor as bytes, zero for false, likewise.
    fn bytes(tensor: &BoolTensor<Self>) -> Cow<'_, [u8]>;
    /// A tensor of these numbers.
    fn tensor(numbers: Vec<f32>, dims: [usize; 4]) -> FloatTensor<Self>;
}

pub(super) fn forward<B: Host>(
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    value: FloatTensor<B>,
    hidden: MoreHidden<B>,
    bias: Bias<B>,
    settings: &TiledSettings,
) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let shape = settings.shape;
    with_call::<B, _>([&query, &key, &value], &hidden, &bias, settings, |call| {
        let (context, stats) = cpu::forward(call);
        let tensor =
            |numbers, width| B::tensor(numbers, [shape.batch, shape.heads, shape.seq_q, width]);
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
    let tensors = [&saved.query, &saved.key, &saved.value];
    let context = B::numbers(&saved.context);
    let stats = B::numbers(&saved.stats);
    let d_context = B::numbers(&arrived.d_context);
    let d_log_sum_exp = arrived.d_log_sum_exp.as_ref().map(B::numbers);
    let upstream = Upstream {
        context: &context,
        stats: &stats,
        d_context: &d_context,
        d_log_sum_exp: d_log_sum_exp.as_deref(),
    };
    let count = context.len();
    assert!(
        d_context.len() == count && count == settings.shape.context(),
        "flash attention: {} numbers of the context and of its gradient expected, got {count} and \
         {}",
        settings.shape.context(),
        d_context.len()
    );
    let bias_dims = saved
        .bias
        .as_ref()
        .filter(|_| arrived.wants_bias)
        .map(|bias| bias.shape().dims());
    let (gradients, d_bias) =
        with_call::<B, _>(tensors, &saved.hidden, &saved.bias, settings, |call| {
            let d_bias = bias_dims.map(|dims| cpu::backward_of_bias(call, &upstream, dims));
            (cpu::backward(call, &upstream), d_bias)
        });
    let [query, key, value] = tensors.map(|tensor| tensor.shape().dims());
    InputGradients {
        query: B::tensor(gradients.query, query),
        key: B::tensor(gradients.key, key),
        value: B::tensor(gradients.value, value),
        bias: d_bias
            .zip(bias_dims)
            .map(|(numbers, dims)| B::tensor(numbers, dims)),
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
    (B::numbers(tensor), rows * width)
}

/// The call that these tensors are, for the CPU body.
fn with_call<B: Host, R>(
    [query, key, value]: [&FloatTensor<B>; 3],
    hidden: &MoreHidden<B>,
    bias: &Bias<B>,
    settings: &TiledSettings,
    work: impl FnOnce(&Call<'_>) -> R,
) -> R {
    let hidden = match hidden {
        MoreHidden::Nothing => None,
        MoreHidden::Where(hidden) => Some((B::bytes(hidden), hidden.shape().dims())),
    };
    let bias = bias
        .as_ref()
        .map(|bias| (B::numbers(bias), bias.shape().dims()));
    let sights = Sights {
        shape: &settings.shape,
        rule: &settings.rule,
        hidden: hidden
            .as_ref()
            .map(|(bytes, dims)| Spread::new(bytes.as_ref(), *dims)),
    };
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
        sights: &sights,
        scale: settings.scale as f32,
        softcap: settings.softcap.map(|cap| cap as f32),
        alibi: settings.alibi.as_deref(),
        bias: bias
            .as_ref()
            .map(|(numbers, dims)| Spread::new(numbers.as_ref(), *dims)),
        dropout: settings.dropout,
        query: &B::numbers(query),
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

/// Numbers from the first to the last of a tensor.
#[cfg(any(feature = "flex", feature = "ndarray"))]
pub(super) fn span(dims: [usize; 4], strides: [usize; 4]) -> usize {
    let steps = dims
        .iter()
        .zip(strides)
        .map(|(dim, stride)| (dim - 1) * stride);
    1 + steps.sum::<usize>()
}

/// The op's two halves for a host backend.
#[cfg(any(feature = "flex", feature = "ndarray"))]
macro_rules! compute_on_the_host {
    ($backend:ty) => {
        impl crate::flash::ops::TiledForward for $backend {
            fn tiled_forward(
                query: FloatTensor<Self>,
                key: FloatTensor<Self>,
                value: FloatTensor<Self>,
                hidden: MoreHidden<Self>,
                bias: Bias<Self>,
                settings: TiledSettings,
            ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
                forward::<Self>(query, key, value, hidden, bias, &settings)
            }
        }

        impl crate::flash::ops::TiledBackward for $backend {
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
mod flex {
    use burn::backend::flex::FlexTensor;
    use burn::backend::{Flex, TensorData};

    use super::*;

    impl Host for Flex {
        fn numbers(tensor: &FlexTensor) -> Cow<'_, [f32]> {
            match tensor.as_slice() {
                Some(numbers) => Cow::Borrowed(numbers),
                None => Cow::Owned(tensor.to_contiguous().storage().to_vec()),
            }
        }

        fn strided(tensor: &FlexTensor) -> Option<(&[f32], [usize; 4])> {
            let layout = tensor.layout();
            let mut strides = [0; 4];
            for (into, &stride) in strides.iter_mut().zip(layout.strides()) {
                *into = usize::try_from(stride).ok()?;
            }
            let count = span(tensor.shape().dims(), strides);
            let numbers = tensor.storage().get(layout.start_offset()..)?;
            Some((numbers.get(..count)?, strides))
        }

        fn bytes(tensor: &FlexTensor) -> Cow<'_, [u8]> {
            // Its bools are bytes, whatever it calls them.
            Cow::Owned(tensor.to_contiguous().storage::<u8>().to_vec())
        }

        fn tensor(numbers: Vec<f32>, dims: [usize; 4]) -> FlexTensor {
            FlexTensor::from_data(TensorData::new(numbers, dims))
        }
    }

    compute_on_the_host!(Flex);
}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray; we carry it.
mod ndarray {
    use burn::backend::ndarray::NdArrayTensor;
    use burn::backend::{NdArray, TensorData};

    use super::*;

    impl Host for NdArray {
        fn numbers(tensor: &NdArrayTensor) -> Cow<'_, [f32]> {
            match tensor {
                NdArrayTensor::F32(numbers) => {
                    let view = numbers.view();
                    match view.to_slice() {
                        Some(numbers) => Cow::Borrowed(numbers),
                        None => Cow::Owned(view.iter().copied().collect()),
                    }
                }
                other => panic!(
                    "flash attention: {:?} tensors cannot be here",
                    other.dtype()
                ),
            }
        }

        fn strided(tensor: &NdArrayTensor) -> Option<(&[f32], [usize; 4])> {
            let NdArrayTensor::F32(numbers) = tensor else {
                return None;
            };
            let view = numbers.view();
            let mut strides = [0; 4];
            for (into, &stride) in strides.iter_mut().zip(view.strides()) {
                *into = usize::try_from(stride).ok()?;
            }
            let count = span(tensor.shape().dims(), strides);
            // SAFETY: the first number of the tensor and all up to its last are within the
            // memory of its array, which is kept for as long as the tensor is borrowed.
            // Nothing writes to a tensor that is an input of ours.
            let numbers = unsafe { std::slice::from_raw_parts(view.as_ptr(), count) };
            Some((numbers, strides))
        }

        fn bytes(tensor: &NdArrayTensor) -> Cow<'_, [u8]> {
            match tensor {
                NdArrayTensor::Bool(bools) => Cow::Owned(
                    bools
                        .view()
                        .iter()
                        .map(|&hidden| u8::from(hidden))
                        .collect(),
                ),
                other => panic!("flash attention: {:?} is no mask", other.dtype()),
            }
        }

        fn tensor(numbers: Vec<f32>, dims: [usize; 4]) -> NdArrayTensor {
            NdArrayTensor::from_data(TensorData::new(numbers, dims))
        }
    }

    compute_on_the_host!(NdArray);
}
