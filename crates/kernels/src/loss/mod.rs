//! The cross-entropy of logits with the classes that came, smoothed.
//!
//! ```text
//! loss = mean over rows of  lse(x) - (1 - s) x_t - s · mean(x)
//! d x  = (softmax(x) - (1 - s) [t] - s / classes) / rows
//! ```
//!
//! `t` is the class that came and `s` the share of its weight that goes to all alike: Szegedy
//! et al., [Rethinking the Inception Architecture](https://arxiv.org/abs/1512.00567), 2015.
//!
//! The gradient is worked out where the loss is, row by row while a row is in the cache, and
//! written over the logits if nobody else looks at them: there is never another tensor of
//! that size.

mod cpu;
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray and LibTorch; we carry them.
mod ops;

use burn::backend::Dispatch;
use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Int, Tensor, TensorData};

use self::cpu::{PADDING, Settings};
use self::ops::CrossEntropyOp;
use crate::hosts::location::can_be_at_hand;
use crate::precision::{cast, widen};

/// The cross-entropy, averaged over the rows that count; 0 if none does.
///
/// # Shapes
///
/// - logits: `[rows, classes]`
/// - targets: `[rows]`, the class that came; anything where a row does not count
/// - counts: whether each row does
/// - result: `[1]`, in `f32`
///
/// # Panics
///
/// If there are not as many targets as rows, there is no class, or smoothing is not a share.
/// On CPUs, if a target is no class.
pub fn smoothed_cross_entropy(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    counts: &[bool],
    smoothing: f64,
) -> Tensor<1> {
    let [rows, classes] = logits.dims();
    assert!(
        targets.dims() == [rows] && counts.len() == rows && classes > 0,
        "cross-entropy: [rows = {rows}, classes = {classes}] with targets {:?} of which {} count \
         or not",
        targets.dims(),
        counts.len()
    );
    assert!(
        (0.0..1.0).contains(&smoothing),
        "cross-entropy: smoothing must be at least 0 and below 1, got {smoothing}"
    );
    if !can_be_at_hand(&logits) {
        return composed(logits, targets, counts, smoothing);
    }
    let targets = targets.into_data();
    let targets = targets.iter::<i64>().zip(counts).map(|(target, counts)| {
        if !counts {
            return PADDING;
        }
        let class = usize::try_from(target).ok().filter(|at| *at < classes);
        assert!(
            class.is_some(),
            "cross-entropy: targets must be below {classes}, got {target}"
        );
        target as u32
    });
    let settings = Settings {
        classes,
        targets: targets.collect(),
        smoothing,
    };
    let logits = widen(logits).into_dispatch();
    Tensor::from_dispatch(<Dispatch as CrossEntropyOp>::cross_entropy(
        logits, settings,
    ))
}

/// The same by Burn's operations.
fn composed(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    counts: &[bool],
    smoothing: f64,
) -> Tensor<1> {
    let [rows, classes] = logits.dims();
    let present: Vec<f32> = counts
        .iter()
        .map(|counts| f32::from(u8::from(*counts)))
        .collect();
    let count = present.iter().sum::<f32>().max(1.0);
    let present = TensorData::new(present, [rows]);
    let present = Tensor::<1>::from_data(present, (&logits.device(), DType::F32));
    // A sum over a batch soon has more digits than a half type holds.
    let logs = log_softmax(cast(logits, DType::F32), 1);
    let own = logs.clone().gather(1, targets.reshape([rows, 1]));
    let own = own.reshape([rows]);
    let loss = match smoothing {
        0.0 => own,
        _ => {
            let all = logs.sum_dim(1).reshape([rows]) / classes as f64;
            own * (1.0 - smoothing) + all * smoothing
        }
    };
    -(loss * present).sum() / count
}
