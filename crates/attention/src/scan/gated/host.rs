//! The gated recurrence of host backends, by the [CPU kernels](super::cpu). All tensors are `f32`.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use zoo_kernels::cpu::InstructionSet;
use zoo_kernels::hosts::Host;

use super::cpu::{self, Call, InputGrads};
use super::ops::{GatedInputs, GatedPasses, GatedScan, GatedSettings, Saved};
use crate::scan::cpu::Heads;
use crate::scan::host::{Uninit, strided};

macro_rules! impl_host_backend {
    ($($feature:literal: $backend:ident,)*) => {$(
        #[cfg(feature = $feature)]
        impl GatedScan for burn::backend::$backend {
            fn gated_scan(
                inputs: GatedInputs<Self>,
                settings: GatedSettings,
            ) -> FloatTensor<Self> {
                Self::gated_forward(&inputs, &settings, false).0
            }
        }

        #[cfg(feature = $feature)]
        impl GatedPasses for burn::backend::$backend {
            fn gated_forward(
                inputs: &GatedInputs<Self>,
                settings: &GatedSettings,
                is_tracked: bool,
            ) -> (FloatTensor<Self>, Vec<f32>) {
                forward::<Self>(inputs, settings, is_tracked)
            }

            fn gated_backward(
                saved: Saved<Self>,
                d_context: FloatTensor<Self>,
            ) -> [FloatTensor<Self>; 5] {
                backward::<Self>(&saved, &d_context)
            }
        }
    )*};
}

impl_host_backend! {
    "flex": Flex,
    "ndarray": NdArray,
    "tch": LibTorch,
}

fn forward<B: Host>(
    inputs: &GatedInputs<B>,
    settings: &GatedSettings,
    is_tracked: bool,
) -> (FloatTensor<B>, Vec<f32>) {
    let shape = settings.shape;
    let mut context = Uninit::new([shape.batch, shape.heads, shape.seq_q, shape.d_value]);
    let states = with_call(inputs, settings, |call| {
        let len = if is_tracked { call.states_len() } else { 0 };
        let mut states = vec![0.0; len];
        cpu::forward(call, context.elements(), &mut states);
        states
    });
    // SAFETY: the forward pass wrote every element.
    (unsafe { context.into_tensor::<B>() }, states)
}

fn backward<B: Host>(saved: &Saved<B>, d_context: &FloatTensor<B>) -> [FloatTensor<B>; 5] {
    let (inputs, shape) = (&saved.inputs, saved.settings.shape);
    let expected = [shape.batch, shape.heads, shape.seq_q, shape.d_value];
    let got = d_context.shape().dims::<4>();
    assert!(
        got == expected,
        "gated recurrence: the output gradient must be {expected:?}, got {got:?}"
    );
    let tensors = [
        &inputs.query,
        &inputs.key,
        &inputs.value,
        &inputs.log_decay,
        &inputs.strength,
    ];
    let mut grads = tensors.map(|tensor| Uninit::new(tensor.shape().dims()));
    let [query, key, value, log_decay, strength] = grads.each_mut().map(Uninit::elements);
    let outputs = InputGrads {
        query,
        key,
        value,
        log_decay,
        strength,
    };
    let (elements, strides) = strided::<B>(d_context);
    let d_context = Heads::new(&elements, strides, shape.d_value);
    with_call(inputs, &saved.settings, |call| {
        cpu::backward(call, &saved.states, d_context, outputs);
    });
    // SAFETY: the backward pass wrote every element.
    grads.map(|grad| unsafe { grad.into_tensor::<B>() })
}

/// Runs a function on the arguments of the CPU kernels.
fn with_call<B: Host, R>(
    inputs: &GatedInputs<B>,
    settings: &GatedSettings,
    run: impl FnOnce(&Call<'_>) -> R,
) -> R {
    let shape = settings.shape;
    let query = strided::<B>(&inputs.query);
    let key = strided::<B>(&inputs.key);
    let value = strided::<B>(&inputs.value);
    let log_decay = strided::<B>(&inputs.log_decay);
    let strength = strided::<B>(&inputs.strength);
    let [.., decays] = inputs.log_decay.shape().dims::<4>();
    run(&Call {
        shape,
        update: settings.update,
        scale: settings.scale as f32,
        decays,
        query: Heads::new(&query.0, query.1, shape.d_head),
        key: Heads::new(&key.0, key.1, shape.d_head),
        value: Heads::new(&value.0, value.1, shape.d_value),
        log_decay: Heads::new(&log_decay.0, log_decay.1, decays),
        strength: Heads::new(&strength.0, strength.1, 1),
        set: InstructionSet::detect(),
    })
}
