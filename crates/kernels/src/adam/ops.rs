//! The Adam op for backends with tensors in host memory, and for LibTorch on CUDA.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

use super::{Step, cpu};
use crate::hosts::DeviceKernels;

/// An Adam step. All tensors are `f32`.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait AdamStep: Backend {
    /// The parameter and both moments after the step.
    #[allow(unused_variables)] // unused without backends
    fn adam_step(
        tensor: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
        step: Step,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

impl<B: DeviceKernels> AdamStep for B {
    fn adam_step(
        tensor: FloatTensor<B>,
        gradient: FloatTensor<B>,
        first: FloatTensor<B>,
        second: FloatTensor<B>,
        step: Step,
    ) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
        if !B::is_on_host(&tensor) {
            return B::adam([tensor, first, second], gradient, step).into();
        }
        let [mut tensor, mut first, mut second] = [tensor, first, second].map(B::into_unique);
        cpu::adam_step(
            B::elements_mut(&mut tensor),
            &B::elements(&gradient),
            B::elements_mut(&mut first),
            B::elements_mut(&mut second),
            step,
        );
        (tensor, first, second)
    }
}
