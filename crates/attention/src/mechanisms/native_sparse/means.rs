//! Attention to the means of blocks.

use burn::tensor::{Bool, Device, Tensor, TensorData};

use crate::mechanisms::block_selection::{BlockMeans, Visibility};
use crate::scan::KeyMask;
use crate::shape::pad_rows;
use crate::{AttentionOptions, AttentionShape, Pattern, flash};

/// Query heads of a call of [`flash`](crate::flash()): GPUs limit their number.
const MAX_HEADS: usize = 1 << 14;

/// The means of blocks, and which queries attend to them.
pub(super) struct Means {
    pub(super) of_blocks: BlockMeans,
    /// `[batch, blocks]`: blocks without a mean, if there are any.
    empty: Option<Tensor<2, Bool>>,
    /// The size of blocks, which may be more than the number of keys.
    block_size: usize,
    is_causal: bool,
}

impl Means {
    pub(super) fn new(
        visibility: &Visibility<'_>,
        mask: &KeyMask,
        block_size: usize,
        device: &Device,
    ) -> Self {
        let of_blocks = BlockMeans::new(visibility, device);
        Self {
            empty: of_blocks.empty_blocks(),
            of_blocks,
            block_size,
            is_causal: mask.is_causal,
        }
    }

    /// The means of rows with zeros for masked keys, `[batch, kv_heads, blocks, width]`.
    pub(super) fn of(&self, rows: Tensor<4>, visibility: &Visibility<'_>) -> Tensor<4> {
        self.of_blocks.of(rows, visibility)
    }

    /// The masks of the queries `rows`, which broadcast to `[batch, heads, rows, blocks]`.
    pub(super) fn mask(
        &self,
        visibility: &Visibility<'_>,
        rows: &[usize],
        device: &Device,
    ) -> Vec<Tensor<4, Bool>> {
        let blocks = visibility.num_blocks();
        let mut masks = Vec::new();
        if let Some(empty) = &self.empty {
            let [batch, _] = empty.dims();
            masks.push(empty.clone().reshape([batch, 1, 1, blocks]));
        }
        if self.is_causal {
            let mask = rows.iter().flat_map(|&row| {
                let complete = visibility.num_keys(row) / self.block_size;
                (0..blocks).map(move |block| block >= complete)
            });
            let mask = TensorData::new(mask.collect::<Vec<bool>>(), [1, 1, rows.len(), blocks]);
            masks.push(Tensor::from_data(mask, device));
        }
        masks
    }

    /// Weights of the keys, `[batch, heads, rows, seq_k]`, given those of the means.
    pub(super) fn spread(
        &self,
        weights: Tensor<4>,
        visibility: &Visibility<'_>,
        mask: &KeyMask,
    ) -> Tensor<4> {
        let [batch, heads, rows, blocks] = weights.dims();
        let (size, seq_k) = (visibility.block_size(), visibility.seq_k());
        let weights = weights * self.of_blocks.factors.clone().swap_dims(2, 3);
        let weights = weights.reshape([batch, heads, rows * blocks, 1]);
        let weights = weights.expand([batch, heads, rows * blocks, size]);
        let weights = weights.reshape([batch, heads, rows, blocks * size]);
        let weights = weights.slice_dim(3, 0..seq_k);
        match &mask.masked {
            Some(masked) => {
                let masked = masked.clone().swap_dims(2, 3);
                weights.mask_fill(masked.expand([batch, heads, rows, seq_k]), 0.0)
            }
            None => weights,
        }
    }

    /// Attention of all queries to the means, `[batch, heads, seq_q, d_value]`.
    pub(super) fn attend(
        &self,
        [query, key, value]: [Tensor<4>; 3],
        shape: &AttentionShape,
        options: &AttentionOptions,
    ) -> Tensor<4> {
        let with_empty = |empty: Option<Tensor<2, Bool>>| match empty {
            Some(empty) => options.clone().with_pattern(Pattern::KeyPadding(empty)),
            None => options.clone().with_pattern(Pattern::Full),
        };
        if !self.is_causal {
            return flash(query, key, value, &with_empty(self.empty.clone()));
        }
        let [batch, heads, seq_q, seq_k] = shape.scores();
        let complete = seq_k / self.block_size;
        // Queries before the last key of the first block attend to none.
        let skipped = (seq_q + self.block_size)
            .saturating_sub(seq_k + 1)
            .min(seq_q);
        if complete == 0 || skipped == seq_q {
            return Tensor::zeros([batch, heads, seq_q, shape.d_value], &query.device());
        }
        let query = query.slice_dim(2, skipped..seq_q);
        let [key, value] = [key, value].map(|rows| rows.slice_dim(2, 0..complete));
        let empty = self.empty.clone();
        let options = with_empty(empty.map(|empty| empty.slice_dim(1, 0..complete)));
        let context = if seq_q - skipped == 1 {
            flash(query, key, value, &options)
        } else {
            let first = seq_k + skipped + 1 - seq_q - self.block_size;
            self.attend_causally([query, key, value], first, &options)
        };
        pad_rows(context, [skipped, 0], 0.0)
    }

    /// Attention of queries to complete blocks, the first query being at this distance from the last key of
    /// the first block.
    ///
    /// Every `block_size`-th query attends to one mean more than the one before: with the queries in between
    /// as heads of their own, that is a causal pattern.
    fn attend_causally(
        &self,
        [query, key, value]: [Tensor<4>; 3],
        first: usize,
        options: &AttentionOptions,
    ) -> Tensor<4> {
        let [batch, heads, seq_q, d_head] = query.dims();
        let [_, _, blocks, d_value] = value.dims();
        let size = self.block_size;
        let rows = blocks - first / size;
        let before = first % size;
        let query = pad_rows(query, [before, rows * size - before - seq_q], 0.0);
        let query = query.reshape([batch, heads, rows, size, d_head]);
        let query = query.swap_dims(2, 3); // [batch, heads, size, rows, d_head]
        let options = options.restricted_to(Pattern::Causal);
        let per_call = (MAX_HEADS / heads).clamp(1, size);
        let contexts = (0..size).step_by(per_call).map(|start| {
            let end = size.min(start + per_call);
            let query = query.clone().slice_dim(2, start..end);
            let query = query.reshape([batch, heads * (end - start), rows, d_head]);
            let context = flash(query, key.clone(), value.clone(), &options);
            context.reshape([batch, heads, end - start, rows, d_value])
        });
        let contexts: Vec<Tensor<5>> = contexts.collect();
        let context = Tensor::cat(contexts, 2).swap_dims(2, 3);
        let context = context.reshape([batch, heads, rows * size, d_value]);
        context.slice_dim(2, before..before + seq_q)
    }
}
