//! The fused scan on backends whose tensors are in host memory, by the [CPU kernels](super::cpu).
//! All tensors are `f32`.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::sync::Arc;

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use zoo_kernels::cpu::InstructionSet;
use zoo_kernels::hosts::Host;

use super::call::{ScanInputs, ScanSettings};
use super::cpu::{self, Call, Heads, InputGrads, OutputGrads, Stats};
use super::ops::{LinearScan, Saved, ScanPasses};

macro_rules! impl_host_backend {
    ($($feature:literal: $backend:ident,)*) => {$(
        #[cfg(feature = $feature)]
        impl LinearScan for burn::backend::$backend {
            fn linear_scan(inputs: ScanInputs<Self>, settings: ScanSettings) -> FloatTensor<Self> {
                forward::<Self>(&inputs, &settings).0
            }
        }

        #[cfg(feature = $feature)]
        impl ScanPasses for burn::backend::$backend {
            type Stats = Arc<Stats>;

            fn scan_forward(
                inputs: &ScanInputs<Self>,
                settings: &ScanSettings,
            ) -> (FloatTensor<Self>, Arc<Stats>) {
                let (context, stats) = forward::<Self>(inputs, settings);
                (context, Arc::new(stats))
            }

            fn scan_backward(
                saved: Saved<Self>,
                d_context: FloatTensor<Self>,
            ) -> [FloatTensor<Self>; 3] {
                backward::<Self>(saved, d_context)
            }
        }
    )*};
}

impl_host_backend! {
    "flex": Flex,
    "ndarray": NdArray,
    "tch": LibTorch,
}

fn forward<B: Host>(inputs: &ScanInputs<B>, settings: &ScanSettings) -> (FloatTensor<B>, Stats) {
    let shape = settings.shape;
    let dims = [shape.batch, shape.heads, shape.seq_q, shape.d_value];
    let mut context = Uninit::new(dims);
    let stats = with_call(inputs, settings, |call| {
        cpu::forward(call, context.elements())
    });
    // SAFETY: the forward pass wrote every element.
    (unsafe { context.into_tensor::<B>() }, stats)
}

/// The gradients of query, key and value.
fn backward<B>(saved: Saved<B>, d_context: FloatTensor<B>) -> [FloatTensor<B>; 3]
where
    B: Host + ScanPasses<Stats = Arc<Stats>>,
{
    let Saved {
        inputs,
        context,
        stats,
        settings,
    } = saved;
    let shape = settings.shape;
    let expected = [shape.batch, shape.heads, shape.seq_q, shape.d_value];
    let got = d_context.shape().dims::<4>();
    assert!(
        got == expected,
        "linear attention: the output gradient must be {expected:?}, got {got:?}"
    );
    let context = context.as_ref().map(B::elements).unwrap_or_default();
    let mut d_key = Uninit::new(inputs.key.shape().dims());
    let mut d_value = Uninit::new(inputs.value.shape().dims());
    let strides = B::strided(&d_context).map(|(_, strides)| strides);
    let [_, heads, seq, width] = expected;
    let is_contiguous = strides == Some([heads * seq * width, seq * width, width, 1]);
    let d_query = if shape.d_head == shape.d_value && is_contiguous {
        let mut d_query = B::into_unique(d_context);
        let grads = InputGrads {
            d_query: cpu::initialised(B::elements_mut(&mut d_query)),
            d_key: d_key.elements(),
            d_value: d_value.elements(),
        };
        with_call(&inputs, &settings, |call| {
            cpu::backward(call, &context, &stats, OutputGrads::InPlace, grads);
        });
        d_query
    } else {
        let mut d_query = Uninit::new(inputs.query.shape().dims());
        let grads = InputGrads {
            d_query: d_query.elements(),
            d_key: d_key.elements(),
            d_value: d_value.elements(),
        };
        let (elements, strides) = strided::<B>(&d_context);
        let heads = Heads::new(&elements, strides, shape.d_value);
        with_call(&inputs, &settings, |call| {
            cpu::backward(call, &context, &stats, OutputGrads::Separate(heads), grads);
        });
        // SAFETY: the backward pass wrote every element.
        unsafe { d_query.into_tensor::<B>() }
    };
    // SAFETY: as above.
    unsafe {
        [
            d_query,
            d_key.into_tensor::<B>(),
            d_value.into_tensor::<B>(),
        ]
    }
}

/// The memory of a new tensor. Filling it with zeros would take a tenth of the forward pass.
pub(super) struct Uninit {
    elements: Vec<f32>,
    dims: [usize; 4],
}

impl Uninit {
    pub(super) fn new(dims: [usize; 4]) -> Self {
        Self {
            elements: Vec::with_capacity(dims.iter().product()),
            dims,
        }
    }

    pub(super) fn elements(&mut self) -> &mut [MaybeUninit<f32>] {
        let len = self.dims.iter().product();
        &mut self.elements.spare_capacity_mut()[..len]
    }

    /// # Safety
    ///
    /// All elements were written.
    pub(super) unsafe fn into_tensor<B: Host>(mut self) -> FloatTensor<B> {
        // SAFETY: as promised by the caller.
        unsafe { self.elements.set_len(self.dims.iter().product()) };
        B::from_vec(self.elements, &self.dims)
    }
}

/// The elements of a tensor and the strides of examples, heads and rows; copied only if the
/// elements of a row are not contiguous.
pub(super) fn strided<B: Host>(tensor: &FloatTensor<B>) -> (Cow<'_, [f32]>, [usize; 3]) {
    let [_, heads, seq, width] = tensor.shape().dims();
    if let Some((elements, [examples, by_head, rows, 1])) = B::strided(tensor) {
        return (Cow::Borrowed(elements), [examples, by_head, rows]);
    }
    let strides = [heads * seq * width, seq * width, width];
    (B::elements(tensor), strides)
}

/// Runs a function on the arguments of the CPU kernels.
fn with_call<B: Host, R>(
    inputs: &ScanInputs<B>,
    settings: &ScanSettings,
    run: impl FnOnce(&Call<'_>) -> R,
) -> R {
    let shape = settings.shape;
    let tensors = [&inputs.query, &inputs.key, &inputs.value];
    let [query, key, value] = tensors.map(strided::<B>);
    let masked = inputs.masked.as_ref().map(B::bytes);
    if let Some(masked) = &masked {
        let len = masked.len();
        assert!(
            len == shape.seq_k || len == shape.batch * shape.seq_k,
            "linear attention: the mask must have {} elements for each example, got {len}",
            shape.seq_k
        );
    }
    run(&Call {
        shape,
        is_causal: settings.is_causal,
        map: &settings.map,
        scale: settings.scale.map(|scale| scale as f32),
        query: Heads::new(&query.0, query.1, shape.d_head),
        key: Heads::new(&key.0, key.1, shape.d_head),
        value: Heads::new(&value.0, value.1, shape.d_value),
        masked: masked.as_deref(),
        set: InstructionSet::detect(),
        segments: cpu::default_segments(&shape),
    })
}
