//! Cross-entropy on slices, with rows distributed over threads.

use std::sync::Arc;

use crate::cpu::dispatch;
use crate::cpu::parallel::{for_each, map, rows_per_task};
use crate::cpu::{LANES, exp_of_negative, sum};

/// Target of rows that are ignored.
pub(super) const PADDING: u32 = u32::MAX;

/// Arguments of the op besides the logits.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(super) classes: usize,
    pub(super) targets: Arc<[u32]>,
    pub(super) smoothing: f64,
}

/// Weights of the classes in the smoothed target distribution.
#[derive(Debug, Clone, Copy)]
struct Weights {
    classes: usize,
    /// Added to the target class.
    target: f64,
    /// Of every class.
    uniform: f64,
    /// Scale of the gradient: one over the number of rows.
    scale: f64,
}

impl Weights {
    fn new(settings: &Settings) -> Self {
        Self {
            classes: settings.classes,
            target: 1.0 - settings.smoothing,
            uniform: settings.smoothing / settings.classes as f64,
            scale: 1.0 / num_rows(settings),
        }
    }
}

/// The number of rows that are not ignored, at least 1.
fn num_rows(settings: &Settings) -> f64 {
    let rows = settings.targets.iter().filter(|t| **t != PADDING).count();
    rows.max(1) as f64
}

/// The loss without its gradient.
pub(super) fn loss(logits: &[f32], settings: &Settings) -> f32 {
    let (classes, targets) = (settings.classes, &settings.targets);
    let weights = Weights::new(settings);
    let part = rows_per_task(targets.len(), classes);
    let tasks: Vec<_> = logits
        .chunks(part * classes)
        .zip(targets.chunks(part))
        .collect();
    let parts = map(tasks, |(logits, targets)| {
        rows_loss(logits, targets, weights)
    });
    (parts.into_iter().sum::<f64>() / num_rows(settings)) as f32
}

/// The loss; overwrites the logits with their gradient.
pub(super) fn loss_and_gradient(logits: &mut [f32], settings: &Settings) -> f32 {
    let (classes, targets) = (settings.classes, &settings.targets);
    let weights = Weights::new(settings);
    let part = rows_per_task(targets.len(), classes);
    let tasks: Vec<_> = logits
        .chunks_mut(part * classes)
        .zip(targets.chunks(part))
        .collect();
    let parts = map(tasks, |(logits, targets)| {
        rows_gradient(logits, targets, weights)
    });
    (parts.into_iter().sum::<f64>() / num_rows(settings)) as f32
}

pub(super) fn scale(x: &mut [f32], factor: f32) {
    let part = rows_per_task(x.len(), 1);
    for_each(x.chunks_mut(part).collect(), |x: &mut [f32]| {
        for x in x {
            *x *= factor;
        }
    });
}

dispatch! {
    fn rows_loss(logits: &[f32], targets: &[u32], weights: Weights) -> f64 by loss_loop;
}

#[inline(always)]
fn loss_loop(logits: &[f32], targets: &[u32], weights: Weights) -> f64 {
    let classes = weights.classes;
    let mut total = 0.0;
    for (row, target) in targets.iter().enumerate() {
        if *target == PADDING {
            continue;
        }
        let row = &logits[row * classes..][..classes];
        let (max, sum) = max_and_sum(row);
        let sum_exp = sum_exp(row, max);
        total += row_loss(row[*target as usize], max, sum, sum_exp, weights);
    }
    total
}

dispatch! {
    fn rows_gradient(logits: &mut [f32], targets: &[u32], weights: Weights) -> f64 by gradient_loop;
}

#[inline(always)]
fn gradient_loop(logits: &mut [f32], targets: &[u32], weights: Weights) -> f64 {
    let classes = weights.classes;
    let mut total = 0.0;
    for (row, target) in targets.iter().enumerate() {
        let row = &mut logits[row * classes..][..classes];
        if *target == PADDING {
            row.fill(0.0);
            continue;
        }
        let (max, sum) = max_and_sum(row);
        let target_logit = row[*target as usize];
        let sum_exp = exp_in_place(row, max);
        total += row_loss(target_logit, max, sum, sum_exp, weights);
        let factor = (weights.scale / f64::from(sum_exp)) as f32;
        let uniform = (weights.scale * weights.uniform) as f32;
        for x in row.iter_mut() {
            *x = *x * factor - uniform;
        }
        row[*target as usize] -= (weights.scale * weights.target) as f32;
    }
    total
}

/// `lse - (1 - s) x_t - s · mean(x)`
#[inline(always)]
fn row_loss(target: f32, max: f32, sum: f32, sum_exp: f32, weights: Weights) -> f64 {
    let log_sum_exp = f64::from(max) + f64::from(sum_exp).ln();
    // Without smoothing, logits of minus infinity must not make the loss NaN.
    let smoothed = match weights.uniform {
        0.0 => 0.0,
        weight => weight * f64::from(sum),
    };
    log_sum_exp - weights.target * f64::from(target) - smoothed
}

/// The maximum, which propagates NaN.
#[inline(always)]
fn nan_max(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

#[inline(always)]
fn max_and_sum(row: &[f32]) -> (f32, f32) {
    let (mut max, mut total) = ([f32::NEG_INFINITY; LANES], [0.0; LANES]);
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            max[lane] = nan_max(max[lane], chunk[lane]);
            total[lane] += chunk[lane];
        }
    }
    for (lane, x) in rest.iter().enumerate() {
        max[lane] = nan_max(max[lane], *x);
        total[lane] += x;
    }
    let max = max.into_iter().fold(max[0], nan_max);
    (max, sum(total))
}

#[inline(always)]
fn sum_exp(row: &[f32], max: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += exp_of_negative(chunk[lane] - max);
        }
    }
    for (lane, x) in rest.iter().enumerate() {
        lanes[lane] += exp_of_negative(x - max);
    }
    sum(lanes)
}

/// Overwrites the row with its exponentials, and returns their sum.
#[inline(always)]
fn exp_in_place(row: &mut [f32], max: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let exp = exp_of_negative(chunk[lane] - max);
            chunk[lane] = exp;
            lanes[lane] += exp;
        }
    }
    for (lane, x) in rest.iter_mut().enumerate() {
        *x = exp_of_negative(*x - max);
        lanes[lane] += *x;
    }
    sum(lanes)
}
