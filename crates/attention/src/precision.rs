//! Computation of half-precision tensors in `f32`, with a single rounding at the end.

use burn::tensor::{DType, Tensor};
use zoo_kernels::precision::is_f32_or_half;
pub(crate) use zoo_kernels::precision::{cast as narrow, widen, widened};

use crate::AttentionShape;

/// Panics unless query, key and value have the same dtype, of at most 32 bits.
pub(crate) fn check(op: &str, dtypes: [DType; 3]) {
    let [query, key, value] = dtypes;
    assert!(
        query == key && key == value,
        "{op}: query, key and value must have the same dtype, got {query:?}, {key:?} and {value:?}",
    );
    assert!(
        is_f32_or_half(query),
        "{op}: query, key and value must be f32, f16 or bf16, got {query:?}",
    );
}

/// Panics unless a parameter of a mechanism is `[heads, d_head]` or `[heads, d_head, d_head]`, and
/// of the dtype of the queries.
pub(crate) fn check_parameter<const D: usize>(
    op: &str,
    name: &str,
    parameter: &Tensor<D>,
    shape: &AttentionShape,
    query: DType,
) {
    let (heads, d_head) = (shape.heads, shape.d_head);
    let got = parameter.dims();
    let expected = [heads, d_head, d_head];
    let d_heads = format!(", d_head = {d_head}").repeat(D - 1);
    assert!(
        got[..] == expected[..D],
        "{op}: the {name} must be [heads = {heads}{d_heads}], got {got:?}"
    );
    let got = parameter.dtype();
    assert!(
        got == query,
        "{op}: the {name} must have the dtype of the queries, {query:?}, got {got:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "op: query, key and value must have the same dtype, got F32, F16 and F32"]
    fn mixed_dtypes_are_rejected() {
        check("op", [DType::F32, DType::F16, DType::F32]);
    }

    /// Computing in `f32` would silently lose half of the precision.
    #[test]
    #[should_panic = "op: query, key and value must be f32, f16 or bf16, got F64"]
    fn double_precision_is_rejected() {
        check("op", [DType::F64; 3]);
    }
}
