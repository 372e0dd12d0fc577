//! Self-attention of padded batches with any mechanism: the output of a sequence never depends on
//! the other rows of its batch.
//!
//! Sequences are padded at the end. Causal mechanisms never attend to the padding, others are given
//! key lengths. The sizes of some mechanisms depend on the padded length; these attend to groups of
//! sequences of equal length instead.

use std::cell::RefCell;
use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use zoo_attention::{AttentionError, AttentionInput, DecodeCache, MultiHeadAttention, Pattern};
use zoo_spec::Padding;

use crate::tokens::{is_token, row_indices};

/// Masking of a batch, and what to record of its attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelfAttentionOptions<'a> {
    /// Length of each sequence; the rest of its row is padding.
    lengths: &'a [usize],
    is_causal: bool,
    recorder: Recorder<'a>,
}

/// Records statistics of every attention module of a forward pass.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Recorder<'a> {
    Disabled,
    Entropy(&'a Entropies),
    /// Attention weights of some queries, `[batch, heads, queries, seq_k]`, of unpadded sequences.
    Weights(&'a [usize], &'a RefCell<Vec<Tensor<4>>>),
}

/// Entropy of each module, averaged over heads and over the queries that are not padding.
type Entropies = RefCell<Vec<Result<Tensor<1>, AttentionError>>>;

