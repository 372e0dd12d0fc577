//! How far predictions are from the tokens that came.

use burn::tensor::Tensor;
use zoo_kernels::smoothed_cross_entropy;

use crate::Tokens;
use crate::tokens::presence;

/// The cross-entropy of predictions with the tokens that came, averaged over those; padding
/// is not counted. `smoothing` is the share of each token's weight that goes to all tokens
/// alike: Szegedy et al., [Rethinking the Inception Architecture](https://arxiv.org/abs/1512.00567), 2015.
///
/// # Shapes
///
/// - logits: `[batch, seq, vocabulary]`
/// - targets: `[batch, seq]`
/// - result: `[1]`, in `f32`
///
/// # Panics
///
/// If there are not as many predictions as tokens, or smoothing is not a share.
pub fn token_loss(logits: Tensor<3>, targets: &Tokens, smoothing: f64) -> Tensor<1> {
    let [batch, seq, vocabulary] = logits.dims();
    assert!(
        [batch, seq] == targets.dims(),
        "token loss: logits [batch = {batch}, seq = {seq}, ..] for targets {:?}",
        targets.dims()
    );
    assert!(
        (0.0..1.0).contains(&smoothing),
        "token loss: smoothing must be at least 0 and below 1, got {smoothing}"
    );
    let counts: Vec<bool> = presence(targets.lengths(), seq).collect();
    let rows = batch * seq;
    smoothed_cross_entropy(
        logits.reshape([rows, vocabulary]),
        targets.ids().reshape([rows]),
        &counts,
        smoothing,
    )
}
