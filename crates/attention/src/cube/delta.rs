//! `rowsum(dO · O)` minus the gradient of the log-sum-exp, which backward kernels subtract from the
//! weight gradients of each query.

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{buffer, cube_count, empty_like};
use super::rows::{Matrix, Rows, TensorStrides, TensorStridesLaunch, Vec4, load_vec4};

/// Units per cube.
const UNITS: u32 = 64;

/// The sizes of contexts and their gradients, and the strides of the latter.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Contexts {
    heads: u32,
    seq_q: u32,
    d_value: u32,
    /// Where the context starts in its rows.
    first_column: u32,
    row_stride: u32,
    d_context: TensorStrides,
}

/// Each unit computes one query of a head.
#[cube(launch_unchecked)]
fn compute_deltas<E: Float, N: Size>(
    context: &[Vector<E, N>],
    d_context: &[Vector<E, N>],
    d_log_sum_exp: &[f32],
    deltas: &mut [f32],
    contexts: &Contexts,
    has_d_log_sum_exp: u32,
    #[define(E)] _dtype: ElemType,
) {
    let row = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let head = CUBE_POS_Y as usize;
    let example = CUBE_POS_Z as usize;
    let (count, width) = (contexts.seq_q, contexts.d_value);
    let seq_q = count as usize;
    let d_value = width as usize;
    let head_index = example * contexts.heads as usize + head;
    let first = head_index * seq_q;
    let stride = contexts.row_stride as usize;
    let rows = Rows {
        start: first * stride + contexts.first_column as usize,
        stride,
        count: seq_q,
        width: d_value,
    };
    let outputs = Matrix::new(context, rows);
    let strides = &contexts.d_context;
    let output_grads = strides.matrix(d_context, example, head, count, width);
    if row < seq_q {
        let mut delta = 0.0f32;
        for vec4 in 0..d_value.div_ceil(4) {
            let a = Vec4::cast_from(load_vec4::<E, N>(&outputs, row, vec4));
            let b = Vec4::cast_from(load_vec4::<E, N>(&output_grads, row, vec4));
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

/// Launches the kernel. The context is contiguous, in rows that start with `first_column` other
/// elements, and so is the gradient of the log-sum-exp. `vector_width` is 4 if the rows of both
/// tensors are aligned to four elements, else 1.
pub(crate) fn deltas(
    context: &CubeTensor,
    first_column: usize,
    d_context: &CubeTensor,
    d_log_sum_exp: Option<&CubeTensor>,
    vector_width: usize,
) -> CubeTensor {
    let [batch, heads, seq_q, row_stride] = context.meta.shape().dims();
    let [.., d_value] = d_context.meta.shape().dims::<4>();
    let deltas = empty_like(context, [batch, heads, seq_q, 1], DType::F32);
    // SAFETY: the kernel accesses the tensors within the sizes passed in `Contexts`.
    unsafe {
        compute_deltas::launch_unchecked(
            &context.client,
            cube_count([seq_q.div_ceil(UNITS as usize), heads, batch]),
            CubeDim::new_1d(UNITS),
            vector_width,
            buffer(context),
            buffer(d_context),
            // Not read without a gradient.
            buffer(d_log_sum_exp.unwrap_or(context)),
            buffer(&deltas),
            ContextsLaunch::new(
                heads as u32,
                seq_q as u32,
                d_value as u32,
                first_column as u32,
                row_stride as u32,
                TensorStridesLaunch::from_tensor(d_context),
            ),
            u32::from(d_log_sum_exp.is_some()),
            dtype_to_storage_type(context.dtype),
        );
    }
    deltas
}
