//! Isolation of non-finite rows that a mask may exclude.
//!
//! A masked key has a weight of zero, but zero times NaN is NaN, and a matmul would propagate it
//! into every row of its head, forward and backward. So matmuls get rows without non-finite
//! elements, and the rows that attend to a non-finite one are set to NaN afterwards.

use burn::tensor::{DType, Tensor};

use crate::precision::widen;

/// Rows `[batch, heads, seq, width]`, split into finite values and a flag.
pub(crate) struct FiniteRows {
    /// The rows with zeros for non-finite elements, which have no gradient.
    pub(crate) finite: Tensor<4>,
    /// `[batch, heads, seq, 1]`: 1 for rows with non-finite elements, 0 for the others.
    pub(crate) non_finite: Tensor<4>,
}

impl FiniteRows {
    pub(crate) fn new(rows: Tensor<4>) -> Self {
        let max = match rows.dtype() {
            DType::F16 => 65_504.0,
            DType::BF16 => 3.389e38,
            _ => f32::MAX,
        };
        let is_finite = rows.clone().detach().abs().lower_equal_elem(max);
        let non_finite = is_finite.bool_not();
        Self {
            non_finite: rows
                .clone()
                .detach()
                .zeros_like()
                .mask_fill(non_finite.clone(), 1.0)
                .max_dim(3),
            finite: rows.mask_fill(non_finite, 0.0),
        }
    }
}

/// The largest absolute value, or NaN if an element is. The host waits for it.
pub(crate) fn max_abs(tensor: &Tensor<4>) -> f64 {
    let max = widen(tensor.clone().detach()).abs().max();
    max.into_data().iter::<f64>().next().unwrap_or(0.0)
}

/// Whether all elements are finite. The host waits for it.
pub(crate) fn is_finite(tensor: &Tensor<4>) -> bool {
    max_abs(tensor).is_finite()
}

/// NaN where `non_finite` is positive and zero elsewhere, to be added to a result.
pub(crate) fn poison(non_finite: Tensor<4>) -> Tensor<4> {
    let is_poisoned = non_finite.clone().greater_elem(0.0);
    non_finite.zeros_like().mask_fill(is_poisoned, f32::NAN)
}
