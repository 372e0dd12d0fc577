//! [`Host`] for LibTorch on the CPU, and its own kernels on CUDA.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use burn::tensor::bf16;
use tch::{Device, Kind, Tensor};

use super::{DeviceKernels, Host, Strided, host_matmul};
use crate::adam::Step;
use crate::aten;
use crate::cpu::gemm::{Finish, uses_amx};

fn fail<T>(error: aten::Error) -> T {
    panic!("{error}")
}

impl Host for LibTorch {
    fn elements(tensor: &TchTensor) -> Cow<'_, [f32]> {
        // SAFETY: nothing writes to a shared tensor.
        unsafe { aten::host_slice(&tensor.tensor) }.unwrap_or_else(fail)
    }

    fn strided(tensor: &TchTensor) -> Option<Strided<'_, 4>> {
        // SAFETY: as for `elements`.
        unsafe { aten::host_strided(&tensor.tensor) }.unwrap_or_else(fail)
    }

    fn bf16_elements(tensor: &TchTensor) -> Cow<'_, [bf16]> {
        // SAFETY: as for `elements`.
        unsafe { aten::host_slice(&tensor.tensor) }.unwrap_or_else(fail)
    }

    fn bf16_strided(tensor: &TchTensor) -> Option<Strided<'_, 4, bf16>> {
        // SAFETY: as for `elements`.
        unsafe { aten::host_strided(&tensor.tensor) }.unwrap_or_else(fail)
    }

    fn from_bf16(elements: Vec<bf16>, dims: &[usize]) -> TchTensor {
        TchTensor::new(aten::from_vec(elements, dims).unwrap_or_else(fail))
    }

    fn bytes(tensor: &TchTensor) -> Cow<'_, [u8]> {
        let tensor = &tensor.tensor;
        let device = tensor.device();
        assert!(
            device == Device::Cpu,
            "the mask must be on the Cpu, got {device:?}"
        );
        let mut bytes = vec![0; tensor.numel()];
        let contiguous = tensor.to_kind(Kind::Uint8).contiguous();
        contiguous.copy_data(&mut bytes, tensor.numel());
        Cow::Owned(bytes)
    }

    fn from_vec(elements: Vec<f32>, dims: &[usize]) -> TchTensor {
        // burn-tch would copy, after filling the tensor with zeros on LibTorch's threads, which
        // then spin while rayon's threads work.
        TchTensor::new(aten::from_vec(elements, dims).unwrap_or_else(fail))
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
        // SAFETY: the memory is not shared: the tensor is from `empty` or `into_unique`.
        unsafe { aten::host_slice_mut(&mut tensor.tensor) }.unwrap_or_else(fail)
    }

    fn matmul(
        size: [usize; 3],
        a: (&TchTensor, bool),
        b: (&TchTensor, bool),
        shape: &[usize],
        finish: Finish<'_>,
    ) -> TchTensor {
        // LibTorch does not multiply f32 by AMX.
        if uses_amx(size, b.1) {
            return host_matmul::<Self>(size, a, b, shape, finish);
        }
        let [rows, inner, columns] = size;
        let view = |(tensor, is_transposed): (&TchTensor, bool), size: [usize; 2]| {
            let [rows, columns] = size.map(|size| size as i64);
            match is_transposed {
                false => tensor.tensor.reshape([rows, columns]),
                true => tensor.tensor.reshape([columns, rows]).transpose(0, 1),
            }
        };
        let product = view(a, [rows, inner]).matmul(&view(b, [inner, columns]));
        let shape: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
        let mut output = TchTensor::new(product.reshape(shape));
        finish.apply(Self::elements_mut(&mut output), columns);
        output
    }

    fn is_on_host(tensor: &TchTensor) -> bool {
        tensor.tensor.device() == Device::Cpu
    }
}

impl DeviceKernels for LibTorch {
    fn adam(tensors: [TchTensor; 3], gradient: TchTensor, step: Step) -> [TchTensor; 3] {
        let mut updated = tensors.map(Self::into_unique);
        let [parameter, first, second] = &mut updated;
        let step_tensor = step_tensor(parameter.tensor.device(), step.time);
        aten::adam_step(
            &mut parameter.tensor,
            &gradient.tensor.contiguous(),
            [&mut first.tensor, &mut second.tensor],
            &step_tensor,
            step.options,
        )
        .unwrap_or_else(fail);
        updated
    }

    fn device_layer_norm(
        input: &TchTensor,
        gamma: &TchTensor,
        beta: &TchTensor,
        epsilon: f64,
    ) -> [TchTensor; 3] {
        let [input, gamma, beta] = [input, gamma, beta].map(|tensor| &tensor.tensor);
        let (output, mean, rstd) =
            input.native_layer_norm(gamma.size(), Some(gamma), Some(beta), epsilon);
        [output, mean, rstd].map(TchTensor::new)
    }

    fn device_layer_norm_backward(
        input: &TchTensor,
        gamma: &TchTensor,
        stats: &[TchTensor; 2],
        output_grad: TchTensor,
    ) -> [TchTensor; 3] {
        let stats = stats.each_ref().map(|stats| &stats.tensor);
        let tensors = [&output_grad.tensor, &input.tensor, &gamma.tensor];
        let gradients = aten::layer_norm_backward(tensors, stats);
        gradients.unwrap_or_else(fail).map(TchTensor::new)
    }
}

/// [`aten::step_tensor`], created once per step and device: all parameters of a model share it.
fn step_tensor(device: Device, step: usize) -> Tensor {
    static CACHE: Mutex<Vec<(Device, usize, Tensor)>> = Mutex::new(Vec::new());
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., tensor)) = cache.iter().find(|(d, s, _)| (*d, *s) == (device, step)) {
        return tensor.shallow_clone();
    }
    let tensor = aten::step_tensor(device, step);
    cache.retain(|(cached, ..)| *cached != device);
    cache.push((device, step, tensor.shallow_clone()));
    tensor
}