impl Recorder<'_> {
    /// Runs a forward pass; returns its output and the mean entropy of its attention weights.
    pub(crate) fn mean_entropy<Output>(
        pass: impl FnOnce(Recorder<'_>) -> Output,
    ) -> Result<(Output, Tensor<1>), AttentionError> {
        let entropies = Entropies::default();
        let output = pass(Recorder::Entropy(&entropies));
        let entropies = entropies.into_inner().into_iter();
        let entropies = entropies.collect::<Result<Vec<_>, _>>()?;
        Ok((output, Tensor::cat(entropies, 0).mean()))
    }

    /// Runs a forward pass; returns its output and the attention weights of these queries in forward
    /// order.
    pub(crate) fn weights<Output>(
        queries: &[usize],
        pass: impl FnOnce(Recorder<'_>) -> Output,
    ) -> (Output, Vec<Tensor<4>>) {
        let weights = RefCell::default();
        let output = pass(Recorder::Weights(queries, &weights));
        (output, weights.into_inner())
    }
}

impl<'a> SelfAttentionOptions<'a> {
    pub(crate) fn new(lengths: &'a [usize], is_causal: bool, recorder: Recorder<'a>) -> Self {
        Self {
            lengths,
            is_causal,
            recorder,
        }
    }

    /// Self-attention of `x`, `[batch, seq, d_model]`.
    pub(crate) fn attend(&self, attention: &MultiHeadAttention, x: Tensor<3>) -> Tensor<3> {
        let [_, seq, _] = x.dims();
        let is_padded = self.lengths.iter().any(|length| *length < seq);
        let key_lengths = || Pattern::key_lengths(self.lengths);
        let unpadded = if self.is_causal {
            Pattern::Causal
        } else {
            Pattern::Full
        };
        let pattern = match attention.mechanism().capabilities().padding {
            _ if !is_padded => unpadded,
            Padding::ChangesResult(_) => return self.attend_by_length(attention, x),
            Padding::NeedsKeyLengths => unpadded.and(key_lengths()),
            Padding::Masked if self.is_causal => unpadded,
            Padding::Masked => key_lengths(),
        };
        let input = AttentionInput::self_attn(x).pattern(pattern);
        self.record(attention, &input);
        attention.forward(input).context
    }

    pub(super) fn record(&self, attention: &MultiHeadAttention, input: &AttentionInput) {
        match self.recorder {
            Recorder::Disabled => {}
            Recorder::Entropy(entropies) => {
                let entropy = attention.query_entropy(input.clone());
                let mean = entropy.map(|entropy| self.mean_over_queries(entropy));
                entropies.borrow_mut().push(mean);
            }
            Recorder::Weights(queries, all) => {
                let weights = attention.explain(input.clone(), queries);
                all.borrow_mut().push(weights);
            }
        }
    }

    /// Mean of `[batch, heads, seq]` over heads and over the queries that are not padding.
    fn mean_over_queries(&self, entropy: Tensor<3>) -> Tensor<1> {
        let [batch, heads, seq] = entropy.dims();
        let mask = is_token(self.lengths, seq).map(|is_token| f32::from(u8::from(is_token)));
        let mask = TensorData::new(mask.collect::<Vec<f32>>(), [batch, 1, seq]);
        let mask = Tensor::<3>::from_data(mask, (&entropy.device(), entropy.dtype()));
        let count = heads * self.lengths.iter().sum::<usize>();
        (entropy * mask).sum().div_scalar(count.max(1) as f64)
    }

    /// Attends to each group of sequences of equal length separately.
    fn attend_by_length(&self, attention: &MultiHeadAttention, x: Tensor<3>) -> Tensor<3> {
        let [batch, seq, d_model] = x.dims();
        let device = x.device();
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, length) in self.lengths.iter().enumerate() {
            groups.entry(*length).or_default().push(row);
        }
        let mut outputs = Vec::new();
        let group_entropies = Entropies::default();
        let recorder = match self.recorder {
            Recorder::Entropy(_) => Recorder::Entropy(&group_entropies),
            // Weights are only recorded of unpadded batches, which are not split into groups.
            Recorder::Disabled | Recorder::Weights(..) => Recorder::Disabled,
        };
        for (length, rows) in &groups {
            let (length, count) = (*length, rows.len());
            let mut parts = Vec::new();
            if length > 0 {
                let unpadded = x
                    .clone()
                    .select(0, row_indices(rows, &device))
                    .slice_dim(1, 0..length);
                let lengths = vec![length; count];
                let group = SelfAttentionOptions::new(&lengths, self.is_causal, recorder);
                parts.push(group.attend(attention, unpadded));
            }
            if length < seq {
                let options = (&device, x.dtype());
                parts.push(Tensor::zeros([count, seq - length, d_model], options));
            }
            outputs.push(Tensor::cat(parts, 1)); // [count, seq, d_model]
        }
        if let Recorder::Entropy(entropies) = self.recorder {
            // The mean over all queries weights each group by its number of tokens.
            let tokens = groups.iter().map(|(length, rows)| length * rows.len());
            let tokens = tokens.filter(|tokens| *tokens > 0);
            let total = self.lengths.iter().sum::<usize>().max(1) as f64;
            let weighted: Result<Vec<_>, AttentionError> = group_entropies
                .into_inner()
                .into_iter()
                .zip(tokens)
                .map(|(mean, tokens)| Ok(mean?.mul_scalar(tokens as f64 / total)))
                .collect();
            let mean = weighted.map(|weighted| Tensor::cat(weighted, 0).sum());
            entropies.borrow_mut().push(mean);
        }
        // Restore the order of the rows.
        let mut order = vec![0; batch];
        for (i, row) in groups.values().flatten().enumerate() {
            order[*row] = i;
        }
        Tensor::cat(outputs, 0).select(0, row_indices(&order, &device))
    }
}

/// Decodes the next positions of every sequence, `[batch, new, d_model]`. The first positions are a
/// prefill; later ones are decoded one by one.
pub(crate) fn advance(
    attention: &MultiHeadAttention,
    x: Tensor<3>,
    cache: &mut DecodeCache,
) -> Tensor<3> {
    let [_, new, _] = x.dims();
    match new {
        1 => attention.step(x, cache),
        _ if cache.is_empty() => attention.prefill(x, cache),
        _ => {
            let step = |i| {
                let position = x.clone().slice_dim(1, i..i + 1);
                attention.step(position, cache)
            };
            Tensor::cat((0..new).map(step).collect(), 1)
        }
    }
}
