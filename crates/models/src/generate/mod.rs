//! Generation, once, for every model that can: see [`Generative`].
//!
//! ```text
//! greedy    the likeliest token, again and again
//! sample    a token drawn by softmax(logits / temperature), of the top k, of the top p
//! beam      the texts with the largest  log p(text) / ((5 + length) / 6)^α  that were found
//! ```
//!
//! Top p: Holtzman et al., [The Curious Case of Neural Text
//! Degeneration](https://arxiv.org/abs/1904.09751), 2019. The length penalty: Wu et al.,
//! [Google's Neural Machine Translation System](https://arxiv.org/abs/1609.08144), 2016.
//!
//! Rows of a batch may have prompts of several lengths. As much as all of them have is taken
//! in at once; then longer ones go on with what is given while shorter ones already choose:
//! there is no padding, so no mechanism has to know of any. A row that is finished is dropped
//! from the model's state, and costs nothing from there on.

mod beam;
mod config;
mod next;
mod run;
mod text;

use burn::tensor::{Device, Int, Tensor};

pub use self::config::{GenerateConfig, Strategy};
pub use self::run::{generate, generate_streaming};
pub use self::text::{Generated, Stop};

/// A model that says what comes next, keeping what it needs of what came before.
///
/// The rows of a state are sequences that know nothing of each other.
pub trait Generative {
    /// What is kept between tokens.
    type State: Clone;

    /// How many tokens there are.
    fn vocabulary(&self) -> usize;

    /// Places there are positions for, if that is limited.
    fn longest(&self) -> Option<usize>;

    /// Where the model is: tokens are put there.
    fn device(&self) -> Device;

    /// Rows of a state.
    fn rows(&self, state: &Self::State) -> usize;

    /// Takes the next tokens of every row in, one or several, and says what follows the last.
    ///
    /// # Shapes
    ///
    /// - tokens: `[rows, new]`
    /// - result: `[rows, vocabulary]`, logits
    fn advance(&self, tokens: Tensor<2, Int>, state: &mut Self::State) -> Tensor<2>;

    /// The state of these rows, in this order: of some, of some several times, of others not
    /// at all.
    fn select(&self, state: &Self::State, rows: &[usize]) -> Self::State;
}
