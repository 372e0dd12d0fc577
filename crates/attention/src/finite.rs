//! Rows that are not finite where a mask may hide them.
//!
//! A hidden key has a weight of zero, and so has its value; but zero times NaN is NaN, and a
//! matmul would carry it into every row of its head, forward and backward. So matmuls are given
//! rows without non-finite elements, and what sees one of the others is made NaN afterwards.

use burn::tensor::{DType, Tensor};

/// Rows `[batch, heads, seq, width]`, taken apart.
pub(crate) struct FiniteRows {
    /// The rows with zeros for elements that are not finite, which have no gradient.
    pub(crate) finite: Tensor<4>,
    /// `[batch, heads, seq, 1]`: 1 for rows with elements that are not finite, 0 for the others.
    pub(crate) infinite: Tensor<4>,
}

impl FiniteRows {
    pub(crate) fn of(rows: Tensor<4>) -> Self {
        let largest = match rows.dtype() {
            DType::F16 => 65_504.0,
            DType::BF16 => 3.389e38,
            _ => f32::MAX,
        };
        let is_finite = rows.clone().detach().abs().lower_equal_elem(largest);
        let infinite = is_finite.bool_not();
        Self {
            infinite: rows
                .clone()
                .detach()
                .zeros_like()
                .mask_fill(infinite.clone(), 1.0)
                .max_dim(3),
            finite: rows.mask_fill(infinite, 0.0),
        }
    }
}

/// NaN where rows that are not finite were met, zero elsewhere: to be added.
pub(crate) fn poison(infinite: Tensor<4>) -> Tensor<4> {
    let met = infinite.clone().greater_elem(0.0);
    infinite.zeros_like().mask_fill(met, f32::NAN)
}
