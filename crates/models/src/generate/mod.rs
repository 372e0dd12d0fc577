//! Generation, once, for every model that can: see [`Generative`].

use burn::tensor::{Device, Int, Tensor};

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
