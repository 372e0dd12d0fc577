//! Half-precision tensors are computed in `f32`, and rounded once at the end.

use burn::tensor::{DType, Tensor};

/// Half precision to `f32`; everything else stays.
pub fn widen<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let dtype = widened(tensor.dtype());
    cast(tensor, dtype)
}

/// The type that [`widen`] gives tensors of this one.
pub fn widened(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// Whether a kernel that computes in `f32` is exact for tensors of this type.
pub fn is_up_to_f32(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// The tensor in another type, for nothing if that is its own.
pub fn cast<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    if tensor.dtype() == dtype {
        tensor
    } else {
        tensor.cast(dtype)
    }
}
