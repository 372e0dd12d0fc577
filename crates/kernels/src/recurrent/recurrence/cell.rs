//! What a place does to a state, and which place comes first.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a place does to the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// Gated recurrent unit: a hidden state.
    Gru,
    /// Long short-term memory: a hidden state and a cell state.
    Lstm,
}

impl Cell {
    /// Gates there are, each `d_hidden` wide: reset, update, new of a GRU; input, forget,
    /// cell, output of an LSTM.
    pub fn gates(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// States there are, each `d_hidden` wide.
    pub fn states(self) -> usize {
        match self {
            Self::Gru => 1,
            Self::Lstm => 2,
        }
    }

    /// How it is called in configs and tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gru => "gru",
            Self::Lstm => "lstm",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Which place comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The first one.
    Forward,
    /// The last one of each row.
    Backward,
    /// Both, side by side: what goes forward, then what goes backward.
    Both,
}

impl Direction {
    /// Passes over a sequence.
    pub fn passes(self) -> usize {
        match self {
            Self::Forward | Self::Backward => 1,
            Self::Both => 2,
        }
    }

    /// Whether a pass, counted from 0, goes backward.
    pub(crate) fn is_backward(self, pass: usize) -> bool {
        match self {
            Self::Forward => false,
            Self::Backward => true,
            Self::Both => pass == 1,
        }
    }
}
