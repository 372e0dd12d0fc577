//! The backward pass rejects tensors of another device, dtype or layout before it reads their
//! memory. The other device is LibTorch's meta device, whose tensors have no memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::libtorch::TchTensor;
use burn::tensor::{Device, Tensor};

use super::*;
use crate::flash::call::DenseMask;
use crate::pattern::rule::Rule;
use crate::{AttentionOptions, AttentionShape, Pattern, flash};

const DIMS: [i64; 4] = [1, 2, 5, 8];

fn on_cpu() -> tch::Tensor {
    tch::Tensor::ones(DIMS, (tch::Kind::Float, tch::Device::Cpu))
}

fn panic_message(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("the call was accepted");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(_) => panic!("the message is not formatted"),
    }
}

/// The backward pass without the checks of [`flash`](crate::flash()).
fn backward(change: impl FnOnce(&mut Saved<LibTorch>, &mut OutputGrads<LibTorch>)) {
    let shape = AttentionShape {
        heads: 2,
        kv_heads: 2,
        d_head: 8,
        d_value: 8,
        ..AttentionShape::single_head(1, 5, 5)
    };
    let settings = TiledSettings::from_rule(shape, Rule::Full);
    let tensor = || TchTensor::new(on_cpu());
    let qkv = [tensor(), tensor(), tensor()];
    let inputs = Inputs::new(qkv, DenseMask::None, [Optional::None, Optional::None]);
    let (context, _, stats) = LibTorch::tiled_forward(inputs.clone(), settings.clone());
    let mut saved = Saved {
        inputs,
        context,
        stats,
    };
    let mut output_grads = OutputGrads {
        d_context: tensor(),
        d_log_sum_exp: None,
        needs_bias_grad: false,
    };
    change(&mut saved, &mut output_grads);
    LibTorch::tiled_backward(saved, output_grads, &settings);
}

#[test]
fn backward_rejects_invalid_tensors() {
    backward(|_, _| {});
    let other_device = || TchTensor::new(zoo_kernels::aten::meta(&DIMS));
    let shorter = || TchTensor::new(on_cpu().narrow(2, 0, 4));
    let assert_rejected =
        |expected: &str, change: &dyn Fn(&mut Saved<LibTorch>, &mut OutputGrads<LibTorch>)| {
            assert_eq!(panic_message(|| backward(change)), expected);
        };
    let prefix = "LibTorch's access to host memory failed: the tensor must be \
                  Strided Float on cpu, got ";
    let on_meta = format!("{prefix}Strided Float [1, 2, 5, 8] on meta");
    assert_rejected(&on_meta, &|_, output_grads| {
        output_grads.d_context = other_device()
    });
    assert_rejected(&on_meta, &|saved, _| saved.inputs.key = other_device());
    let half = || TchTensor::new(on_cpu().to_kind(tch::Kind::Half));
    let of_half = format!("{prefix}Strided Half [1, 2, 5, 8] on cpu");
    assert_rejected(&of_half, &|saved, _| saved.inputs.value = half());
    assert_rejected(
        "flash attention: expected 80 elements in the context and in its gradient, got 80 and 64",
        &|_, output_grads| output_grads.d_context = shorter(),
    );
    assert_rejected(
        "flash attention: query, key and value must be [[1, 2, 5, 8], [1, 2, 5, 8], [1, 2, 5, 8]], \
         got [[1, 2, 5, 8], [1, 2, 5, 8], [1, 2, 4, 8]]",
        &|saved, _| saved.inputs.value = shorter(),
    );
}

