//! burn-nn's `TransformerEncoder`.

use zoo_spec::Norm;

use super::Import;
use crate::weights::{Weights, WeightsError};

/// Converts the weights of burn-nn's `TransformerEncoder` (`mha`, `pwff`, `norm_1` and `norm_2` of
/// `layers.N`) to those of [`TransformerEncoder`](crate::TransformerEncoder).
///
/// With `norm_first`, `norm_2` is the attention's layer norm, otherwise `norm_1`.
///
/// ```no_run
/// # use burn::nn::transformer::TransformerEncoder as Theirs;
/// # use zoo_models::weights::{Weights, WeightsError, import};
/// # use zoo_models::{Norm, TransformerEncoder};
/// # fn load(theirs: Theirs, ours: TransformerEncoder) -> Result<TransformerEncoder, WeightsError> {
/// let weights = import::burn_encoder(Weights::from_model(&theirs), Norm::Post)?;
/// let ours = weights.apply(ours)?;
/// # Ok(ours)
/// # }
/// ```
///
/// # Errors
///
/// [`WeightsError`] if a key is missing or unexpected.
pub fn burn_encoder(weights: Weights, norm: Norm) -> Result<Weights, WeightsError> {
    let mut import = Import::new(weights);
    let [attention_norm, feed_forward_norm] = match norm {
        Norm::Pre => ["norm_2", "norm_1"],
        Norm::Post => ["norm_1", "norm_2"],
    };
    let (matrix, scales) = (["weight", "bias"], ["gamma", "beta"]);
    for layer in 0..import.num_layers("layers.") {
        for (from, to, parts) in [
            ("mha.query", "attention.query", matrix),
            ("mha.key", "attention.key", matrix),
            ("mha.value", "attention.value", matrix),
            ("mha.output", "attention.output", matrix),
            (attention_norm, "attention_norm", scales),
            ("pwff.linear_inner", "feed_forward.inner", matrix),
            ("pwff.linear_outer", "feed_forward.outer", matrix),
            (feed_forward_norm, "feed_forward_norm", scales),
        ] {
            for part in parts {
                // Weights are `[in_features, out_features]`, as here.
                let [from, to] = [from, to].map(|name| format!("layers.{layer}.{name}.{part}"));
                import.copy(&from, &to)?;
            }
        }
    }
    import.finish()
}
