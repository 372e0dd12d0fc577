//! Half-precision tensors are computed in `f32`, and rounded once at the end.

use burn::tensor::DType;
use zoo_kernels::precision::is_up_to_f32;
pub(crate) use zoo_kernels::precision::{cast as narrow, widen, widened};

/// Panics unless an op computed in `f32` alone gets tensors it can be exact for.
pub(crate) fn check(op: &str, dtypes: [DType; 3]) {
    let [query, key, value] = dtypes;
    assert!(
        query == key && key == value,
        "{op}: query, key and value must be of one number type, got {query:?}, {key:?} and {value:?}",
    );
    assert!(
        is_up_to_f32(query),
        "{op}: query, key and value must be f32, f16 or bf16, got {query:?}",
    );
}

/// Panics unless a parameter of a mechanism is of the type of its queries.
pub(crate) fn check_parameter(op: &str, name: &str, query: DType, parameter: DType) {
    assert!(
        parameter == query,
        "{op}: the {name} must be of the number type of the queries, {query:?}, got {parameter:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

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
