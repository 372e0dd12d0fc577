//! Mixed-precision helpers: half-precision tensors are computed in `f32` and rounded once at the
//! end.

use burn::tensor::{DType, Tensor};

/// Casts half-precision tensors to `f32` and leaves others as they are.
pub fn widen<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let dtype = widened(tensor.dtype());
    cast(tensor, dtype)
}

/// The dtype after [`widen`].
pub fn widened(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// Whether `f32` represents all values of this dtype.
pub fn is_f32_or_half(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Casts a tensor; a no-op if it already has the dtype.
pub fn cast<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    if tensor.dtype() == dtype {
        tensor
    } else {
        tensor.cast(dtype)
    }
}
