//! A backward pass refuses tensors of another device, dtype or layout before it looks at their
//! memory. The other device is LibTorch's meta device, whose tensors have no memory at all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::libtorch::TchTensor;

use super::*;
use crate::AttentionShape;
use crate::flash::call::MoreHidden;

const DIMS: [i64; 4] = [1, 2, 5, 8];

fn on_cpu() -> tch::Tensor {
    tch::Tensor::ones(DIMS, (tch::Kind::Float, tch::Device::Cpu))
}

/// What a call panics with.
fn message(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("the call was accepted");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(_) => panic!("the message is not formatted"),
    }
}

/// What autodiff calls, past the checks of [`flash`](crate::flash()).
fn backward(change: impl FnOnce(&mut Saved<LibTorch>, &mut Arrived<LibTorch>)) {
    let shape = AttentionShape {
        heads: 2,
        kv_heads: 2,
        d_head: 8,
        d_value: 8,
        ..AttentionShape::of_sequences(1, 5, 5)
    };
    let settings = TiledSettings::of_rule(shape, Rule::Full);
    let tensor = || TchTensor::new(on_cpu());
    let inputs = Inputs {
        query: tensor(),
        key: tensor(),
        value: tensor(),
        hidden: MoreHidden::Nothing,
        bias: Bias::Nothing,
    };
    let (context, _, stats) = LibTorch::tiled_forward(inputs.clone(), settings.clone());
    let mut saved = Saved {
        inputs,
        context,
        stats,
    };
    let mut arrived = Arrived {
        d_context: tensor(),
        d_log_sum_exp: None,
        wants_bias: false,
    };
    change(&mut saved, &mut arrived);
    LibTorch::tiled_backward(saved, arrived, &settings);
}

#[test]
fn a_backward_pass_reads_no_tensor_that_does_not_fit() {
    backward(|_, _| {});
    let elsewhere = || TchTensor::new(zoo_kernels::aten::meta(&DIMS));
    let shorter = || TchTensor::new(on_cpu().narrow(2, 0, 4));
    let refused =
        |expected: &str, change: &dyn Fn(&mut Saved<LibTorch>, &mut Arrived<LibTorch>)| {
            let got = message(|| backward(change));
            assert_eq!(got, expected);
        };
    let prefix = "LibTorch's access to host memory failed: the tensor must be \
                  Strided Float on cpu, got ";
    let on_meta = format!("{prefix}Strided Float [1, 2, 5, 8] on meta");
    refused(&on_meta, &|_, arrived| arrived.d_context = elsewhere());
    refused(&on_meta, &|saved, _| saved.inputs.key = elsewhere());
    let half = || TchTensor::new(on_cpu().to_kind(tch::Kind::Half));
    let of_half = format!("{prefix}Strided Half [1, 2, 5, 8] on cpu");
    refused(&of_half, &|saved, _| saved.inputs.value = half());
    refused(
        "flash attention: 80 numbers of the context and of its gradient expected, got 80 and 64",
        &|_, arrived| arrived.d_context = shorter(),
    );
    refused(
        "flash attention: query, key and value must be [[1, 2, 5, 8], [1, 2, 5, 8], [1, 2, 5, 8]], \
         got [[1, 2, 5, 8], [1, 2, 5, 8], [1, 2, 4, 8]]",
        &|saved, _| saved.inputs.value = shorter(),
    );
}