thread_local! {
    static IS_ATEN_FORCED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether tensors on the CPU are computed as on CUDA, with a reference implementation of the
/// kernels.
pub(super) fn is_aten_forced() -> bool {
    IS_ATEN_FORCED.get()
}

/// The context of query, key and value.
type Attention<'a> = dyn Fn([Tensor<4>; 3]) -> Tensor<4> + 'a;

/// The context and the gradients of query, key and value.
pub(super) fn context_and_grads(
    attention: &Attention<'_>,
    tensors: &[Tensor<4>; 3],
    d_context: &Tensor<4>,
    is_aten: bool,
) -> Vec<Vec<f32>> {
    IS_ATEN_FORCED.set(is_aten);
    let inputs = tensors.clone().map(|tensor| tensor.require_grad());
    let context = attention(inputs.clone());
    let grads = (context.clone() * d_context.clone()).sum().backward();
    IS_ATEN_FORCED.set(false);
    let grads = inputs.map(|input| match input.grad(&grads) {
        Some(grad) => grad,
        None => panic!("no gradient"),
    });
    let values = |tensor: Tensor<4>| tensor.into_data().iter().collect();
    [vec![context.detach()], grads.to_vec()]
        .concat()
        .into_iter()
        .map(values)
        .collect()
}

/// Mechanisms as on CUDA, compared with the CPU kernels.
#[test]
fn mechanisms_match_cpu_kernels() {
    let device = Device::libtorch().autodiff();
    let (seq, heads, kv_heads) = (300, 4, 2);
    let random = |heads: usize| {
        let distribution = burn::tensor::Distribution::Normal(0.0, 1.0);
        Tensor::<4>::random([2, heads, seq, 8], distribution, &device)
    };
    let tensors = [random(heads), random(kv_heads), random(kv_heads)];
    let d_context = random(heads);
    let plain = AttentionOptions::default();
    let causal = plain.clone().with_pattern(Pattern::Causal);
    let lengths = Pattern::Causal.and(Pattern::key_lengths([seq, 123]));
    let lengths = plain.clone().with_pattern(lengths);
    let alibi = AttentionOptions {
        alibi: Some(vec![0.5, 0.25, 0.125, 0.0625]),
        ..causal.clone()
    };
    for options in [plain, causal, lengths, alibi] {
        let with_pattern = |pattern: Pattern| {
            let options = options.restricted_to(pattern);
            move |[query, key, value]: [Tensor<4>; 3]| flash(query, key, value, &options)
        };
        IS_ATEN_FORCED.set(true);
        let sparse = options.restricted_to(Pattern::longformer(20, [0, 1]));
        let [query, key, value] = &tensors;
        let kernel = crate::flash::selected_kernel(query, key, value, &sparse);
        assert_eq!(kernel, FlashKernel::Aten);
        IS_ATEN_FORCED.set(false);
        let bird = zoo_spec::BigBird::default();
        let big_bird = with_pattern(Pattern::big_bird(&bird, seq));
        let longformer = with_pattern(Pattern::longformer(20, [0, 1]));
        let window = with_pattern(Pattern::window(10));
        let block = with_pattern(Pattern::Block { size: 64 });
        let strided = |[query, key, value]: [Tensor<4>; 3]| {
            crate::mechanisms::strided(query, key, value, 17, &options)
        };
        let fixed = |[query, key, value]: [Tensor<4>; 3]| {
            crate::mechanisms::fixed(query, key, value, 17, 2, &options)
        };
        let local = |[query, key, value]: [Tensor<4>; 3]| {
            crate::mechanisms::local_m::local_monotonic(query, key, value, 9, &options)
        };
        let mechanisms: [(&str, &Attention<'_>); 7] = [
            ("big bird", &big_bird),
            ("longformer", &longformer),
            ("window", &window),
            ("block", &block),
            ("strided", &strided),
            ("fixed", &fixed),
            ("local-m", &local),
        ];
        let hashing = zoo_spec::Lsh::new(16, 3, 5);
        let lsh = |[query, key, value]: [Tensor<4>; 3]| {
            crate::mechanisms::lsh(query, Tensor::cat(vec![key, value], 1), &hashing, &options)
        };
        let lsh: (&str, &Attention<'_>) = ("lsh", &lsh);
        let lsh = options.alibi.is_none().then_some(lsh);
        for (name, attention) in mechanisms.into_iter().chain(lsh) {
            let run = |is_aten| context_and_grads(attention, &tensors, &d_context, is_aten);
            for (actual, expected) in run(true).iter().zip(run(false)) {
                let difference = actual.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                let error = difference.fold(0.0, f32::max);
                assert!(error < 5e-5, "{name}: error {error}, {options:?}");
            }
        }
    }
}

/// Masked keys and values that are not finite do not change the result.
#[test]
fn masked_non_finite_keys_have_no_effect() {
    let device = Device::libtorch().autodiff();
    let random = |heads: usize| {
        let distribution = burn::tensor::Distribution::Normal(0.0, 1.0);
        Tensor::<4>::random([2, heads, 150, 8], distribution, &device)
    };
    let clean = [random(4), random(2), random(2)];
    let d_context = random(4);
    let masked = |tensor: &Tensor<4>, value: f32| {
        let tail = tensor.clone().slice_dim(2, 100..150).zeros_like() + value;
        Tensor::cat(vec![tensor.clone().slice_dim(2, 0..100), tail], 2)
    };
    let [query, key, value] = clean.clone();
    let non_finite = [query, masked(&key, f32::NAN), masked(&value, f32::INFINITY)];
    let options = AttentionOptions::default().with_pattern(Pattern::key_lengths([100, 60]));
    let options = options.restricted_to(Pattern::longformer(7, [3]));
    let attention = |[query, key, value]: [Tensor<4>; 3]| flash(query, key, value, &options);
    let hard = |[query, key, value]: [Tensor<4>; 3]| {
        let selection = crate::mechanisms::hard::HardSelection::Sampled {
            temperature: 0.5,
            seed: 1,
        };
        crate::mechanisms::hard::hard(query, key, value, selection, &options)
    };
    let mechanisms: [&Attention<'_>; 2] = [&attention, &hard];
    for attention in mechanisms {
        let actual = context_and_grads(attention, &non_finite, &d_context, true);
        let expected = context_and_grads(attention, &clean, &d_context, false);
        for (actual, expected) in actual.iter().zip(&expected) {
            assert!(
                actual
                    .iter()
                    .zip(expected)
                    .all(|(a, b)| (a - b).abs() < 5e-5)
            );
        }
    }
}
