//! Arguments and results of the op, shared by all kernels.

use std::sync::Arc;

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;
use serde::{Deserialize, Serialize};

pub use zoo_spec::Cell;

/// Direction in which a layer processes a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the first position to the last.
    Forward,
    /// From each row's last position to the first.
    Backward,
    /// Bidirectional; outputs are concatenated, forward first.
    Both,
}

impl Direction {
    /// The number of directions.
    pub fn num_directions(self) -> usize {
        match self {
            Self::Forward | Self::Backward => 1,
            Self::Both => 2,
        }
    }

    /// Whether direction `dir`, counted from 0, is the backward one.
    pub(crate) fn is_reverse(self, dir: usize) -> bool {
        match self {
            Self::Forward => false,
            Self::Backward => true,
            Self::Both => dir == 1,
        }
    }
}

/// Arguments of the op besides its tensors.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) cell: Cell,
    pub(crate) direction: Direction,
    pub(crate) batch: usize,
    pub(crate) seq: usize,
    pub(crate) d_hidden: usize,
    /// `directions * d_hidden`.
    pub(crate) width: usize,
    pub(crate) lengths: Arc<[usize]>,
}

impl Settings {
    /// Width of all gates of all directions.
    pub(crate) fn gates(&self) -> usize {
        self.cell.gates() * self.width
    }
}

/// Result of the forward pass.
#[derive(Debug, Clone)]
pub(crate) struct ForwardOutput<B: Backend> {
    pub(crate) outputs: FloatTensor<B>,
    pub(crate) last: FloatTensor<B>,
    /// Saved if a backward pass follows.
    pub(crate) activations: Option<Activations<B>>,
}

/// Gates and states saved for the backward pass, in a layout of the kernel's own.
#[derive(Debug, Clone)]
pub(crate) enum Activations<B: Backend> {
    /// Of the portable kernel.
    Tensor(FloatTensor<B>),
    /// Of the CPU kernel.
    #[cfg(feature = "host")]
    Host(Arc<Vec<f32>>),
}

/// State saved for the backward pass.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) recurrent: FloatTensor<B>,
    pub(crate) initial: FloatTensor<B>,
    /// Only used by the CPU kernel.
    #[cfg_attr(not(feature = "host"), expect(dead_code))]
    pub(crate) outputs: FloatTensor<B>,
    pub(crate) activations: Activations<B>,
    pub(crate) settings: Settings,
}
