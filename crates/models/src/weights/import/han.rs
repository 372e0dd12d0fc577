//! Hierarchical attention over PyTorch's recurrent layers.

use super::matrix::one_row;
use super::{Import, Weights, WeightsError};

/// The weights of a [`Han`](crate::Han) from those of the same model in PyTorch: `embedding`,
/// an `nn.GRU` or `nn.LSTM` called `word_gru`, `word_attention` with a linear layer
/// `projection` and a vector `context`, `sentence_gru` and `sentence_attention` likewise, and
/// a linear layer `classifier`.
///
/// # Errors
///
/// [`WeightsError`] if a tensor is missing or belongs nowhere.
pub fn nn_gru_han(weights: Weights) -> Result<Weights, WeightsError> {
    let mut import = Import::new(weights);
    import.keep("embedding.weight", "embedding.weight")?;
    for level in ["word", "sentence"] {
        import.recurrent(&format!("{level}_gru"), &format!("{level}_encoder"))?;
        let attention = format!("{level}_attention");
        let [projection, context] = ["projection", "context"].map(|of| format!("{attention}.{of}"));
        import.linear(&projection, &projection)?;
        import.changed(&context, &context, |held| Ok(one_row(held)))?;
    }
    import.linear("classifier", "classifier")?;
    import.finish()
}
