//! Generated sequences, in progress and finished, and greedy decoding or sampling of one sequence.

use super::predictions::{Predictions, sample};
use super::{GenerateConfig, Strategy};
use crate::random::uniform;

/// A generated sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedSequence {
    /// Generated tokens, without the prompt and the end token.
    pub tokens: Vec<u32>,
    /// Log-probability under the model, including the end token, without constraints and
    /// temperature.
    pub log_probability: f64,
    /// Log-probability divided by the length penalty; beam search ranks by it.
    pub score: f64,
    /// Why generation stopped.
    pub stop: Stop,
}

/// Why generation of a sequence stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The end token was generated.
    End,
    /// The maximum length was reached.
    Length,
    /// No token was left: all would have repeated an n-gram, or the logits are NaN.
    NoChoice,
    /// The callback of [`generate_streaming`](super::generate_streaming) stopped it.
    Interrupted,
}

/// A sequence in progress.
#[derive(Debug, Clone)]
pub(super) struct Draft<'a> {
    pub(super) config: &'a GenerateConfig,
    /// Prompt and generated tokens.
    pub(super) tokens: Vec<u32>,
    prompt_len: usize,
    pub(super) log_probability: f64,
}

impl<'a> Draft<'a> {
    pub(super) fn new(prompt: Vec<u32>, config: &'a GenerateConfig) -> Self {
        Self {
            config,
            prompt_len: prompt.len(),
            tokens: prompt,
            log_probability: 0.0,
        }
    }

    pub(super) fn generated(&self) -> &[u32] {
        &self.tokens[self.prompt_len..]
    }

    pub(super) fn push(&mut self, token: u32, log_prob: f32) {
        self.tokens.push(token);
        self.log_probability += f64::from(log_prob);
    }

    /// Log-probability divided by the length penalty for this length.
    pub(super) fn score(&self, length: usize) -> f64 {
        let exponent = match self.config.strategy {
            Strategy::Beam { length_penalty, .. } => length_penalty,
            Strategy::Greedy | Strategy::Sample { .. } => 0.0,
        };
        self.log_probability / ((5 + length) as f64 / 6.0).powf(exponent)
    }

    pub(super) fn finish(&self, stop: Stop) -> GeneratedSequence {
        let length = self.generated().len() + usize::from(stop == Stop::End);
        GeneratedSequence {
            tokens: self.generated().to_vec(),
            log_probability: self.log_probability,
            score: self.score(length),
            stop,
        }
    }
}

/// Greedy decoding or sampling of one row.
#[derive(Debug)]
pub(super) struct Single<'a> {
    draft: Draft<'a>,
    stop: Option<Stop>,
    /// Random stream of the row.
    stream: u64,
    limit: usize,
}

impl<'a> Single<'a> {
    pub(super) fn new(draft: Draft<'a>, stream: u64, limit: usize) -> Self {
        Self {
            draft,
            stop: None,
            stream,
            limit,
        }
    }

    pub(super) fn generated(&self) -> &[u32] {
        self.draft.generated()
    }

    /// Chooses the next token; `None` if the sequence is finished.
    pub(super) fn next(&mut self, predictions: &mut Predictions, row: usize) -> Option<u32> {
        let config = self.draft.config;
        let chosen = match config.strategy {
            Strategy::Sample {
                temperature,
                top_k,
                top_p,
            } => {
                // The counter is the token's index, so prompts of other rows have no influence.
                let counter = [self.stream, self.generated().len() as u64];
                let random = uniform(config.seed, counter);
                let log_probs = predictions.constrained(row, &self.draft);
                sample(log_probs, temperature, top_k, top_p, random)
            }
            Strategy::Greedy | Strategy::Beam { .. } => predictions.best(row, &self.draft),
        };
        let Some((token, log_prob)) = chosen else {
            self.stop = Some(Stop::NoChoice);
            return None;
        };
        if config.is_end(token) {
            self.draft.log_probability += f64::from(log_prob);
            self.stop = Some(Stop::End);
            return None;
        }
        self.draft.push(token, log_prob);
        if self.generated().len() == self.limit {
            self.stop = Some(Stop::Length);
            return None;
        }
        Some(token)
    }

    pub(super) fn finish(&self) -> Vec<GeneratedSequence> {
        let stop = self.stop.unwrap_or(Stop::Interrupted);
        vec![self.draft.finish(stop)]
    }
}
