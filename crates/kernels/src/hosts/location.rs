//! Where the elements of a tensor are, and whether there are kernels for it.

#[cfg(feature = "tch")]
use burn::backend::BackendTensor;
use burn::backend::DispatchTensorKind;
use burn::tensor::{DType, Tensor};

use crate::precision::is_up_to_f32;
use crate::reference;

/// Where kernels find elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    Host,
    /// LibTorch's.
    #[cfg(feature = "tch")]
    Cuda,
}

/// Where a tensor is; `None` on a backend whose kernels were not compiled in, or if kernels are
/// [off](crate::without_kernels).
pub(crate) fn location<const D: usize>(tensor: &Tensor<D>) -> Option<Location> {
    match reference::is_on() {
        true => None,
        false => of_kind(&tensor.clone().into_dispatch().kind),
    }
}

/// Whether a tensor is `f32` in host memory.
pub(crate) fn is_at_hand<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && location(tensor) == Some(Location::Host)
}

/// Whether it is in host memory, as `f32` or as a half type, which can be made `f32`.
pub(crate) fn can_be_at_hand<const D: usize>(tensor: &Tensor<D>) -> bool {
    is_up_to_f32(tensor.dtype()) && location(tensor) == Some(Location::Host)
}

fn of_kind(kind: &DispatchTensorKind) -> Option<Location> {
    match kind {
        DispatchTensorKind::Autodiff(inner) => of_kind(inner),
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => Some(Location::Host),
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => Some(Location::Host),
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Float(tensor)) => on(&tensor.tensor),
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Autodiff(tensor)) => {
            on(&tensor.primitive().tensor)
        }
        #[allow(unreachable_patterns)] // which are left depends on the features
        _ => None,
    }
}

#[cfg(feature = "tch")]
fn on(tensor: &tch::Tensor) -> Option<Location> {
    match tensor.device() {
        tch::Device::Cpu => Some(Location::Host),
        tch::Device::Cuda(_) => Some(Location::Cuda),
        _ => None,
    }
}

/// Whether ops with a backward pass of their own were compiled in for the backend of a tensor,
/// by the feature of its name, and kernels are not [off](crate::without_kernels).
pub fn has_kernels(kind: &DispatchTensorKind) -> bool {
    match kind {
        _ if reference::is_on() => false,
        DispatchTensorKind::Autodiff(inner) => has_kernels(inner),
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => true,
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => true,
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(_) => true,
        #[cfg(feature = "cube")]
        DispatchTensorKind::Cube(_) => true,
        #[allow(unreachable_patterns)] // which are left depends on the features
        _ => false,
    }
}
