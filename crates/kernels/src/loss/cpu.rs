//! The loss of numbers in memory, some rows to a thread.

use std::sync::Arc;

use crate::cpu::dispatch;
use crate::cpu::exp::exp_of_negative;
use crate::cpu::parallel::{for_each, map, rows_per_task};
use crate::cpu::{LANES, sum};

/// The class of a row that does not count.
pub(super) const PADDING: u32 = u32::MAX;

/// What the op is told besides the logits.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(super) classes: usize,
    pub(super) targets: Arc<[u32]>,
    pub(super) smoothing: f64,
}

/// How the classes of a row are weighed.
#[derive(Debug, Clone, Copy)]
struct Weights {
    /// That of the class that came, besides its share of what all have.
    own: f64,
    /// That of every class.
    all: f64,
    /// What the gradient of a row is multiplied by.
    scale: f64,
}

impl Weights {
    fn new(settings: &Settings) -> Self {
        let smoothing = settings.smoothing;
        Self {
            own: 1.0 - smoothing,
            all: smoothing / settings.classes as f64,
            scale: 1.0 / count(settings),
        }
    }
}

/// How many rows count, but at least one.
fn count(settings: &Settings) -> f64 {
    let counts = settings.targets.iter().filter(|t| **t != PADDING).count();
    counts.max(1) as f64
}

/// The loss alone.
pub(super) fn loss(logits: &[f32], settings: &Settings) -> f32 {
    let (classes, targets) = (settings.classes, &settings.targets);
    let weights = Weights::new(settings);
    let part = rows_per_task(targets.len(), classes);
    let tasks: Vec<_> = logits
        .chunks(part * classes)
        .zip(targets.chunks(part))
        .collect();
    let parts = map(tasks, |(logits, targets)| {
        loss_of_rows(logits, targets, classes, weights)
    });
    (parts.into_iter().sum::<f64>() / count(settings)) as f32
}

/// The loss, with its gradient written over the logits.
pub(super) fn loss_and_gradient(logits: &mut [f32], settings: &Settings) -> f32 {
    let (classes, targets) = (settings.classes, &settings.targets);
    let weights = Weights::new(settings);
    let part = rows_per_task(targets.len(), classes);
    let tasks: Vec<_> = logits
        .chunks_mut(part * classes)
        .zip(targets.chunks(part))
        .collect();
    let parts = map(tasks, |(logits, targets)| {
        gradient_of_rows(logits, targets, classes, weights)
    });
    (parts.into_iter().sum::<f64>() / count(settings)) as f32
}

pub(super) fn scale(numbers: &mut [f32], factor: f32) {
    let part = rows_per_task(numbers.len(), 1);
    for_each(numbers.chunks_mut(part).collect(), |numbers| {
        for number in numbers {
            *number *= factor;
        }
    });
}

dispatch! {
    fn loss_of_rows(
        logits: &[f32],
        targets: &[u32],
        classes: usize,
        weights: Weights,
    ) -> f64 by loss_loop;
}

#[inline(always)]
fn loss_loop(logits: &[f32], targets: &[u32], classes: usize, weights: Weights) -> f64 {
    let mut total = 0.0;
    for (at, target) in targets.iter().enumerate() {
        if *target == PADDING {
            continue;
        }
        let row = &logits[at * classes..][..classes];
        let (largest, all) = largest_and_sum(row);
        let exps = sum_of_exps(row, largest);
        total += loss_of(row, *target, largest, all, exps, weights);
    }
    total
}

dispatch! {
    fn gradient_of_rows(
        logits: &mut [f32],
        targets: &[u32],
        classes: usize,
        weights: Weights,
    ) -> f64 by gradient_loop;
}

#[inline(always)]
fn gradient_loop(logits: &mut [f32], targets: &[u32], classes: usize, weights: Weights) -> f64 {
    let mut total = 0.0;
    for (at, target) in targets.iter().enumerate() {
        let row = &mut logits[at * classes..][..classes];
        if *target == PADDING {
            row.fill(0.0);
            continue;
        }
        let (largest, all) = largest_and_sum(row);
        let own = row[*target as usize];
        let exps = exps_in_place(row, largest);
        // What stood at the target is an exponential by now.
        total += loss_of(&[own], 0, largest, all, exps, weights);
        let factor = (weights.scale / f64::from(exps)) as f32;
        let less = (weights.scale * weights.all) as f32;
        for number in row.iter_mut() {
            *number = *number * factor - less;
        }
        row[*target as usize] -= (weights.scale * weights.own) as f32;
    }
    total
}

/// `lse - (1 - s) x_t - s · mean(x)`
#[inline(always)]
fn loss_of(row: &[f32], target: u32, largest: f32, all: f32, exps: f32, weights: Weights) -> f64 {
    let log_sum_exp = f64::from(largest) + f64::from(exps).ln();
    let own = f64::from(row[target as usize]);
    // A class that cannot be, of minus infinity, counts where something is left for it.
    let smoothed = match weights.all {
        0.0 => 0.0,
        share => share * f64::from(all),
    };
    log_sum_exp - weights.own * own - smoothed
}

/// NaN if there is one: of two numbers it stays.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

#[inline(always)]
fn largest_and_sum(row: &[f32]) -> (f32, f32) {
    let (mut largest, mut all) = ([f32::NEG_INFINITY; LANES], [0.0; LANES]);
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            largest[lane] = larger(largest[lane], chunk[lane]);
            all[lane] += chunk[lane];
        }
    }
    for (lane, number) in rest.iter().enumerate() {
        largest[lane] = larger(largest[lane], *number);
        all[lane] += number;
    }
    let mut top = largest[0];
    for number in largest {
        top = larger(top, number);
    }
    (top, sum(all))
}

#[inline(always)]
fn sum_of_exps(row: &[f32], largest: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += exp_of_negative(chunk[lane] - largest);
        }
    }
    for (lane, number) in rest.iter().enumerate() {
        lanes[lane] += exp_of_negative(number - largest);
    }
    sum(lanes)
}

/// The same, with the exponentials written over the row.
#[inline(always)]
fn exps_in_place(row: &mut [f32], largest: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let exp = exp_of_negative(chunk[lane] - largest);
            chunk[lane] = exp;
            lanes[lane] += exp;
        }
    }
    for (lane, number) in rest.iter_mut().enumerate() {
        *number = exp_of_negative(*number - largest);
        lanes[lane] += *number;
    }
    sum(lanes)
}
