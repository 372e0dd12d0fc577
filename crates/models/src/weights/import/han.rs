//! Hierarchical attention network built with PyTorch's recurrent layers.

use super::matrix::into_row;
use super::{Import, Weights};
use crate::ModelError;

/// Converts the weights of the same model in PyTorch to those of a [`Han`](crate::Han):
/// `embedding`, an `nn.GRU` or `nn.LSTM` named `word_gru`, `word_attention` with a linear layer
/// `projection` and a vector `context`, `sentence_gru` and `sentence_attention` likewise, and a
/// linear layer `classifier`.
///
/// # Errors
///
/// [`ModelError`] if a key is missing or unexpected.
pub fn nn_gru_han(weights: Weights) -> Result<Weights, ModelError> {
    let mut import = Import::new(weights);
    import.copy("embedding.weight", "embedding.weight")?;
    for level in ["word", "sentence"] {
        import.recurrent(&format!("{level}_gru"), &format!("{level}_encoder"))?;
        let attention = format!("{level}_attention");
        let [projection, context] =
            ["projection", "context"].map(|part| format!("{attention}.{part}"));
        import.linear(&projection, &projection)?;
        import.map(&context, &context, |tensor| Ok(into_row(tensor)))?;
    }
    import.linear("classifier", "classifier")?;
    import.finish()
}
