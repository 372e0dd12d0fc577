//! Token-level cross-entropy.

use burn::tensor::Tensor;
use zoo_kernels::smoothed_cross_entropy;

use crate::Tokens;
use crate::tokens::is_token;

/// Cross-entropy averaged over the target tokens, without padding. `smoothing` is the label
/// smoothing: Szegedy et al., [Rethinking the Inception
/// Architecture](https://arxiv.org/abs/1512.00567), 2015.
///
/// # Shapes
///
/// - logits: `[batch, seq, vocabulary]`
/// - targets: `[batch, seq]`
/// - output: `[1]`, in `f32`
///
/// # Panics
///
/// If the shapes differ, or smoothing is not in `[0, 1)`.
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
    let counts: Vec<bool> = is_token(targets.lengths(), seq).collect();
    let rows = batch * seq;
    smoothed_cross_entropy(
        logits.reshape([rows, vocabulary]),
        targets.ids().reshape([rows]),
        &counts,
        smoothing,
    )
}
