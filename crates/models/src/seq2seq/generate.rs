//! Incremental decoding of a Seq2Seq.

use burn::tensor::{Device, Int, Tensor};

use super::{Seq2Seq, Seq2SeqState};
use crate::Generative;
use crate::generate::checked_dims;
use crate::tokens::row_indices;

impl Generative for Seq2Seq {
    type State = Seq2SeqState;

    fn vocabulary(&self) -> usize {
        self.config.target_vocabulary
    }

    fn longest(&self) -> Option<usize> {
        None
    }

    fn device(&self) -> Device {
        self.target_embedding.weight.device()
    }

    fn rows(&self, state: &Seq2SeqState) -> usize {
        state.source.lengths.len()
    }

    fn advance(&self, tokens: Tensor<2, Int>, state: &mut Seq2SeqState) -> Tensor<2> {
        checked_dims("Seq2Seq", &tokens, self.rows(state));
        let step = |token: Tensor<2, Int>| {
            let embedded = self.embed(token).squeeze_dim(1); // [rows, d_embedding]
            self.step(embedded, state).0
        };
        let last = tokens.split(1, 1).into_iter().map(step).last();
        let last = last.expect("new > 0");
        let logits = self.predict(last.unsqueeze_dim(1)); // [rows, 1, vocabulary]
        logits.squeeze_dim(1)
    }

    fn select(&self, state: &Seq2SeqState, rows: &[usize]) -> Seq2SeqState {
        let indices = row_indices(rows, &self.device());
        let fed = state.fed.as_ref();
        Seq2SeqState {
            source: state.source.select(rows, &indices),
            recurrent: state.recurrent.select(indices.clone()),
            fed: fed.map(|fed| fed.clone().select(0, indices.clone())),
            position: state.position,
        }
    }
}
