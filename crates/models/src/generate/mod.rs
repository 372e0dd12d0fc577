//! Generation for every model that implements [`Generative`].
//!
//! ```text
//! greedy    the most likely token at each step
//! sample    a token sampled from softmax(logits / temperature), restricted to top k and top p
//! beam      the hypotheses found with the largest  log p(text) / ((5 + length) / 6)^α
//! ```
//!
//! Top p: Holtzman et al., [The Curious Case of Neural Text
//! Degeneration](https://arxiv.org/abs/1904.09751), 2019. The length penalty: Wu et al.,
//! [Google's Neural Machine Translation System](https://arxiv.org/abs/1609.08144), 2016.
//!
//! The prompts of a batch may have different lengths. The model prefills up to the shortest
//! length; then longer prompts are fed token by token while shorter rows already generate. No row
//! is padded, so mechanisms need no padding support. A finished row is removed from the model's
//! state.

mod beam;
mod config;
mod predictions;
mod run;
mod sequence;

use burn::tensor::{Device, Int, Tensor};

pub use self::config::{GenerateConfig, Strategy};
pub use self::run::{generate, generate_streaming};
pub use self::sequence::{GeneratedSequence, Stop};

/// `[rows, new]` of the tokens for [`Generative::advance`].
pub(crate) fn checked_dims(op: &str, tokens: &Tensor<2, Int>, expected_rows: usize) -> [usize; 2] {
    let [rows, new] = tokens.dims();
    assert!(
        rows == expected_rows && new > 0,
        "{op}: tokens must be [rows = {expected_rows}, new], at least one new, got [{rows}, {new}]"
    );
    [rows, new]
}

/// A model with incremental decoding.
///
/// The rows of a state are independent sequences.
pub trait Generative {
    /// Decoding state, for example key/value caches.
    type State: Clone;

    /// Vocabulary size.
    fn vocabulary(&self) -> usize;

    /// Maximum sequence length (context), if limited.
    fn longest(&self) -> Option<usize>;

    /// Device of the model.
    fn device(&self) -> Device;

    /// Number of rows of a state.
    fn rows(&self, state: &Self::State) -> usize;

    /// Feeds the next tokens of every row, and predicts the token after the last of them.
    ///
    /// # Shapes
    ///
    /// - tokens: `[rows, new]`
    /// - output: `[rows, vocabulary]`, logits
    fn advance(&self, tokens: Tensor<2, Int>, state: &mut Self::State) -> Tensor<2>;

    /// Selects rows of a state in this order; rows may repeat or be left out.
    fn select(&self, state: &Self::State, rows: &[usize]) -> Self::State;
}
