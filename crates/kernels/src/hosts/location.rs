//! Location of a tensor's memory, and whether there are kernels for it.

#[cfg(feature = "tch")]
use burn::backend::BackendTensor;
use burn::backend::DispatchTensorKind;
use burn::tensor::{DType, Tensor};

use crate::precision::is_f32_or_half;
use crate::reference;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    Host,
    /// CUDA memory of LibTorch.
    #[cfg(feature = "tch")]
    Cuda,
}

/// Where a tensor is; `None` if the kernels of its backend are not compiled in, or are
/// [disabled](crate::without_kernels).
pub(crate) fn location<const D: usize>(tensor: &Tensor<D>) -> Option<Location> {
    if reference::is_enabled() {
        return None;
    }
    kind_location(&tensor.clone().into_dispatch().kind)
}

/// Whether a tensor is in host memory and has the CPU kernels of its backend.
pub fn is_on_host<const D: usize>(tensor: &Tensor<D>) -> bool {
    location(tensor) == Some(Location::Host)
}

/// Whether a tensor is `f32` in host memory.
pub fn is_host_f32<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && location(tensor) == Some(Location::Host)
}

/// Whether a tensor is `f32` or half precision in host memory.
pub(crate) fn is_host_float<const D: usize>(tensor: &Tensor<D>) -> bool {
    is_f32_or_half(tensor.dtype()) && location(tensor) == Some(Location::Host)
}

fn kind_location(kind: &DispatchTensorKind) -> Option<Location> {
    match kind {
        DispatchTensorKind::Autodiff(inner) => kind_location(inner),
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => Some(Location::Host),
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => Some(Location::Host),
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Float(tensor)) => tch_location(&tensor.tensor),
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Autodiff(tensor)) => {
            tch_location(&tensor.primitive().tensor)
        }
        #[allow(unreachable_patterns)] // depends on the features
        _ => None,
    }
}

#[cfg(feature = "tch")]
fn tch_location(tensor: &tch::Tensor) -> Option<Location> {
    match tensor.device() {
        tch::Device::Cpu => Some(Location::Host),
        tch::Device::Cuda(_) => Some(Location::Cuda),
        _ => None,
    }
}

/// Whether kernels for the backend of a tensor are compiled in, by the feature of its name, and not
/// [disabled](crate::without_kernels).
pub fn has_kernels(kind: &DispatchTensorKind) -> bool {
    match kind {
        _ if reference::is_enabled() => false,
        DispatchTensorKind::Autodiff(inner) => has_kernels(inner),
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => true,
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => true,
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(_) => true,
        #[cfg(feature = "cube")]
        DispatchTensorKind::Cube(_) => true,
        #[allow(unreachable_patterns)] // depends on the features
        _ => false,
    }
}
