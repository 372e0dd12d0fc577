//! The kernels, compiled for each instruction set.

use super::Call;
use super::backward::{RowBack, backward_rows};
use super::forward::{Row, forward_rows};
use crate::dispatch;

dispatch! {
    /// Rows through all their places.
    pub(super) unsafe fn forward(
        call: &Call<'_>,
        biases: &[f32],
        rows: &mut [Row<'_>],
    ) by forward_rows;
}

dispatch! {
    /// Rows back through all their places.
    pub(super) unsafe fn backward(
        call: &Call<'_>,
        turned: &[f32],
        rows: &mut [RowBack<'_>],
        d_recurrent: &mut [f32],
        d_biases: &mut [f32],
    ) by backward_rows;
}
