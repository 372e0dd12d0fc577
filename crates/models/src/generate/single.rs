//! One text, a token at a time: the likeliest, or one that is drawn.

use super::next::{Said, drawn};
use super::text::{Draft, Generated, Stop};
use super::{GenerateConfig, Strategy};
use crate::chance::uniform;

/// The text of one row.
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
