//! LibTorch: its tensors on the CPU, and its own kernels for CUDA devices.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use tch::{Device, Kind, Tensor};

use super::{DeviceKernels, Host, Strided};
use crate::adam::Step;
use crate::aten;

/// What a tensor of these kernels cannot be.
fn refused<T>(error: aten::Error) -> T {
    panic!("{error}")
}

impl Host for LibTorch {
    fn elements(tensor: &TchTensor) -> Cow<'_, [f32]> {
        // SAFETY: nothing writes to a tensor that others have.
        unsafe { aten::host_slice(&tensor.tensor) }.unwrap_or_else(refused)
    }

    fn strided(tensor: &TchTensor) -> Option<Strided<'_, 4>> {
        // SAFETY: as for `elements`.
        unsafe { aten::host_strided(&tensor.tensor) }.unwrap_or_else(refused)
    }

    fn bytes(tensor: &TchTensor) -> Cow<'_, [u8]> {
        let tensor = &tensor.tensor;
        let device = tensor.device();
        assert!(
            device == Device::Cpu,
            "a mask must be on the Cpu, got {device:?}"
        );
        let mut bytes = vec![0; tensor.numel()];
        let contiguous = tensor.to_kind(Kind::Uint8).contiguous();
        contiguous.copy_data(&mut bytes, tensor.numel());
        Cow::Owned(bytes)
    }

    fn from_vec(elements: Vec<f32>, dims: &[usize]) -> TchTensor {
        // burn-tch's own way would fill the tensor with zeros first, on LibTorch's threads,
        // which then wait for more by spinning where ours have work; and copy.
        TchTensor::new(aten::of_numbers(elements, dims).unwrap_or_else(refused))
    }

    fn empty(dims: &[usize]) -> TchTensor {
        let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
        TchTensor::new(Tensor::empty(dims.as_slice(), (Kind::Float, Device::Cpu)))
    }

    fn into_unique(tensor: TchTensor) -> TchTensor {
        if tensor.can_mut() && tensor.tensor.is_contiguous() {
            return tensor;
        }
        let mut copy = tensor.tensor.empty_like();
        if !copy.is_contiguous() {
            copy = copy.contiguous();
        }
        copy.copy_(&tensor.tensor);
        TchTensor::new(copy)
    }

    fn elements_mut(tensor: &mut TchTensor) -> &mut [f32] {
        // SAFETY: this tensor alone has its memory: it was just made, or nobody else had it.
        unsafe { aten::host_slice_mut(&mut tensor.tensor) }.unwrap_or_else(refused)
    }

    fn is_on_host(tensor: &TchTensor) -> bool {
        tensor.tensor.device() == Device::Cpu
    }
}

impl DeviceKernels for LibTorch {
    fn adam(tensors: [TchTensor; 3], gradient: TchTensor, step: Step) -> [TchTensor; 3] {
        let mut moved = tensors.map(Self::into_unique);
        let [parameter, first, second] = &mut moved;
        let time = time_on(parameter.tensor.device(), step.time);
        aten::adam_step(
            &mut parameter.tensor,
            &gradient.tensor.contiguous(),
            [&mut first.tensor, &mut second.tensor],
            &time,
            step.asked,
        )
        .unwrap_or_else(refused);
        moved
    }

    fn norm(
        input: &TchTensor,
        gamma: &TchTensor,
        beta: &TchTensor,
        epsilon: f64,
    ) -> [TchTensor; 3] {
        let [input, gamma, beta] = [input, gamma, beta].map(|tensor| &tensor.tensor);
        let (output, mean, factor) =
            input.native_layer_norm(gamma.size(), Some(gamma), Some(beta), epsilon);
        [output, mean, factor].map(TchTensor::new)
    }

    fn norm_backward(
        input: &TchTensor,
        gamma: &TchTensor,
        rows: &[TchTensor; 2],
        arrived: TchTensor,
    ) -> [TchTensor; 3] {
        let rows = rows.each_ref().map(|rows| &rows.tensor);
        let tensors = [&arrived.tensor, &input.tensor, &gamma.tensor];
        let gradients = aten::layer_norm_backward(tensors, rows);
        gradients.unwrap_or_else(refused).map(TchTensor::new)
    }
}

/// The time of a step on its device, which all parameters of a model share.
fn time_on(device: Device, time: usize) -> Tensor {
    static LAST: Mutex<Vec<(Device, usize, Tensor)>> = Mutex::new(Vec::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., tensor)) = last.iter().find(|(on, at, _)| (*on, *at) == (device, time)) {
        return tensor.shallow_clone();
    }
    let tensor = aten::time_on(device, time);
    last.retain(|(on, ..)| *on != device);
    last.push((device, time, tensor.shallow_clone()));
    tensor
}
