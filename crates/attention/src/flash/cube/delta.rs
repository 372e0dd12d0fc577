//! `rowsum(dO · O)` minus the gradient of the log-sum-exp, which the backward kernels subtract from
//! the weight gradients of each query.

use cubecl::prelude::*;

use super::call::Call;
use super::memory::{Matrix, Rows, Vec4, load_vec4};

/// Each unit computes one query of a head. Rows of the context start at `context_start` and have a
/// stride of `context_stride`.
#[cube(launch_unchecked)]
pub(super) fn compute_deltas<E: Float, N: Size>(
    context: &[Vector<E, N>],
    d_context: &[Vector<E, N>],
    d_log_sum_exp: &[f32],
    deltas: &mut [f32],
    call: &Call,
    context_start: u32,
    context_stride: u32,
    has_d_log_sum_exp: u32,
    #[define(E)] _dtype: ElemType,
) {
    let row = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let head = CUBE_POS_Y as usize;
    let example = CUBE_POS_Z as usize;
    let seq_q = call.seq_q as usize;
    let d_value = call.d_value as usize;
    let head_index = example * call.heads as usize + head;
    let first = head_index * seq_q;
    let rows = Rows {
        start: first * context_stride as usize + context_start as usize,
        stride: context_stride as usize,
        count: seq_q,
        width: d_value,
    };
    let contexts = Matrix::new(context, rows);
    let strides = &call.d_context;
    let d_contexts = strides.matrix(d_context, example, head, call.seq_q, call.d_value);
    if row < seq_q {
        let mut delta = 0.0f32;
        for vec4 in 0..d_value.div_ceil(4) {
            let a = Vec4::cast_from(load_vec4::<E, N>(&contexts, row, vec4));
            let b = Vec4::cast_from(load_vec4::<E, N>(&d_contexts, row, vec4));
            #[unroll]
            for i in 0..4usize {
                delta = fma(a.extract(i), b.extract(i), delta);
            }
        }
        if has_d_log_sum_exp != 0u32 {
            delta -= d_log_sum_exp[first + row];
        }
        deltas[first + row] = delta;
    }
}
