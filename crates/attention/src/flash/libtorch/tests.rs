//! The backward pass rejects tensors of another device, dtype or layout before it reads their
//! memory. The other device is LibTorch's meta device, whose tensors have no memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::libtorch::TchTensor;

use super::*;
use crate::AttentionShape;
use crate::flash::call::DenseMask;

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
