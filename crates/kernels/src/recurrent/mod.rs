//! GRU and LSTM layers over whole sequences, compatible with PyTorch's.
//!
//! ```text
//! GRU    r, z = σ(W x + b + U h + c)          n = tanh(W_n x + b_n + r · (U_n h + c_n))
//!        h    = (1 - z) · n + z · h
//! LSTM   i, f, o = σ(W x + b + U h + c)       g = tanh(W_g x + b_g + U_g h + c_g)
//!        cell = f · cell + i · g              h = o · tanh(cell)
//! ```
//!
//! Cho et al., [Learning Phrase Representations using RNN
//! Encoder-Decoder](https://arxiv.org/abs/1406.1078), 2014; Hochreiter and Schmidhuber,
//! [Long Short-Term Memory](https://doi.org/10.1162/neco.1997.9.8.1735), 1997.
//!
//! `W x` of all positions is one matmul. The rest, the recurrence, is one op with a hand-written
//! backward pass: [`recurrence`](mod@recurrence).

mod config;
mod layer;
mod module;
pub mod recurrence;

pub use config::{RecurrentConfig, RecurrentError};
pub use layer::{DirectedWeights, LayerState, RecurrentLayer};
pub use module::{Recurrent, RecurrentState};
pub use recurrence::{Cell, Direction};
