//! Tensors of another device, dtype or layout are refused before their memory is looked at. The
//! other device is LibTorch's meta device, whose tensors have no memory at all.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use burn::backend::libtorch::TchTensor;
use burn::backend::{BackendTensor, DispatchTensor, DispatchTensorKind};
use burn::tensor::{Bool, Tensor};

use super::*;
use crate::{AttentionOptions, AttentionShape, Pattern, flash};

const DIMS: [i64; 4] = [1, 2, 5, 8];

fn on_cpu() -> tch::Tensor {
    tch::Tensor::ones(DIMS, (tch::Kind::Float, tch::Device::Cpu))
}

fn burn_tensor(tensor: tch::Tensor) -> Tensor<4> {
    let kind = DispatchTensorKind::LibTorch(BackendTensor::Float(TchTensor::new(tensor)));
    Tensor::from_dispatch(DispatchTensor {
        kind,
        autodiff: Default::default(),
    })
}

fn burn_mask(tensor: tch::Tensor) -> Tensor<4, Bool> {
    let tensor = TchTensor::new(tensor.to_kind(tch::Kind::Bool));
    let kind = DispatchTensorKind::LibTorch(BackendTensor::Bool(tensor));
    Tensor::from_dispatch(DispatchTensor {
        kind,
        autodiff: Default::default(),
    })
}

/// What a call panics with.
fn message(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("the call was accepted");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(_) => panic!("the message is not formatted"),
    }
}

#[test]
fn inputs_on_another_device_are_refused() {
    let here = || burn_tensor(on_cpu());
    let elsewhere = || burn_tensor(zoo_kernels::aten::meta(&DIMS));
    let full = AttentionOptions::new();
    let expected =
        "must be on the device of query, Device<LibTorch(Cpu)>, got Device<LibTorch(Mps)>";
    assert_eq!(
        message(|| drop(flash(here(), elsewhere(), here(), &full))),
        format!("flash attention: key {expected}")
    );
    assert_eq!(
        message(|| drop(flash(here(), here(), elsewhere(), &full))),
        format!("flash attention: value {expected}")
    );
    let bias = || burn_tensor(zoo_kernels::aten::meta(&[1, 1, 5, 5]));
    assert_eq!(
        message(|| {
            let options = AttentionOptions::new().with_bias(bias());
            drop(flash(here(), here(), here(), &options));
        }),
        format!("flash attention: a bias {expected}")
    );
    assert_eq!(
        message(|| {
            let mask = burn_mask(zoo_kernels::aten::meta(&[1, 1, 5, 5]));
            let options = AttentionOptions::new().with_pattern(Pattern::Dense(mask));
            drop(flash(here(), here(), here(), &options));
        }),
        format!("flash attention: a dense mask {expected}")
    );
    // And the other way round: nothing of the query is read.
    assert_eq!(
        message(|| drop(flash(elsewhere(), here(), here(), &full))),
        "flash attention: key must be on the device of query, Device<LibTorch(Mps)>, got Device<LibTorch(Cpu)>"
    );
}

/// What autodiff calls, past the checks of [`flash`].
fn backward(change: impl FnOnce(&mut Saved<LibTorch>, &mut Arrived<LibTorch>)) {
    let shape = AttentionShape {
        batch: 1,
        heads: 2,
        kv_heads: 2,
        seq_q: 5,
        seq_k: 5,
        d_head: 8,
        d_value: 8,
    };
    let settings = TiledSettings {
        shape,
        rule: Arc::new(Rule::Full),
        scale: 0.3,
        softcap: None,
        alibi: None,
        dropout: None,
        assume_finite: false,
        is_portable: false,
    };
    let tensor = || TchTensor::new(on_cpu());
    let (context, _, stats) = LibTorch::tiled_forward(
        tensor(),
        tensor(),
        tensor(),
        MoreHidden::Nothing,
        Bias::Nothing,
        settings.clone(),
    );
    let mut saved = Saved {
        query: tensor(),
        key: tensor(),
        value: tensor(),
        hidden: MoreHidden::Nothing,
        bias: Bias::Nothing,
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
    let got =
        |change: fn(&mut Saved<LibTorch>, &mut Arrived<LibTorch>)| message(|| backward(change));
    let prefix = "LibTorch's access to host memory failed: the tensor must be \
                  Strided Float on cpu, got ";
    assert_eq!(
        got(|_, arrived| arrived.d_context = TchTensor::new(zoo_kernels::aten::meta(&DIMS))),
        format!("{prefix}Strided Float [1, 2, 5, 8] on meta")
    );
    assert_eq!(
        got(|saved, _| saved.key = TchTensor::new(zoo_kernels::aten::meta(&DIMS))),
        format!("{prefix}Strided Float [1, 2, 5, 8] on meta")
    );
    assert_eq!(
        got(|saved, _| saved.value = TchTensor::new(on_cpu().to_kind(tch::Kind::Half))),
        format!("{prefix}Strided Half [1, 2, 5, 8] on cpu")
    );
    assert_eq!(
        got(|_, arrived| arrived.d_context = TchTensor::new(on_cpu().narrow(2, 0, 4))),
        "flash attention: 80 numbers of the context and of its gradient expected, got 80 and 64"
    );
    assert_eq!(
        got(|saved, _| saved.value = TchTensor::new(on_cpu().narrow(2, 0, 4))),
        "flash attention: query, key and value must be [[1, 2, 5, 8], [1, 2, 5, 8], [1, 2, 5, 8]], \
         got [[1, 2, 5, 8], [1, 2, 5, 8], [1, 2, 4, 8]]"
    );
}
