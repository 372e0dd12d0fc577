//! Decoder, step by step or over the whole target at once.

use burn::nn::Linear;
use burn::tensor::{Int, Tensor};
use zoo_kernels::recurrent::{LayerState, RecurrentState};
use zoo_kernels::{Activation, dropout, linear};
use zoo_spec::InputFeeding;

use super::Seq2Seq;
use super::alignment::ProjectedSource;
use crate::Tokens;
use crate::blocks::logits;
use crate::random::uniform;

/// Decoding state of a [`Seq2Seq`].
#[derive(Debug, Clone)]
pub struct Seq2SeqState {
    pub(super) source: ProjectedSource,
    pub(super) recurrent: RecurrentState,
    /// `h~` of the last step, `[batch, d_hidden]`, with input feeding.
    pub(super) fed: Option<Tensor<2>>,
    /// Position of the next target token.
    pub(super) position: usize,
}

impl Seq2Seq {
    /// Encodes the source and creates a state for decoding.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq]`
    pub fn start(&self, source: &Tokens) -> Seq2SeqState {
        let [batch, _] = source.dims();
        let embedding = self.source_embedding.as_ref();
        let embedding = embedding.unwrap_or(&self.target_embedding);
        let embedded = zoo_kernels::embedding(embedding, source.ids(), 1.0); // [batch, seq, d_embedding]
        let embedded = dropout(&self.dropout, embedded);
        let (hidden, last) = self.encoder.forward(embedded, Some(source.lengths()), None);
        let last = last.top(); // [batch, d_hidden]
        let initial = |bridge: &Linear| LayerState {
            hidden: linear(bridge, Activation::Tanh, last.clone()),
            cell: None,
        };
        let d_hidden = self.config.spec.d_hidden;
        let zeros = || Tensor::zeros([batch, d_hidden], (&last.device(), last.dtype()));
        Seq2SeqState {
            source: self.attention.project(hidden, source.lengths()),
            recurrent: RecurrentState {
                layers: self.bridge.iter().map(initial).collect(),
            },
            fed: (self.config.spec.input_feeding == InputFeeding::Attentional).then(zeros),
            position: 0,
        }
    }

    /// Decodes the whole target at once, without feeding: `h~ [batch, seq_q, d_hidden]` and the
    /// attention weights `[batch, seq_q, seq_k]`.
    pub(super) fn decode_parallel(
        &self,
        target: &Tokens,
        state: Seq2SeqState,
    ) -> (Tensor<3>, Tensor<3>) {
        let embedded = self.embed(target.ids());
        let (states, _) = self.decoder.forward(embedded, None, Some(state.recurrent));
        let (context, weights) = self.attention.forward(states.clone(), &state.source, 0);
        let both = Tensor::cat(vec![context, states], 2); // [batch, seq_q, 2 d_hidden]
        let combined = linear(&self.combination, Activation::Tanh, both);
        (combined, weights)
    }

    /// The same outputs step by step, with feeding and scheduled sampling.
    pub(super) fn decode_sequential(
        &self,
        target: &Tokens,
        state: &mut Seq2SeqState,
        teacher_forcing: f64,
        seed: u64,
    ) -> (Tensor<3>, Tensor<3>) {
        let [_, seq] = target.dims();
        let embedded = unstack(self.embed(target.ids()));
        let mut combined: Vec<Tensor<2>> = Vec::with_capacity(seq);
        let mut alignment = Vec::with_capacity(seq);
        for (position, embedded) in embedded.into_iter().enumerate() {
            let is_forced = uniform(seed, [0, position as u64]) < teacher_forcing;
            let token = match combined.last().filter(|_| !is_forced) {
                Some(last) => self.embed_best(last.clone()),
                None => embedded,
            };
            let (step, weights) = self.step(token, state);
            combined.push(step);
            alignment.push(weights);
        }
        (Tensor::stack(combined, 1), Tensor::stack(alignment, 1))
    }

    /// One decoder step for embedded tokens `[batch, d_embedding]`: `h~ [batch, d_hidden]` and the
    /// attention weights `[batch, seq_k]`.
    pub(super) fn step(
        &self,
        embedded: Tensor<2>,
        state: &mut Seq2SeqState,
    ) -> (Tensor<2>, Tensor<2>) {
        let attend = |hidden: Tensor<2>, state: &Seq2SeqState| {
            let (context, weights) =
                self.attention
                    .forward(hidden.unsqueeze_dim(1), &state.source, state.position);
            (context.squeeze_dim::<2>(1), weights.squeeze_dim::<2>(1))
        };
        let recur = |input: Tensor<2>, state: &mut Seq2SeqState| {
            let (hidden, recurrent) = self.decoder.step(input, Some(state.recurrent.clone()));
            state.recurrent = recurrent;
            hidden
        };
        let (hidden, (context, weights)) = match self.config.spec.input_feeding {
            InputFeeding::Context => {
                let attended = attend(state.recurrent.top(), state);
                let input = Tensor::cat(vec![embedded, attended.0.clone()], 1);
                (recur(input, state), attended)
            }
            InputFeeding::Attentional | InputFeeding::None => {
                let fed = state.fed.take();
                let input: Vec<_> = [embedded].into_iter().chain(fed).collect();
                let hidden = recur(Tensor::cat(input, 1), state);
                (hidden.clone(), attend(hidden, state))
            }
        };
        let both = Tensor::cat(vec![context, hidden], 1); // [batch, 2 d_hidden]
        let combined = linear(&self.combination, Activation::Tanh, both);
        state.fed =
            (self.config.spec.input_feeding == InputFeeding::Attentional).then(|| combined.clone());
        state.position += 1;
        (combined, weights)
    }

    pub(super) fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let embedded = zoo_kernels::embedding(&self.target_embedding, tokens, 1.0);
        dropout(&self.dropout, embedded)
    }

    /// Embedding `[batch, d_embedding]` of the most likely token, given `h~ [batch, d_hidden]`.
    fn embed_best(&self, last: Tensor<2>) -> Tensor<2> {
        let logits = self.predict(last.detach().unsqueeze_dim(1)); // [batch, 1, vocabulary]
        self.embed(logits.argmax(2).squeeze_dim(2)).squeeze_dim(1)
    }

    pub(super) fn predict(&self, hidden: Tensor<3>) -> Tensor<3> {
        logits(hidden, self.head.as_ref(), &self.target_embedding)
    }
}

/// Splits `[batch, seq, width]` into `seq` tensors `[batch, width]`.
///
/// The gradient of a slice is written into zeros as large as the sliced tensor. Slicing in two
/// stages writes `seq · sqrt(seq)` elements instead of `seq · seq`.
fn unstack(x: Tensor<3>) -> Vec<Tensor<2>> {
    let [_, seq, _] = x.dims();
    let size = (seq as f64).sqrt().ceil() as usize;
    let chunks = x.split(size, 1).into_iter();
    chunks
        .flat_map(|chunk| chunk.split(1, 1))
        .map(|step| step.squeeze_dim(1))
        .collect()
}
