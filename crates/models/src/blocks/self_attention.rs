//! Attention of a batch of sequences to themselves, whatever the mechanism and however they
//! are padded: what is computed for a sequence never depends on those beside it.
//!
//! Padding is behind a sequence. A causal mechanism never looks there, others are told key
//! lengths. But some mechanisms take their sizes from the number of places, padding
//! included: these attend to sequences of one length at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use zoo_attention::{DecodeCache, MultiHeadAttention, NoEntropy, Pattern};
use zoo_spec::Padding;

use crate::tokens::{presence, row_numbers};

/// Who sees whom in a batch of sequences.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight<'a> {
    /// How long each sequence is; the rest of its row is padding.
    pub(crate) lengths: &'a [usize],
    /// Whether places see what is before them alone.
    pub(crate) is_causal: bool,
    pub(crate) notes: &'a Notes,
}

/// What is noted of every attention of a forward pass.
#[derive(Debug)]
pub(crate) enum Notes {
    Nothing,
    /// The entropy, averaged over heads and over the queries that are not padding.
    Entropies(RefCell<Vec<Result<Tensor<1>, NoEntropy>>>),
    /// The weights, `[batch, heads, seq_q, seq_k]`, of sequences without padding.
    Weights(RefCell<Vec<Tensor<4>>>),
}

impl Notes {
    /// What a pass computes, and the mean entropy of its attentions.
    pub(crate) fn mean_entropy<Output>(
        pass: impl FnOnce(&Self) -> Output,
    ) -> Result<(Output, Tensor<1>), NoEntropy> {
        let entropies = Self::Entropies(RefCell::default());
        let output = pass(&entropies);
        let all = entropies.entropies().collect::<Result<Vec<_>, _>>()?;
        Ok((output, Tensor::cat(all, 0).mean()))
    }

    /// What a pass computes, and the weights of its attentions, one after the other.
    pub(crate) fn weights<Output>(pass: impl FnOnce(&Self) -> Output) -> (Output, Vec<Tensor<4>>) {
        let notes = Self::Weights(RefCell::default());
        let output = pass(&notes);
        let weights = match notes {
            Self::Weights(weights) => weights.into_inner(),
            Self::Nothing | Self::Entropies(_) => vec![],
        };
        (output, weights)
    }

    fn entropies(self) -> impl Iterator<Item = Result<Tensor<1>, NoEntropy>> {
        let entropies = match self {
            Self::Entropies(entropies) => entropies.into_inner(),
            Self::Nothing | Self::Weights(_) => vec![],
        };
        entropies.into_iter()
    }
}

