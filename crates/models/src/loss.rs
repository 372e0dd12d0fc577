//! How far predictions are from the tokens that came.

use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Tensor};

use crate::Tokens;

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
    let present = targets.presence(); // [batch, seq]
    let count = targets.lengths().iter().sum::<usize>().max(1) as f64;
    // A sum over a batch soon has more digits than a half type holds.
    let logs = log_softmax(logits.cast(DType::F32), 2);
    let own = logs
        .clone()
        .gather(2, targets.ids().reshape([batch, seq, 1]))
        .reshape([batch, seq]);
    let loss = match smoothing {
        0.0 => own,
        _ => {
            let all = logs.sum_dim(2).reshape([batch, seq]) / vocabulary as f64;
            own * (1.0 - smoothing) + all * smoothing
        }
    };
    -(loss * present).sum() / count
}
