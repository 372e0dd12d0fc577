//! The target's half, place by place or at once.

use burn::tensor::activation::tanh;
use burn::tensor::{Int, Tensor};
use zoo_kernels::dropout;
use zoo_kernels::recurrent::{LayerState, RecurrentState};
use zoo_spec::Feeding;

use super::Seq2Seq;
use super::alignment::Read;
use crate::Tokens;
use crate::blocks::logits;
use crate::chance::uniform;

/// What a [`Seq2Seq`] keeps of the source, and of the target so far.
#[derive(Debug, Clone)]
pub struct Seq2SeqState {
    pub(super) source: Read,
    pub(super) recurrent: RecurrentState,
    /// What the last place came to, `[batch, d_hidden]`, where it is fed.
    pub(super) fed: Option<Tensor<2>>,
    /// Tokens of the target that were taken in.
    pub(super) places: usize,
}

impl Seq2Seq {
    /// Reads a source, for targets to be made of it.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq]`
    pub fn start(&self, source: &Tokens) -> Seq2SeqState {
        let [batch, _] = source.dims();
        let embedding = match &self.source_embedding {
            Some(own) => own,
            None => &self.target_embedding,
        };
        let embedded = dropout(&self.dropout, embedding.forward(source.ids())); // [batch, seq, d_embedding]
        let (places, last) = self.encoder.forward(embedded, Some(source.lengths()), None);
        let last = last.top(); // [batch, d_hidden]
        let begin = |bridge: &burn::nn::Linear| LayerState {
            hidden: tanh(bridge.forward(last.clone())),
            cell: None,
        };
        let d_hidden = self.config.spec.d_hidden;
        let nothing = || Tensor::zeros([batch, d_hidden], (&last.device(), last.dtype()));
        Seq2SeqState {
            source: self.attention.read(places, source.lengths()),
            recurrent: RecurrentState {
                layers: self.bridge.iter().map(begin).collect(),
            },
            fed: (self.config.spec.feeding == Feeding::Input).then(nothing),
            places: 0,
        }
    }

    /// All places of a target that does not depend on what comes out of them:
    /// `h~ [batch, seq_q, d_hidden]` and the alignment `[batch, seq_q, seq_k]`.
    pub(super) fn at_once(&self, target: &Tokens, state: Seq2SeqState) -> (Tensor<3>, Tensor<3>) {
        let embedded = self.embedded(target.ids());
        let (states, _) = self.decoder.forward(embedded, None, Some(state.recurrent));
        let (context, weights) = self.attention.forward(states.clone(), &state.source, 0);
        let both = Tensor::cat(vec![context, states], 2); // [batch, seq_q, 2 d_hidden]
        (tanh(self.combination.forward(both)), weights)
    }

    /// The same for any target, one place after the other.
    pub(super) fn step_by_step(
        &self,
        target: &Tokens,
        state: &mut Seq2SeqState,
        teacher_forcing: f64,
        seed: u64,
    ) -> (Tensor<3>, Tensor<3>) {
        let [_, seq] = target.dims();
        let given = steps(self.embedded(target.ids()));
        let mut combined: Vec<Tensor<2>> = Vec::with_capacity(seq);
        let mut alignment = Vec::with_capacity(seq);
        for (place, given) in given.into_iter().enumerate() {
            let is_given = uniform(seed, [0, place as u64]) < teacher_forcing;
            let token = match combined.last().filter(|_| !is_given) {
                Some(last) => self.embedded_best(last.clone()),
                None => given,
            };
            let (step, weights) = self.step(token, state);
            combined.push(step);
            alignment.push(weights);
        }
        (Tensor::stack(combined, 1), Tensor::stack(alignment, 1))
    }

    /// One place further: `h~ [batch, d_hidden]` and where it looked, `[batch, seq_k]`.
    ///
    /// - embedded: `[batch, d_embedding]`
    pub(super) fn step(
        &self,
        embedded: Tensor<2>,
        state: &mut Seq2SeqState,
    ) -> (Tensor<2>, Tensor<2>) {
        let look = |hidden: Tensor<2>, state: &Seq2SeqState| {
            let (context, weights) =
                self.attention
                    .forward(hidden.unsqueeze_dim(1), &state.source, state.places);
            (context.squeeze_dim::<2>(1), weights.squeeze_dim::<2>(1))
        };
        let recur = |input: Tensor<2>, state: &mut Seq2SeqState| {
            let (hidden, recurrent) = self.decoder.step(input, Some(state.recurrent.clone()));
            state.recurrent = recurrent;
            hidden
        };
        let (hidden, (context, weights)) = match self.config.spec.feeding {
            Feeding::Context => {
                let seen = look(state.recurrent.top(), state);
                let input = Tensor::cat(vec![embedded, seen.0.clone()], 1);
                (recur(input, state), seen)
            }
            Feeding::Input | Feeding::None => {
                let fed = state.fed.take();
                let input: Vec<_> = [embedded].into_iter().chain(fed).collect();
                let hidden = recur(Tensor::cat(input, 1), state);
                (hidden.clone(), look(hidden, state))
            }
        };
        let both = Tensor::cat(vec![context, hidden], 1); // [batch, 2 d_hidden]
        let combined = tanh(self.combination.forward(both));
        state.fed = (self.config.spec.feeding == Feeding::Input).then(|| combined.clone());
        state.places += 1;
        (combined, weights)
    }

    pub(super) fn embedded(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        dropout(&self.dropout, self.target_embedding.forward(tokens))
    }

    /// The token that is likeliest after a place that came to `last`, `[batch, d_hidden]`:
    /// `[batch, d_embedding]`.
    fn embedded_best(&self, last: Tensor<2>) -> Tensor<2> {
        let said = self.predicted(last.detach().unsqueeze_dim(1)); // [batch, 1, vocabulary]
        self.embedded(said.argmax(2).squeeze_dim(2)).squeeze_dim(1)
    }

    pub(super) fn predicted(&self, places: Tensor<3>) -> Tensor<3> {
        logits(places, self.head.as_ref(), &self.target_embedding)
    }
}

/// `[batch, seq, width]` as `seq` times `[batch, width]`.
///
/// The gradient of a part is written into zeros as large as the whole. Parts of parts are
/// cut out of something small: `seq · sqrt(seq)` numbers are written, not `seq · seq`.
fn steps(places: Tensor<3>) -> Vec<Tensor<2>> {
    let [_, seq, _] = places.dims();
    let size = (seq as f64).sqrt().ceil() as usize;
    let parts = places.split(size, 1).into_iter();
    parts
        .flat_map(|part| part.split(1, 1))
        .map(|place| place.squeeze_dim(1))
        .collect()
}
