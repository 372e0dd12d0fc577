//! Half-precision tensors are computed in `f32`, and rounded once at the end.

use burn::tensor::{DType, FloatDType, Tensor};

/// Half precision to `f32`; everything else stays.
pub(crate) fn widen(tensor: Tensor<4>) -> Tensor<4> {
    match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.cast(FloatDType::F32),
        _ => tensor,
    }
}

/// Back to the number type the tensors came in.
pub(crate) fn narrow(tensor: Tensor<4>, stored: DType) -> Tensor<4> {
    if tensor.dtype() == stored {
        tensor
    } else {
        tensor.cast(stored)
    }
}
