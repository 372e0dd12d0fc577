//! What the op is given and what it returns, whichever kernel computes it.

use std::sync::Arc;

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use super::cell::{Cell, Direction};

/// What the op is told besides its tensors.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) cell: Cell,
    pub(crate) direction: Direction,
    pub(crate) batch: usize,
    pub(crate) seq: usize,
    pub(crate) d_hidden: usize,
    /// Numbers of a state, of all passes: `passes * d_hidden`.
    pub(crate) width: usize,
    pub(crate) lengths: Arc<[usize]>,
}

impl Settings {
    /// Numbers of all gates of all passes.
    pub(crate) fn gates(&self) -> usize {
        self.cell.gates() * self.width
    }
}

/// What comes out of the forward pass.
#[derive(Debug, Clone)]
pub(crate) struct Remembered<B: Backend> {
    pub(crate) outputs: FloatTensor<B>,
    pub(crate) last: FloatTensor<B>,
    /// If a backward pass follows.
    pub(crate) kept: Option<Kept<B>>,
}

/// What a body wants to see again on the way back, in an order of its own.
#[derive(Debug, Clone)]
pub(crate) enum Kept<B: Backend> {
    /// The portable one's.
    Tensor(FloatTensor<B>),
    /// That of the CPU.
    #[cfg(feature = "host")]
    Numbers(Arc<Vec<f32>>),
}

/// What the backward pass starts from.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) recurrent: FloatTensor<B>,
    pub(crate) initial: FloatTensor<B>,
    /// Read by the CPU's body alone.
    #[cfg_attr(not(feature = "host"), expect(dead_code))]
    pub(crate) outputs: FloatTensor<B>,
    pub(crate) kept: Kept<B>,
}
