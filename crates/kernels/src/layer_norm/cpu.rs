//! Layer norm on slices, with rows distributed over threads.

use crate::cpu::dispatch;
use crate::cpu::parallel::{for_each, map, rows_per_task};
use crate::cpu::{LANES, add, sum};

/// The mean that rows are normalised with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mean {
    /// That of the elements: layer norm.
    Subtracted,
    /// Zero: RMS norm.
    Zero,
}

/// Normalises every row, and returns the mean and reciprocal standard deviation of each.
pub(super) fn forward(
    input: &[f32],
    gamma: &[f32],
    beta: &[f32],
    epsilon: f64,
    mean: Mean,
    output: &mut [f32],
) -> Vec<[f32; 2]> {
    let width = gamma.len();
    if width == 0 {
        return Vec::new();
    }
    let count = input.len() / width;
    let mut stats = vec![[0.0; 2]; count];
    let part = rows_per_task(count, width);
    let tasks: Vec<_> = input
        .chunks(part * width)
        .zip(output.chunks_mut(part * width))
        .zip(stats.chunks_mut(part))
        .collect();
    for_each(tasks, |((input, output), stats)| {
        forward_rows(input, gamma, beta, epsilon as f32, mean, output, stats);
    });
    stats
}

/// Computes the gradients of gamma and beta, and overwrites the output gradient with the input
/// gradient.
pub(super) fn backward(
    input: &[f32],
    gamma: &[f32],
    stats: &[[f32; 2]],
    mean: Mean,
    gradient: &mut [f32],
    d_gamma: &mut [f32],
    d_beta: &mut [f32],
) {
    let width = gamma.len();
    d_gamma.fill(0.0);
    d_beta.fill(0.0);
    if width == 0 {
        return;
    }
    let part = rows_per_task(stats.len(), width);
    let tasks: Vec<_> = input
        .chunks(part * width)
        .zip(gradient.chunks_mut(part * width))
        .zip(stats.chunks(part))
        .collect();
    let parts = map(tasks, |((input, gradient), stats)| {
        let mut sums = vec![0.0; 2 * width];
        let (d_gamma, d_beta) = sums.split_at_mut(width);
        backward_rows(input, gamma, stats, mean, gradient, d_gamma, d_beta);
        sums
    });
    // In the order of the rows, so that the sum does not depend on scheduling.
    for sums in parts {
        let (part_gamma, part_beta) = sums.split_at(width);
        add(d_gamma, part_gamma);
        add(d_beta, part_beta);
    }
}

dispatch! {
    fn forward_rows(
        input: &[f32],
        gamma: &[f32],
        beta: &[f32],
        epsilon: f32,
        mean: Mean,
        output: &mut [f32],
        stats: &mut [[f32; 2]],
    ) by forward_loop;
}

#[inline(always)]
fn forward_loop(
    input: &[f32],
    gamma: &[f32],
    beta: &[f32],
    epsilon: f32,
    mean: Mean,
    output: &mut [f32],
    stats: &mut [[f32; 2]],
) {
    let width = gamma.len();
    let beta = &beta[..width];
    for (row, stats) in stats.iter_mut().enumerate() {
        let x = &input[row * width..][..width];
        let y = &mut output[row * width..][..width];
        let mean = match mean {
            Mean::Subtracted => sum_elements(x) / width as f32,
            Mean::Zero => 0.0,
        };
        let rstd = 1.0 / (sum_squared_deviations(x, mean) / width as f32 + epsilon).sqrt();
        for i in 0..width {
            y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
        }
        *stats = [mean, rstd];
    }
}

dispatch! {
    fn backward_rows(
        input: &[f32],
        gamma: &[f32],
        stats: &[[f32; 2]],
        mean: Mean,
        gradient: &mut [f32],
        d_gamma: &mut [f32],
        d_beta: &mut [f32],
    ) by backward_loop;
}

#[inline(always)]
fn backward_loop(
    input: &[f32],
    gamma: &[f32],
    stats: &[[f32; 2]],
    mean: Mean,
    gradient: &mut [f32],
    d_gamma: &mut [f32],
    d_beta: &mut [f32],
) {
    let width = gamma.len();
    let (d_gamma, d_beta) = (&mut d_gamma[..width], &mut d_beta[..width]);
    for (row, [row_mean, rstd]) in stats.iter().enumerate() {
        let x = &input[row * width..][..width];
        let dy = &mut gradient[row * width..][..width];
        let (sum_dz, sum_dz_z) = backward_sums(x, gamma, dy, *row_mean, *rstd);
        let mean_dz = match mean {
            Mean::Subtracted => sum_dz / width as f32,
            Mean::Zero => 0.0,
        };
        let mean_dz_z = sum_dz_z / width as f32;
        for i in 0..width {
            let z = (x[i] - row_mean) * rstd;
            let d = dy[i];
            d_gamma[i] += d * z;
            d_beta[i] += d;
            dy[i] = rstd * (gamma[i] * d - mean_dz - z * mean_dz_z);
        }
    }
}

#[inline(always)]
fn sum_elements(x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += chunk[lane];
        }
    }
    for (lane, x) in rest.iter().enumerate() {
        lanes[lane] += x;
    }
    sum(lanes)
}

/// `Σ (x - mean)²`
#[inline(always)]
fn sum_squared_deviations(x: &[f32], mean: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let deviation = chunk[lane] - mean;
            lanes[lane] += deviation * deviation;
        }
    }
    for (lane, x) in rest.iter().enumerate() {
        let deviation = x - mean;
        lanes[lane] += deviation * deviation;
    }
    sum(lanes)
}

/// `Σ γ dy` and `Σ γ dy z`
#[inline(always)]
fn backward_sums(x: &[f32], gamma: &[f32], dy: &[f32], mean: f32, rstd: f32) -> (f32, f32) {
    let (mut sum_dz, mut sum_dz_z) = ([0.0; LANES], [0.0; LANES]);
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (gammas, gamma_rest) = gamma.as_chunks::<LANES>();
    let (dys, dy_rest) = dy.as_chunks::<LANES>();
    for ((x, gamma), dy) in xs.iter().zip(gammas).zip(dys) {
        for lane in 0..LANES {
            let dz = gamma[lane] * dy[lane];
            sum_dz[lane] += dz;
            sum_dz_z[lane] += dz * ((x[lane] - mean) * rstd);
        }
    }
    for (lane, ((x, gamma), dy)) in x_rest.iter().zip(gamma_rest).zip(dy_rest).enumerate() {
        let dz = gamma * dy;
        sum_dz[lane] += dz;
        sum_dz_z[lane] += dz * ((x - mean) * rstd);
    }
    (sum(sum_dz), sum(sum_dz_z))
}
