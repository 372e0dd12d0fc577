//! Texts: on the way, and done; one text, a token at a time: the likeliest, or one that is drawn.

use super::next::{Said, drawn};
use super::{GenerateConfig, Strategy};
use crate::chance::uniform;

/// A text that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// What came after the prompt, without the end.
    pub tokens: Vec<u32>,
    /// How likely the model thinks it, as a logarithm: whatever was forbidden or sharpened
    /// when it was chosen. That of the end is in it.
    pub log_probability: f64,
    /// What texts are compared by: the same, divided by the length penalty.
    pub score: f64,
    /// Why there is no more of it.
    pub stop: Stop,
}

/// Why a text stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// By itself: the end came.
    End,
    /// It is as long as it may be.
    Length,
    /// No token was left to choose: all others would have repeated something, or the model's
    /// numbers are none.
    NoChoice,
}

/// A text on the way.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// What was given and what came after it.
    pub(super) tokens: Vec<u32>,
    given: usize,
    pub(super) log_probability: f64,
}

impl Draft {
    pub(super) fn new(given: Vec<u32>) -> Self {
        Self {
            given: given.len(),
            tokens: given,
            log_probability: 0.0,
        }
    }

    /// What came after what was given.
    pub(super) fn made(&self) -> &[u32] {
        &self.tokens[self.given..]
    }

    pub(super) fn push(&mut self, token: u32, log: f32) {
        self.tokens.push(token);
        self.log_probability += f64::from(log);
    }

    /// The text is done, and compared with a length penalty.
    pub(super) fn done(&self, stop: Stop, length_penalty: f64) -> Generated {
        let length = self.made().len() + usize::from(stop == Stop::End);
        Generated {
            tokens: self.made().to_vec(),
            log_probability: self.log_probability,
            score: penalised(self.log_probability, length, length_penalty),
            stop,
        }
    }
}

/// The logarithm of a probability, less low for a longer text.
pub(super) fn penalised(log_probability: f64, length: usize, length_penalty: f64) -> f64 {
    log_probability / ((5 + length) as f64 / 6.0).powf(length_penalty)
}

/// The one text of a row.
#[derive(Debug)]
pub(super) struct Single {
    draft: Draft,
    stop: Option<Stop>,
    /// The row's own stream of random numbers.
    stream: u64,
    limit: usize,
}

impl Single {
    pub(super) fn new(given: Vec<u32>, stream: u64, limit: usize) -> Self {
        Self {
            draft: Draft::new(given),
            stop: None,
            stream,
            limit,
        }
    }

    pub(super) fn made(&self) -> &[u32] {
        self.draft.made()
    }

    /// Chooses a token by what was said of this row, and returns it if the text goes on.
    pub(super) fn next(
        &mut self,
        said: &mut Said,
        row: usize,
        config: &GenerateConfig,
    ) -> Option<u32> {
        let chosen = match config.strategy {
            Strategy::Sample {
                temperature,
                top_k,
                top_p,
            } => {
                // By the number of the token: prompts of other rows change nothing.
                let number = uniform(config.seed, [self.stream, self.made().len() as u64]);
                let logs = said.allowed(row, &self.draft, config);
                drawn(logs, temperature, top_k, top_p, number)
            }
            Strategy::Greedy | Strategy::Beam { .. } => said.best_of(row, &self.draft, config),
        };
        let Some((token, log)) = chosen else {
            self.stop = Some(Stop::NoChoice);
            return None;
        };
        if Some(token) == config.end {
            self.draft.log_probability += f64::from(log);
            self.stop = Some(Stop::End);
            return None;
        }
        self.draft.push(token, log);
        if self.made().len() == self.limit {
            self.stop = Some(Stop::Length);
            return None;
        }
        Some(token)
    }

    pub(super) fn done(&self) -> Vec<Generated> {
        let stop = self.stop.unwrap_or(Stop::Length);
        vec![self.draft.done(stop, 0.0)]
    }
}
