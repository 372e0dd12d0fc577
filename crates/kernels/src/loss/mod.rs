//! Cross-entropy with label smoothing.
//!
//! ```text
//! loss = mean over rows of  lse(x) - (1 - s) x_t - s · mean(x)
//! d x  = (softmax(x) - (1 - s) [t] - s / classes) / rows
//! ```
//!
//! `t` is the target class and `s` the label smoothing: Szegedy et al., [Rethinking the Inception
//! Architecture](https://arxiv.org/abs/1512.00567), 2015.
//!
//! The gradient is computed in the forward pass, row by row while a row is in the cache, in the
//! memory of the logits if they are not shared: no second tensor of that size is allocated.

mod cpu;
#[allow(deprecated)] // Burn 0.22 is the last release with NdArray and LibTorch
mod ops;

use burn::backend::Dispatch;
use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Int, Tensor, TensorData};

use self::cpu::{PADDING, Settings};
use self::ops::CrossEntropyOp;
use crate::hosts::location::is_host_float;
use crate::precision::{cast, widen};

/// Cross-entropy with label smoothing, averaged over the rows with `mask` set; 0 if there are none.
///
/// # Shapes
///
/// - logits: `[rows, classes]`
/// - targets: `[rows]`, the target classes; ignored where `mask` is false
/// - mask: `rows` values
/// - output: `[1]`, in `f32`
///
/// # Panics
///
/// If the number of targets or mask values is not `rows`, there are no classes, or smoothing is not
/// in `[0, 1)`. On CPUs, if a target is not a class.
pub fn smoothed_cross_entropy(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    mask: &[bool],
    smoothing: f64,
) -> Tensor<1> {
    let [rows, classes] = logits.dims();
    assert!(
        targets.dims() == [rows] && mask.len() == rows && classes > 0,
        "cross-entropy: logits [rows = {rows}, classes = {classes}] do not match targets {:?} and \
         a mask of {}",
        targets.dims(),
        mask.len()
    );
    assert!(
        (0.0..1.0).contains(&smoothing),
        "cross-entropy: smoothing must be at least 0 and below 1, got {smoothing}"
    );
    if !is_host_float(&logits) {
        return cross_entropy_with_burn(logits, targets, mask, smoothing);
    }
    let targets = targets.into_data();
    let targets = targets.iter::<i64>().zip(mask).map(|(target, is_used)| {
        if !is_used {
            return PADDING;
        }
        let is_class = usize::try_from(target).is_ok_and(|class| class < classes);
        assert!(
            is_class,
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
    let loss = <Dispatch as CrossEntropyOp>::cross_entropy(logits, settings);
    Tensor::from_dispatch(loss)
}

/// [`smoothed_cross_entropy`] with Burn's operations.
fn cross_entropy_with_burn(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    mask: &[bool],
    smoothing: f64,
) -> Tensor<1> {
    let [rows, classes] = logits.dims();
    let mask: Vec<f32> = mask.iter().map(|is_used| f32::from(*is_used)).collect();
    let count = mask.iter().sum::<f32>().max(1.0);
    let mask = TensorData::new(mask, [rows]);
    let mask = Tensor::<1>::from_data(mask, (&logits.device(), DType::F32));
    // Half precision is too coarse for a sum over a batch.
    let log_probs = log_softmax(cast(logits, DType::F32), 1);
    let target = log_probs.clone().gather(1, targets.reshape([rows, 1]));
    let target = target.reshape([rows]);
    let loss = match smoothing {
        0.0 => target,
        _ => {
            let mean = log_probs.sum_dim(1).reshape([rows]) / classes as f64;
            target * (1.0 - smoothing) + mean * smoothing
        }
    };
    -(loss * mask).sum() / count
}
