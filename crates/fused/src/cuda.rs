//! The kernels that LibTorch has for CUDA devices.

use std::sync::{Mutex, PoisonError};

use tch::{Device, Tensor};

use crate::AdamKind;
use crate::adam::Asked;

/// A step of Adam, in one kernel; all but the gradient are written over.
pub(crate) fn adam_step(
    parameter: &mut Tensor,
    gradient: &Tensor,
    moments: [&mut Tensor; 2],
    asked: Asked,
) {
    let adam = zoo_aten::Adam {
        is_adamw: asked.kind == AdamKind::Adamw,
        rate: asked.rate,
        betas: asked.betas,
        decay: asked.weight_decay,
        epsilon: asked.epsilon,
    };
    let time = time_on(parameter.device(), asked.time);
    zoo_aten::adam_step(parameter, gradient, moments, &time, adam)
        .unwrap_or_else(|error| panic!("Adam: {error}"));
}

/// The time of a step on its device, which all parameters of a model share.
fn time_on(device: Device, time: usize) -> Tensor {
    static LAST: Mutex<Vec<(Device, usize, Tensor)>> = Mutex::new(Vec::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., tensor)) = last.iter().find(|(on, at, _)| (*on, *at) == (device, time)) {
        return tensor.shallow_clone();
    }
    let tensor = zoo_aten::time_on(device, time);
    last.retain(|(on, ..)| *on != device);
    last.push((device, time, tensor.shallow_clone()));
    tensor
}

/// The norm of the last dimension, and the mean and the factor of each row.
pub(crate) fn layer_norm([input, gamma, beta]: [&Tensor; 3], epsilon: f64) -> [Tensor; 3] {
    let (output, mean, factor) =
        input.native_layer_norm(gamma.size(), Some(gamma), Some(beta), epsilon);
    [output, mean, factor]
}

/// The gradients by input, gamma and beta, from what arrives.
pub(crate) fn layer_norm_backward(
    [input, gamma, arrived]: [&Tensor; 3],
    [mean, factor]: [&Tensor; 2],
) -> [Tensor; 3] {
    zoo_aten::layer_norm_backward([arrived, input, gamma], [mean, factor])
        .unwrap_or_else(|error| panic!("layer norm: {error}"))
}
