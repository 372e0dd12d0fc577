//! Where a tensor's numbers are.

#[cfg(feature = "tch")]
use burn::backend::BackendTensor;
use burn::backend::DispatchTensorKind;
use burn::tensor::{DType, Tensor};

/// Whether a tensor is numbers of `f32` in the host's memory, of a backend whose body was
/// compiled in.
pub(crate) fn is_at_hand<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && is_on_the_host(tensor)
}

/// Whether it is in the host's memory, as `f32` or as a half type, which can be made `f32`.
pub(crate) fn can_be_at_hand<const D: usize>(tensor: &Tensor<D>) -> bool {
    matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16) && is_on_the_host(tensor)
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
    has_body(&tensor.clone().into_dispatch().kind)
}

fn has_body(kind: &DispatchTensorKind) -> bool {
    match kind {
        DispatchTensorKind::Autodiff(inner) => has_body(inner),
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => true,
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => true,
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Float(tensor)) => {
            tensor.tensor.device() == tch::Device::Cpu
        }
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Autodiff(tensor)) => {
            tensor.primitive().tensor.device() == tch::Device::Cpu
        }
        #[allow(unreachable_patterns)] // which are left depends on the features
        _ => false,
    }
}
