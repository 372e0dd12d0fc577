//! Half-precision tensors are computed in `f32`, and rounded once at the end.

use burn::tensor::{DType, FloatDType, Tensor};

/// Sees to it that an op computed in `f32` alone gets tensors it can be exact for.
///
/// # Panics
///
/// If the three differ, or are of another type.
pub(crate) fn check(op: &str, dtypes: [DType; 3]) {
    let [query, key, value] = dtypes;
    assert!(
        query == key && key == value,
        "{op}: query, key and value must be of one number type, got {query:?}, {key:?} and {value:?}",
    );
    assert!(
        matches!(query, DType::F32 | DType::F16 | DType::BF16),
        "{op}: query, key and value must be f32, f16 or bf16, got {query:?}",
    );
}

/// Sees to it that a parameter of a mechanism is of the type of its queries.
///
/// # Panics
///
/// If it is not.
pub(crate) fn check_parameter(op: &str, name: &str, query: DType, parameter: DType) {
    assert!(
        parameter == query,
        "{op}: the {name} must be of the number type of the queries, {query:?}, got {parameter:?}"
    );
}

/// Half precision to `f32`; everything else stays.
pub(crate) fn widen(tensor: Tensor<4>) -> Tensor<4> {
    match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.cast(FloatDType::F32),
        _ => tensor,
    }
}

/// The type that [`widen`] gives tensors of this one.
pub(crate) fn widened(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// To the number type the tensors came in.
pub(crate) fn narrow(tensor: Tensor<4>, stored: DType) -> Tensor<4> {
    if tensor.dtype() == stored {
        tensor
    } else {
        tensor.cast(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_type_of_up_to_32_bits_is_let_through() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            check("op", [dtype; 3]);
        }
    }

    #[test]
    #[should_panic = "op: query, key and value must be of one number type, got F32, F16 and F32"]
    fn mixed_types_are_refused() {
        check("op", [DType::F32, DType::F16, DType::F32]);
    }

    /// Computing in `f32` would lose half of it without a word.
    #[test]
    #[should_panic = "op: query, key and value must be f32, f16 or bf16, got F64"]
    fn double_precision_is_refused() {
        check("op", [DType::F64; 3]);
    }
}
