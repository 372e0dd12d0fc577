//! What is taken off the gradient by each weight of a query: their mean, less the gradient
//! by the log-sum-exp.

use cubecl::prelude::*;

use super::call::Call;
use super::memory::{Four, contiguous_rows, load};

/// A unit computes a query of a head.
#[cube(launch_unchecked)]
pub(super) fn means_of_rows<E: Float, N: Size>(
    context: &[Vector<E, N>],
    d_context: &[Vector<E, N>],
    d_log_sum_exp: &[f32],
    means: &mut [f32],
    call: &Call,
    has_d_log_sum_exp: u32,
    #[define(E)] _type_of_numbers: ElemType,
) {
    let row = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let head = CUBE_POS_Y as usize;
    let example = CUBE_POS_Z as usize;
    let seq_q = call.seq_q as usize;
    let d_value = call.d_value as usize;
    let number = example * call.heads as usize + head;
    let first = number * seq_q;
    let contexts = contiguous_rows(number, call.seq_q, call.d_value);
    let upstream = call.d_context.rows(example, head, call.seq_q, call.d_value);
    if row < seq_q {
        let mut mean = 0.0f32;
        for four in 0..d_value.div_ceil(4) {
            let a = Four::cast_from(load::<E, N>(context, &contexts, row, four));
            let b = Four::cast_from(load::<E, N>(d_context, &upstream, row, four));
            #[unroll]
            for i in 0..4usize {
                mean = fma(a.extract(i), b.extract(i), mean);
            }
        }
        if has_d_log_sum_exp != 0u32 {
            mean -= d_log_sum_exp[first + row];
        }
        means[first + row] = mean;
    }
}
