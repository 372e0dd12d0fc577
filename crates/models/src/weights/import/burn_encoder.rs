//! burn-nn's `TransformerEncoder`.

use zoo_spec::Norm;

use crate::ModelError;
use crate::weights::Weights;

/// Converts the weights of burn-nn's `TransformerEncoder` (`mha`, `pwff`, `norm_1` and `norm_2` of
/// `layers.N`) to those of [`TransformerEncoder`](crate::TransformerEncoder).
///
/// With `norm_first`, `norm_2` is the attention's layer norm, otherwise `norm_1`.
///
/// ```no_run
/// # use burn::nn::transformer::TransformerEncoder as Theirs;
/// # use zoo_models::weights::{Weights, import};
/// # use zoo_models::{ModelError, Norm, TransformerEncoder};
/// # fn load(theirs: Theirs, ours: TransformerEncoder) -> Result<TransformerEncoder, ModelError> {
/// let weights = import::burn_encoder(Weights::from_model(&theirs), Norm::Post)?;
/// let ours = weights.apply(ours)?;
/// # Ok(ours)
/// # }
/// ```
///
/// # Errors
///
/// [`ModelError::DuplicateKey`] if two keys become the same. [`Weights::apply`] reports missing and
/// unexpected keys.
pub fn burn_encoder(weights: Weights, norm: Norm) -> Result<Weights, ModelError> {
    let [attention_norm, feed_forward_norm] = match norm {
        Norm::Pre => [".norm_2.", ".norm_1."],
        Norm::Post => [".norm_1.", ".norm_2."],
    };
    // Weights are `[in_features, out_features]`, as here.
    weights.map_keys(|key| {
        key.replace(".mha.", ".attention.")
            .replace(".pwff.linear_", ".feed_forward.")
            .replace(attention_norm, ".attention_norm.")
            .replace(feed_forward_norm, ".feed_forward_norm.")
    })
}
