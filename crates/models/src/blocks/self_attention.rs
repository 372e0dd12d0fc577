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

use crate::tokens::row_numbers;

/// Who sees whom in a batch of sequences.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight<'a> {
    /// How long each sequence is; the rest of its row is padding.
    pub(crate) lengths: &'a [usize],
    /// Whether places see what is before them alone.
    pub(crate) is_causal: bool,
    /// Collects the entropy of each attention, if requested.
    pub(crate) entropies: Option<&'a Entropies>,
}

/// The entropies of the attentions of a forward pass, each averaged over heads and over the queries
/// that are not padding.
#[derive(Debug, Default)]
pub(crate) struct Entropies(RefCell<Vec<Result<Tensor<1>, NoEntropy>>>);

impl Entropies {
    /// Their mean over all attentions.
    pub(crate) fn mean(self) -> Result<Tensor<1>, NoEntropy> {
        let all = self.0.into_inner();
        let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::cat(all, 0).mean())
    }
}

impl Sight<'_> {
    /// Every sequence to itself.
    ///
    /// # Shapes
    ///
    /// - places: `[batch, seq, d_model]`
    /// - result: the same
    pub(crate) fn attend(&self, attention: &MultiHeadAttention, places: Tensor<3>) -> Tensor<3> {
        let [_, seq, _] = places.dims();
        let is_padded = self.lengths.iter().any(|length| *length < seq);
        let mechanism = attention.mechanism();
        let lengths = || Pattern::key_lengths(self.lengths);
        let unpadded = match self.is_causal {
            true => Pattern::Causal,
            false => Pattern::Full,
        };
        let pattern = match mechanism.capabilities().padding {
            _ if !is_padded => unpadded,
            Padding::ChangesResult(_) => return self.attend_by_length(attention, places),
            Padding::NeedsKeyLengths => unpadded.and(lengths()),
            Padding::Masked if self.is_causal => unpadded,
            Padding::Masked => lengths(),
        };
        self.add_entropy(attention, &places, &places, &pattern);
        attention.forward(places.clone(), places.clone(), places, pattern)
    }

    /// Adds the entropy of an attention of these sequences, if requested.
    pub(super) fn add_entropy(
        &self,
        attention: &MultiHeadAttention,
        query: &Tensor<3>,
        key: &Tensor<3>,
        pattern: &Pattern,
    ) {
        let Some(Entropies(entropies)) = self.entropies else {
            return;
        };
        let entropy = attention.query_entropy(query.clone(), key.clone(), pattern.clone());
        let mean = entropy.map(|entropy| {
            let [batch, heads, seq] = entropy.dims();
            let counted = self.lengths.iter().flat_map(|length| {
                (0..seq).map(move |position| f32::from(u8::from(position < *length)))
            });
            let counted = TensorData::new(counted.collect::<Vec<f32>>(), [batch, 1, seq]);
            let counted = Tensor::<3>::from_data(counted, (&entropy.device(), entropy.dtype()));
            let count = heads * self.lengths.iter().sum::<usize>();
            (entropy * counted).sum().div_scalar(count.max(1) as f64)
        });
        entropies.borrow_mut().push(mean);
    }

    /// Where every place looks, of sequences without padding.
    ///
    /// # Shapes
    ///
    /// - places: `[batch, seq, d_model]`
    /// - result: `[batch, heads, seq, seq]`
    pub(crate) fn look(&self, attention: &MultiHeadAttention, places: Tensor<3>) -> Tensor<4> {
        let pattern = match self.is_causal {
            true => Pattern::Causal,
            false => Pattern::Full,
        };
        look_at(attention, places.clone(), places, pattern)
    }

    /// The same, sequences of one length at a time.
    fn attend_by_length(&self, attention: &MultiHeadAttention, places: Tensor<3>) -> Tensor<3> {
        let [batch, seq, d_model] = places.dims();
        let device = places.device();
        let mut rows_of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, length) in self.lengths.iter().enumerate() {
            rows_of.entry(*length).or_default().push(row);
        }
        let pattern = match self.is_causal {
            true => Pattern::Causal,
            false => Pattern::Full,
        };
        let mut parts = Vec::new();
        let of_groups = Entropies::default();
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
                    entropies: self.entropies.map(|_| &of_groups),
                };
                group.add_entropy(attention, &own, &own, &pattern);
                let pattern = pattern.clone();
                part.push(attention.forward(own.clone(), own.clone(), own, pattern));
            }
            if length < seq {
                let options = (&device, places.dtype());
                part.push(Tensor::zeros([count, seq - length, d_model], options));
            }
            parts.push(Tensor::cat(part, 1)); // [count, seq, d_model]
        }
        if let Some(Entropies(entropies)) = self.entropies {
            // The mean of all queries, of which a group has as many as it has tokens.
            let tokens = rows_of.iter().map(|(length, rows)| length * rows.len());
            let shares = tokens
                .filter(|tokens| *tokens > 0)
                .map(|tokens| tokens as f64);
            let all = self.lengths.iter().sum::<usize>().max(1) as f64;
            let of_groups = of_groups.0.into_inner().into_iter().zip(shares);
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

/// Where every place looks in another sequence: `[batch, heads, seq, seq_k]`.
pub(super) fn look_at(
    attention: &MultiHeadAttention,
    places: Tensor<3>,
    other: Tensor<3>,
    seen: Pattern,
) -> Tensor<4> {
    let rows: Vec<usize> = (0..places.dims()[1]).collect();
    attention.explain(places, other, seen, &rows)
}

/// The next places of every sequence, causally: one, or several, the first ones at once.
///
/// # Shapes
///
/// - places: `[batch, new, d_model]`
/// - result: the same
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
