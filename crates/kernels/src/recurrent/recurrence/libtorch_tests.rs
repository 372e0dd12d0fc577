//! Tensors on another device are rejected before their memory is accessed. The other device is
//! LibTorch's meta device, whose tensors have no memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::{BackendTensor, DispatchTensor, DispatchTensorKind};

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use tch::Tensor;

use super::call::Settings;
use super::ops::RecurrenceForward;
use super::{Cell, Direction, RecurrenceInputs, recurrence};
use crate::recurrent::LayerState;

fn burn_tensor<const D: usize>(tensor: TchTensor) -> burn::tensor::Tensor<D> {
    let kind = DispatchTensorKind::LibTorch(BackendTensor::Float(tensor));
    burn::tensor::Tensor::from_dispatch(DispatchTensor {
        kind,
        autodiff: Default::default(),
    })
}

fn cpu(dims: &[i64]) -> TchTensor {
    TchTensor::new(Tensor::ones(dims, (tch::Kind::Float, tch::Device::Cpu)))
}

fn meta(dims: &[i64]) -> TchTensor {
    TchTensor::new(crate::aten::meta(dims))
}

fn cpu_tensor<const D: usize>(dims: [i64; D]) -> burn::tensor::Tensor<D> {
    burn_tensor(cpu(&dims))
}

fn meta_tensor<const D: usize>(dims: [i64; D]) -> burn::tensor::Tensor<D> {
    burn_tensor(meta(&dims))
}

/// Inputs of an LSTM with hidden size 4 over 2 sequences of length 3.
fn inputs() -> RecurrenceInputs {
    RecurrenceInputs {
        projected: cpu_tensor([2, 3, 16]),
        recurrent: cpu_tensor([4, 16]),
        input_bias: Some(cpu_tensor([1, 16])),
        hidden_bias: Some(cpu_tensor([1, 16])),
        state: Some(LayerState {
            hidden: cpu_tensor([2, 4]),
            cell: Some(cpu_tensor([2, 4])),
        }),
    }
}

fn message(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("the call was accepted");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(_) => panic!("the message is not formatted"),
    }
}

#[test]
fn inputs_on_another_device_are_rejected() {
    recurrence(inputs(), Cell::Lstm, Direction::Forward, None);
    fn state(inputs: &mut RecurrenceInputs) -> &mut LayerState {
        inputs.state.as_mut().expect("a state")
    }
    type Change = fn(&mut RecurrenceInputs);
    let cases: [(&str, Change); 5] = [
        ("matrix", |inputs| inputs.recurrent = meta_tensor([4, 16])),
        ("input bias", |inputs| {
            inputs.input_bias = Some(meta_tensor([1, 16]))
        }),
        ("hidden bias", |inputs| {
            inputs.hidden_bias = Some(meta_tensor([1, 16]))
        }),
        ("state", |inputs| state(inputs).hidden = meta_tensor([2, 4])),
        ("state's cell", |inputs| {
            state(inputs).cell = Some(meta_tensor([2, 4]));
        }),
    ];
    for (name, change) in cases {
        let mut inputs = inputs();
        change(&mut inputs);
        let call = || drop(recurrence(inputs, Cell::Lstm, Direction::Forward, None));
        assert_eq!(
            message(call),
            format!(
                "lstm recurrence: the {name} must be on the device of projected, Device<LibTorch(Cpu)>, \
                 got Device<LibTorch(Mps)>"
            )
        );
    }
}

/// The op that autodiff calls, without the checks of [`recurrence`].
#[test]
fn kernels_do_not_read_tensors_on_another_device() {
    let settings = Settings {
        cell: Cell::Gru,
        direction: Direction::Forward,
        batch: 2,
        seq: 3,
        d_hidden: 4,
        width: 4,
        lengths: vec![3; 2].into(),
    };
    let call = |initial: TchTensor| {
        let (projected, matrix) = (cpu(&[2, 3, 12]), cpu(&[4, 12]));
        LibTorch::recurrence(projected, matrix, cpu(&[2, 12]), initial, settings.clone());
    };
    call(cpu(&[2, 4]));
    assert_eq!(
        message(|| call(meta(&[2, 4]))),
        "LibTorch's access to host memory failed: the tensor must be Strided Float on cpu, got \
         Strided Float [2, 4] on meta"
    );
}
