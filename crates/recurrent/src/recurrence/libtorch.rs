//! LibTorch: on the CPU the [CPU body](super::cpu), on its tensors' own memory; elsewhere the
//! portable one.

use std::borrow::Cow;

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use burn::backend::tensor::FloatTensor;
use tch::Tensor;

use super::host::{self, Host};
use super::ops::{
    InputGradients, RecurrenceForward, RecurrenceTraining, Remembered, Saved, Settings,
};
use super::portable;

fn is_on_the_host(tensor: &TchTensor) -> bool {
    tensor.tensor.device() == tch::Device::Cpu
}

impl RecurrenceForward for LibTorch {
    fn recurrence(
        projected: FloatTensor<Self>,
        recurrent: FloatTensor<Self>,
        biases: FloatTensor<Self>,
        initial: FloatTensor<Self>,
        settings: Settings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        if is_on_the_host(&projected) {
            let tensors = [&projected, &recurrent, &biases, &initial];
            let ran = host::forward::<Self>(tensors, &settings, false);
            return (ran.outputs, ran.last);
        }
        portable::forward::<Self>(projected, recurrent, biases, initial, &settings)
    }
}

impl RecurrenceTraining for LibTorch {
    fn recurrence_forward(
        projected: FloatTensor<Self>,
        recurrent: FloatTensor<Self>,
        biases: FloatTensor<Self>,
        initial: FloatTensor<Self>,
        settings: &Settings,
    ) -> Remembered<Self> {
        if is_on_the_host(&projected) {
            let tensors = [&projected, &recurrent, &biases, &initial];
            return host::forward::<Self>(tensors, settings, true);
        }
        portable::remembering::<Self>(projected, recurrent, biases, initial, settings)
    }

    fn recurrence_backward(
        saved: Saved<Self>,
        d_outputs: FloatTensor<Self>,
        d_last: Option<FloatTensor<Self>>,
        settings: &Settings,
    ) -> InputGradients<Self> {
        host::backward::<Self>(&saved, &d_outputs, d_last.as_ref(), settings)
            .unwrap_or_else(|| portable::backward::<Self>(saved, d_outputs, d_last, settings))
    }
}

/// What a tensor of this op cannot be.
fn refused<T>(error: zoo_aten::Error) -> T {
    panic!("recurrence: {error}")
}

impl Host for LibTorch {
    type Room = Tensor;

    fn numbers(tensor: &TchTensor) -> Cow<'_, [f32]> {
        // SAFETY: nothing writes to a tensor that is an input of ours.
        unsafe { zoo_aten::host_slice(&tensor.tensor) }.unwrap_or_else(refused)
    }

    fn room<const D: usize>(dims: [usize; D]) -> Tensor {
        let dims = dims.map(|dim| dim as i64);
        Tensor::empty(dims.as_slice(), (tch::Kind::Float, tch::Device::Cpu))
    }

    fn slice(room: &mut Tensor) -> &mut [f32] {
        // SAFETY: a tensor that was just made, which nobody else knows of.
        unsafe { zoo_aten::host_slice_mut(room) }.unwrap_or_else(refused)
    }

    fn made<const D: usize>(room: Tensor, _: [usize; D]) -> TchTensor {
        TchTensor::new(room)
    }

    fn tensor<const D: usize>(numbers: Vec<f32>, dims: [usize; D]) -> TchTensor {
        let dims = dims.map(|dim| dim as i64);
        TchTensor::new(Tensor::from_slice(&numbers).reshape(dims))
    }
}

#[cfg(test)]
mod tests;
