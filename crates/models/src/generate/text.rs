//! Texts: on the way, and done.

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
