//! Rows divided by their norm, as one op with a hand-written backward pass on the CPU.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};
use rayon::prelude::*;
use zoo_kernels::autodiff::{Step, record};
use zoo_kernels::cpu::parallel::rows_per_task;
use zoo_kernels::hosts::Host;

/// All tensors are `f32` in host memory.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(super) trait NormalizeRows: Backend {
    /// The rows of `[.., width]` divided by their norm; rows of zeros are unchanged.
    #[allow(unused_variables)] // unused without backends
    fn normalize_rows(rows: FloatTensor<Self>) -> FloatTensor<Self>;
}

macro_rules! impl_host_backend {
    ($($feature:literal: $backend:ident,)*) => {$(
        #[cfg(feature = $feature)]
        impl NormalizeRows for burn::backend::$backend {
            fn normalize_rows(rows: FloatTensor<Self>) -> FloatTensor<Self> {
                forward::<Self>(&rows).0
            }
        }
    )*};
}

impl_host_backend! {
    "flex": Flex,
    "ndarray": NdArray,
    "tch": LibTorch,
}

impl<B: Host, C: CheckpointStrategy> NormalizeRows for Autodiff<B, C> {
    fn normalize_rows(rows: FloatTensor<Self>) -> FloatTensor<Self> {
        let parents = [rows.node()];
        let (output, inverse) = forward::<B>(&rows.into_primitive());
        let saved = (output.clone(), Arc::new(inverse));
        record::<B, C, _, 1>(Step(backward::<B>), parents, saved, output)
    }
}

/// The normalised rows, and one over the norm of each, or 1 for a row of zeros.
fn forward<B: Host>(rows: &FloatTensor<B>) -> (FloatTensor<B>, Vec<f32>) {
    let dims: [usize; 4] = rows.shape().dims();
    let width = dims[3];
    let elements = B::elements(rows);
    let mut output = B::empty(&dims);
    let mut inverse = vec![0.0; elements.len() / width];
    let task = rows_per_task(inverse.len(), width);
    B::elements_mut(&mut output)
        .par_chunks_mut(task * width)
        .zip(elements.par_chunks(task * width))
        .zip(inverse.par_chunks_mut(task))
        .for_each(|((output, rows), inverse)| {
            let rows = rows.chunks_exact(width).zip(output.chunks_exact_mut(width));
            for ((row, output), inverse) in rows.zip(inverse) {
                let squares: f32 = row.iter().map(|x| x * x).sum();
                *inverse = if squares == 0.0 {
                    1.0
                } else {
                    1.0 / squares.sqrt()
                };
                for (into, x) in output.iter_mut().zip(row) {
                    *into = x * *inverse;
                }
            }
        });
    (output, inverse)
}

/// `dx = (dy - (y · dy) y) / |x|`, and `dy` for a row of zeros.
fn backward<B: Host>(
    (output, inverse): (FloatTensor<B>, Arc<Vec<f32>>),
    output_grad: FloatTensor<B>,
) -> [FloatTensor<B>; 1] {
    let width = output.shape().dims::<4>()[3];
    let output = B::elements(&output);
    let mut d_rows = B::into_unique(output_grad);
    let task = rows_per_task(inverse.len(), width);
    B::elements_mut(&mut d_rows)
        .par_chunks_mut(task * width)
        .zip(output.par_chunks(task * width))
        .zip(inverse.par_chunks(task))
        .for_each(|((d_rows, rows), inverse)| {
            let rows = rows.chunks_exact(width).zip(d_rows.chunks_exact_mut(width));
            for ((row, d_row), inverse) in rows.zip(inverse) {
                let dot: f32 = row.iter().zip(&*d_row).map(|(y, d)| y * d).sum();
                for (d, y) in d_row.iter_mut().zip(row) {
                    *d = inverse * (*d - dot * y);
                }
            }
        });
    [d_rows]
}
