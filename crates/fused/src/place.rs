//! Where a tensor's numbers are.

#[cfg(feature = "tch")]
use burn::backend::BackendTensor;
use burn::backend::DispatchTensorKind;
use burn::tensor::{DType, Tensor};

use crate::reference;

/// Whether a tensor is numbers of `f32` in the host's memory, of a backend whose body was
/// compiled in.
pub(crate) fn is_at_hand<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && is_on_the_host(tensor)
}

/// Whether it is in the host's memory, as `f32` or as a half type, which can be made `f32`.
pub(crate) fn can_be_at_hand<const D: usize>(tensor: &Tensor<D>) -> bool {
    matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16) && is_on_the_host(tensor)
}

/// Whether it is numbers of `f32` that a body was compiled in for: in the host's memory, or on
/// a CUDA device of LibTorch.
pub(crate) fn has_body_for<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && (is_on_the_host(tensor) || is_on_cuda(tensor))
}

/// The same for half types, which can be made `f32`.
pub(crate) fn can_have_body<const D: usize>(tensor: &Tensor<D>) -> bool {
    can_be_at_hand(tensor)
        || matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16) && is_on_cuda(tensor)
}

/// The tensor as `f32`.
pub(crate) fn widen<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    cast(tensor, DType::F32)
}

/// The tensor as numbers of a type, for nothing if that is its own.
pub(crate) fn cast<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    if tensor.dtype() == dtype {
        tensor
    } else {
        tensor.cast(dtype)
    }
}

fn is_on_the_host<const D: usize>(tensor: &Tensor<D>) -> bool {
    !reference::is_on() && place(&tensor.clone().into_dispatch().kind) == Some(Place::Host)
}

fn is_on_cuda<const D: usize>(tensor: &Tensor<D>) -> bool {
    !reference::is_on() && place(&tensor.clone().into_dispatch().kind) == Some(Place::Cuda)
}

/// Where bodies find numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Host,
    /// LibTorch's.
    Cuda,
}

/// Where a tensor of a backend with bodies is; nowhere for all others.
fn place(kind: &DispatchTensorKind) -> Option<Place> {
    match kind {
        DispatchTensorKind::Autodiff(inner) => place(inner),
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => Some(Place::Host),
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => Some(Place::Host),
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Float(tensor)) => of(&tensor.tensor),
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Autodiff(tensor)) => {
            of(&tensor.primitive().tensor)
        }
        #[allow(unreachable_patterns)] // which are left depends on the features
        _ => None,
    }
}

#[cfg(feature = "tch")]
fn of(tensor: &tch::Tensor) -> Option<Place> {
    match tensor.device() {
        tch::Device::Cpu => Some(Place::Host),
        tch::Device::Cuda(_) => Some(Place::Cuda),
        _ => None,
    }
}
