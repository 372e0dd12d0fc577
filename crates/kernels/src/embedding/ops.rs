//! The embedding op for backends with tensors in host memory.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};

use crate::autodiff::{Step, record};
use crate::hosts::Host;

#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(super) trait EmbeddingOp: Backend {
    /// `scale · table[tokens]` of `table: [rows, width]` in `f32` and `tokens: [batch, seq]`.
    #[allow(unused_variables)] // unused without backends
    fn fused_embedding(
        table: FloatTensor<Self>,
        tokens: IntTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self>;
}

impl<B: Host> EmbeddingOp for B {
    fn fused_embedding(table: FloatTensor<B>, tokens: IntTensor<B>, scale: f64) -> FloatTensor<B> {
        Lookup::new::<B>(&table, tokens, scale).forward::<B>(&table)
    }
}

impl<B: Host, C: CheckpointStrategy> EmbeddingOp for Autodiff<B, C> {
    fn fused_embedding(
        table: FloatTensor<Self>,
        tokens: IntTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self> {
        let parents = [table.node()];
        let table = table.into_primitive();
        let lookup = Lookup::new::<B>(&table, tokens, scale);
        let output = lookup.forward::<B>(&table);
        let step =
            Step::<B, _, 1>(|lookup: Lookup, output_grad| [lookup.backward::<B>(&output_grad)]);
        record::<B, C, _, 1>(step, parents, lookup, output)
    }
}

/// The rows of a table for some tokens.
#[derive(Debug, Clone)]
struct Lookup {
    tokens: Arc<Vec<usize>>,
    /// `[batch, seq]`
    dims: [usize; 2],
    /// `[rows, width]`
    table: [usize; 2],
    scale: f32,
}

impl Lookup {
    fn new<B: Host>(table: &FloatTensor<B>, tokens: IntTensor<B>, scale: f64) -> Self {
        let dims = tokens.shape().dims();
        let [rows, width] = table.shape().dims();
        let data = burn::tensor::try_read_sync(B::int_into_data(tokens))
            .and_then(Result::ok)
            .expect("tensors in host memory can be read");
        let row = |token: i64| {
            let row = usize::try_from(token).ok().filter(|row| *row < rows);
            row.unwrap_or_else(|| panic!("embedding: no token {token} in a table of {rows} rows"))
        };
        Self {
            tokens: Arc::new(data.iter::<i64>().map(row).collect()),
            dims,
            table: [rows, width],
            scale: scale as f32,
        }
    }

    fn forward<B: Host>(&self, table: &FloatTensor<B>) -> FloatTensor<B> {
        let [batch, seq] = self.dims;
        let [_, width] = self.table;
        let table = B::elements(table);
        let mut output = Vec::with_capacity(self.tokens.len() * width);
        for &token in self.tokens.iter() {
            let row = &table[token * width..][..width];
            output.extend(row.iter().map(|element| element * self.scale));
        }
        B::from_vec(output, &[batch, seq, width])
    }

    /// The gradient of the table. Positions are added in their order, so the sum does not depend on
    /// threads.
    fn backward<B: Host>(&self, output_grad: &FloatTensor<B>) -> FloatTensor<B> {
        let [rows, width] = self.table;
        let output_grad = B::elements(output_grad);
        let mut gradient = vec![0.0; rows * width];
        for (&token, output_grad) in self.tokens.iter().zip(output_grad.chunks_exact(width)) {
            let row = &mut gradient[token * width..][..width];
            for (sum, term) in row.iter_mut().zip(output_grad) {
                *sum += term * self.scale;
            }
        }
        B::from_vec(gradient, &self.table)
    }
}
