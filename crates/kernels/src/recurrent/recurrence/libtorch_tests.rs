//! Tensors of another device are refused before their memory is looked at. That device is
//! LibTorch's meta device, whose tensors have no memory at all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::{BackendTensor, DispatchTensor, DispatchTensorKind};

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use tch::Tensor;

use super::call::Settings;
use super::ops::RecurrenceForward;
use super::{Cell, Direction, Given, recurrence};
use crate::recurrent::LayerState;

fn burn_tensor<const D: usize>(tensor: Tensor) -> burn::tensor::Tensor<D> {
    let kind = DispatchTensorKind::LibTorch(BackendTensor::Float(TchTensor::new(tensor)));
    burn::tensor::Tensor::from_dispatch(DispatchTensor {
        kind,
        autodiff: Default::default(),
    })
}

fn here<const D: usize>(dims: [i64; D]) -> burn::tensor::Tensor<D> {
    let options = (tch::Kind::Float, tch::Device::Cpu);
    burn_tensor(Tensor::ones(dims.as_slice(), options))
}

fn elsewhere<const D: usize>(dims: [i64; D]) -> burn::tensor::Tensor<D> {
    burn_tensor(crate::aten::meta(&dims))
}

/// An LSTM of width 4 over 2 sequences of 3.
fn given() -> Given {
    Given {
        projected: here([2, 3, 16]),
        recurrent: here([4, 16]),
        input_bias: Some(here([1, 16])),
        hidden_bias: Some(here([1, 16])),
        state: Some(LayerState {
            hidden: here([2, 4]),
            cell: Some(here([2, 4])),
        }),
    }
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
    recurrence(given(), Cell::Lstm, Direction::Forward, None);
    type Change = fn(&mut Given);
    let cases: [(&str, Change); 5] = [
        ("matrix", |given| given.recurrent = elsewhere([4, 16])),
        ("input bias", |given| {
            given.input_bias = Some(elsewhere([1, 16]))
        }),
        ("hidden bias", |given| {
            given.hidden_bias = Some(elsewhere([1, 16]))
        }),
        ("state", |given| {
            given.state = Some(LayerState {
                hidden: elsewhere([2, 4]),
                cell: Some(here([2, 4])),
            });
        }),
        ("state's cell", |given| {
            given.state = Some(LayerState {
                hidden: here([2, 4]),
                cell: Some(elsewhere([2, 4])),
            });
        }),
    ];
    for (name, change) in cases {
        let mut given = given();
        change(&mut given);
        let call = || drop(recurrence(given, Cell::Lstm, Direction::Forward, None));
        assert_eq!(
            message(call),
            format!(
                "lstm recurrence: the {name} must be on the device of projected, Device<LibTorch(Cpu)>, \
                 got Device<LibTorch(Mps)>"
            )
        );
    }
}

/// What autodiff calls, past the checks of [`recurrence`].
#[test]
fn kernels_read_no_tensor_of_another_device() {
    let settings = Settings {
        cell: Cell::Gru,
        direction: Direction::Forward,
        batch: 2,
        seq: 3,
        d_hidden: 4,
        width: 4,
        lengths: vec![3; 2].into(),
    };
    let ones =
        |dims: &[i64]| TchTensor::new(Tensor::ones(dims, (tch::Kind::Float, tch::Device::Cpu)));
    let call = |initial: TchTensor| {
        let (projected, matrix) = (ones(&[2, 3, 12]), ones(&[4, 12]));
        LibTorch::recurrence(projected, matrix, ones(&[2, 12]), initial, settings.clone());
    };
    call(ones(&[2, 4]));
    assert_eq!(
        message(|| call(TchTensor::new(crate::aten::meta(&[2, 4])))),
        "LibTorch's access to host memory failed: the tensor must be Strided Float on cpu, got \
         Strided Float [2, 4] on meta"
    );
}