impl Sight<'_> {
    /// Every sequence to itself: `[batch, seq, d_model]`.
    pub(crate) fn attend(&self, attention: &MultiHeadAttention, places: Tensor<3>) -> Tensor<3> {
        let [_, seq, _] = places.dims();
        let is_padded = self.lengths.iter().any(|length| *length < seq);
        let mechanism = attention.mechanism();
        let lengths = || Pattern::key_lengths(self.lengths);
        let unpadded = self.unpadded();
        let pattern = match mechanism.capabilities().padding {
            _ if !is_padded => unpadded,
            Padding::ChangesResult(_) => return self.attend_by_length(attention, places),
            Padding::NeedsKeyLengths => unpadded.and(lengths()),
            Padding::Masked if self.is_causal => unpadded,
            Padding::Masked => lengths(),
        };
        self.note(attention, &places, &places, &pattern);
        attention.forward(places.clone(), places.clone(), places, pattern)
    }

    fn unpadded(&self) -> Pattern {
        match self.is_causal {
            true => Pattern::Causal,
            false => Pattern::Full,
        }
    }

    /// Notes what is asked for of an attention of these sequences.
    pub(super) fn note(
        &self,
        attention: &MultiHeadAttention,
        query: &Tensor<3>,
        key: &Tensor<3>,
        pattern: &Pattern,
    ) {
        match self.notes {
            Notes::Nothing => {}
            Notes::Entropies(entropies) => {
                let entropy = attention.query_entropy(query.clone(), key.clone(), pattern.clone());
                let mean = entropy.map(|entropy| self.mean_of_queries(entropy));
                entropies.borrow_mut().push(mean);
            }
            Notes::Weights(weights) => {
                let rows: Vec<usize> = (0..query.dims()[1]).collect();
                let (query, key) = (query.clone(), key.clone());
                let explained = attention.explain(query, key, pattern.clone(), &rows);
                weights.borrow_mut().push(explained);
            }
        }
    }

    /// The mean of `[batch, heads, seq]` over heads and over queries that are not padding.
    fn mean_of_queries(&self, entropy: Tensor<3>) -> Tensor<1> {
        let [batch, heads, seq] = entropy.dims();
        let counted = presence(self.lengths, seq).map(|is_there| f32::from(u8::from(is_there)));
        let counted = TensorData::new(counted.collect::<Vec<f32>>(), [batch, 1, seq]);
        let counted = Tensor::<3>::from_data(counted, (&entropy.device(), entropy.dtype()));
        let count = heads * self.lengths.iter().sum::<usize>();
        (entropy * counted).sum().div_scalar(count.max(1) as f64)
    }

    /// The same, sequences of one length at a time.
    fn attend_by_length(&self, attention: &MultiHeadAttention, places: Tensor<3>) -> Tensor<3> {
        let [batch, seq, d_model] = places.dims();
        let device = places.device();
        let mut rows_of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, length) in self.lengths.iter().enumerate() {
            rows_of.entry(*length).or_default().push(row);
        }
        let pattern = self.unpadded();
        let mut parts = Vec::new();
        let of_groups = match self.notes {
            Notes::Entropies(_) => Notes::Entropies(RefCell::default()),
            Notes::Nothing | Notes::Weights(_) => Notes::Nothing,
        };
        for (length, rows) in &rows_of {
            let (length, count) = (*length, rows.len());
            let mut part = Vec::new();
            if length > 0 {
                let own = places
                    .clone()
                    .select(0, row_numbers(rows, &device))
                    .slice_dim(1, 0..length);
                let group = Sight {
                    lengths: &vec![length; count],
                    is_causal: self.is_causal,
                    notes: &of_groups,
                };
                group.note(attention, &own, &own, &pattern);
                let pattern = pattern.clone();
                part.push(attention.forward(own.clone(), own.clone(), own, pattern));
            }
            if length < seq {
                let options = (&device, places.dtype());
                part.push(Tensor::zeros([count, seq - length, d_model], options));
            }
            parts.push(Tensor::cat(part, 1)); // [count, seq, d_model]
        }
        if let Notes::Entropies(entropies) = self.notes {
            // The mean of all queries, of which a group has as many as it has tokens.
            let tokens = rows_of.iter().map(|(length, rows)| length * rows.len());
            let shares = tokens
                .filter(|tokens| *tokens > 0)
                .map(|tokens| tokens as f64);
            let all = self.lengths.iter().sum::<usize>().max(1) as f64;
            let of_groups = of_groups.entropies().zip(shares);
            let weighted = of_groups.map(|(mean, share)| Ok(mean?.mul_scalar(share / all)));
            let weighted: Result<Vec<_>, NoEntropy> = weighted.collect();
            let mean = weighted.map(|weighted| Tensor::cat(weighted, 0).sum());
            entropies.borrow_mut().push(mean);
        }
        // Back into the order they came in.
        let mut order = vec![0; batch];
        for (at, row) in rows_of.values().flatten().enumerate() {
            order[*row] = at;
        }
        Tensor::cat(parts, 0).select(0, row_numbers(&order, &device))
    }
}

/// The next places of every sequence, causally: `[batch, new, d_model]`, one, or several, the first
/// ones at once.
pub(crate) fn advance(
    attention: &MultiHeadAttention,
    places: Tensor<3>,
    cache: &mut DecodeCache,
) -> Tensor<3> {
    let [_, new, _] = places.dims();
    match new {
        1 => attention.step(places, cache),
        _ if cache.is_empty() => attention.prefill(places, cache),
        _ => {
            let step = |at| {
                let place = places.clone().slice_dim(1, at..at + 1);
                attention.step(place, cache)
            };
            Tensor::cat((0..new).map(step).collect(), 1)
        }
    }
}
