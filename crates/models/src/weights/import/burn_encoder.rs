//! burn-nn's `TransformerEncoder`.

use zoo_spec::Norm;

use super::Import;
use crate::weights::{Weights, WeightsError};

/// The weights of a [`TransformerEncoder`](crate::TransformerEncoder) from those of burn-nn's,
/// which has them below `layers.N.mha` and `layers.N.pwff`, `norm_1` and `norm_2`.
///
/// Which of its norms is which depends on where they are: with `norm_first` the second is the
/// attention's, else the first.
///
/// ```no_run
/// # use burn::nn::transformer::TransformerEncoder as Theirs;
/// # use zoo_models::weights::{Weights, WeightsError, import};
/// # use zoo_models::{Norm, TransformerEncoder};
/// # fn load(theirs: Theirs, ours: TransformerEncoder) -> Result<TransformerEncoder, WeightsError> {
/// let weights = import::burn_encoder(Weights::of(&theirs), Norm::Post)?;
/// let ours = weights.apply(ours)?;
/// # Ok(ours)
/// # }
/// ```
///
/// # Errors
///
/// [`WeightsError`] if a tensor is missing, or belongs nowhere.
pub fn burn_encoder(weights: Weights, norm: Norm) -> Result<Weights, WeightsError> {
    let mut import = Import::new(weights);
    let [of_attention, of_feed_forward] = match norm {
        Norm::Pre => ["norm_2", "norm_1"],
        Norm::Post => ["norm_1", "norm_2"],
    };
    let (matrix, scales) = (["weight", "bias"], ["gamma", "beta"]);
    for layer in 0..import.layers("layers.") {
        for (from, to, parts) in [
            ("mha.query", "attention.query", matrix),
            ("mha.key", "attention.key", matrix),
            ("mha.value", "attention.value", matrix),
            ("mha.output", "attention.output", matrix),
            (of_attention, "attention_norm", scales),
            ("pwff.linear_inner", "feed_forward.inner", matrix),
            ("pwff.linear_outer", "feed_forward.outer", matrix),
            (of_feed_forward, "feed_forward_norm", scales),
        ] {
            for part in parts {
                // Matrices are `[from, to]`: they lie as ours do.
                let [from, to] = [from, to].map(|name| format!("layers.{layer}.{name}.{part}"));
                import.keep(&from, &to)?;
            }
        }
    }
    import.finish()
}
