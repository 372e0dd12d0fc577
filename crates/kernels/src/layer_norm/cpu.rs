//! The norm of numbers in memory, some rows to a thread.

use crate::cpu::dispatch;
use crate::cpu::parallel::{for_each, map, rows_per_task};
use crate::cpu::{LANES, sum};

/// Writes the norm of every row, and returns the mean and the factor of each.
pub(super) fn forward(
    input: &[f32],
    gamma: &[f32],
    beta: &[f32],
    epsilon: f64,
    output: &mut [f32],
) -> Vec<[f32; 2]> {
    let width = gamma.len();
    if width == 0 {
        return Vec::new();
    }
    let count = input.len() / width;
    let mut rows = vec![[0.0; 2]; count];
    let part = rows_per_task(count, width);
    let tasks: Vec<_> = input
        .chunks(part * width)
        .zip(output.chunks_mut(part * width))
        .zip(rows.chunks_mut(part))
        .collect();
    for_each(tasks, |((input, output), rows)| {
        forward_rows(input, gamma, beta, epsilon as f32, output, rows);
    });
    rows
}

/// Writes the gradient by the input over what arrived, and those by gamma and beta.
pub(super) fn backward(
    input: &[f32],
    gamma: &[f32],
    rows: &[[f32; 2]],
    arrived: &mut [f32],
    d_gamma: &mut [f32],
    d_beta: &mut [f32],
) {
    let width = gamma.len();
    d_gamma.fill(0.0);
    d_beta.fill(0.0);
    if width == 0 {
        return;
    }
    let part = rows_per_task(rows.len(), width);
    let tasks: Vec<_> = input
        .chunks(part * width)
        .zip(arrived.chunks_mut(part * width))
        .zip(rows.chunks(part))
        .collect();
    let parts = map(tasks, |((input, arrived), rows)| {
        let mut sums = vec![0.0; 2 * width];
        let (d_gamma, d_beta) = sums.split_at_mut(width);
        backward_rows(input, gamma, rows, arrived, d_gamma, d_beta);
        sums
    });
    // In the order of the rows, whoever was first.
    for sums in parts {
        let (of_gamma, of_beta) = sums.split_at(width);
        for at in 0..width {
            d_gamma[at] += of_gamma[at];
            d_beta[at] += of_beta[at];
        }
    }
}

dispatch! {
    fn forward_rows(
        input: &[f32],
        gamma: &[f32],
        beta: &[f32],
        epsilon: f32,
        output: &mut [f32],
        rows: &mut [[f32; 2]],
    ) by forward_loop;
}

#[inline(always)]
fn forward_loop(
    input: &[f32],
    gamma: &[f32],
    beta: &[f32],
    epsilon: f32,
    output: &mut [f32],
    rows: &mut [[f32; 2]],
) {
    let width = gamma.len();
    let beta = &beta[..width];
    for (at, row) in rows.iter_mut().enumerate() {
        let x = &input[at * width..][..width];
        let y = &mut output[at * width..][..width];
        let mean = sum_of(x) / width as f32;
        let factor = 1.0 / (squares_around(x, mean) / width as f32 + epsilon).sqrt();
        for at in 0..width {
            y[at] = (x[at] - mean) * factor * gamma[at] + beta[at];
        }
        *row = [mean, factor];
    }
}

dispatch! {
    fn backward_rows(
        input: &[f32],
        gamma: &[f32],
        rows: &[[f32; 2]],
        arrived: &mut [f32],
        d_gamma: &mut [f32],
        d_beta: &mut [f32],
    ) by backward_loop;
}

#[inline(always)]
fn backward_loop(
    input: &[f32],
    gamma: &[f32],
    rows: &[[f32; 2]],
    arrived: &mut [f32],
    d_gamma: &mut [f32],
    d_beta: &mut [f32],
) {
    let width = gamma.len();
    let (d_gamma, d_beta) = (&mut d_gamma[..width], &mut d_beta[..width]);
    for (at, [mean, factor]) in rows.iter().enumerate() {
        let x = &input[at * width..][..width];
        let dy = &mut arrived[at * width..][..width];
        let (plain, along) = sums_back(x, gamma, dy, *mean, *factor);
        let plain = plain / width as f32;
        let along = along / width as f32;
        for at in 0..width {
            let z = (x[at] - mean) * factor;
            let d = dy[at];
            d_gamma[at] += d * z;
            d_beta[at] += d;
            dy[at] = factor * (gamma[at] * d - plain - z * along);
        }
    }
}

#[inline(always)]
fn sum_of(numbers: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += chunk[lane];
        }
    }
    for (lane, number) in rest.iter().enumerate() {
        lanes[lane] += number;
    }
    sum(lanes)
}

/// `Σ (x - mean)²`
#[inline(always)]
fn squares_around(numbers: &[f32], mean: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let apart = chunk[lane] - mean;
            lanes[lane] += apart * apart;
        }
    }
    for (lane, number) in rest.iter().enumerate() {
        let apart = number - mean;
        lanes[lane] += apart * apart;
    }
    sum(lanes)
}

/// `Σ γ dy` and `Σ γ dy z`
#[inline(always)]
fn sums_back(x: &[f32], gamma: &[f32], dy: &[f32], mean: f32, factor: f32) -> (f32, f32) {
    let (mut plain, mut along) = ([0.0; LANES], [0.0; LANES]);
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (gammas, gamma_rest) = gamma.as_chunks::<LANES>();
    let (dys, dy_rest) = dy.as_chunks::<LANES>();
    for ((x, gamma), dy) in xs.iter().zip(gammas).zip(dys) {
        for lane in 0..LANES {
            let d = gamma[lane] * dy[lane];
            plain[lane] += d;
            along[lane] += d * ((x[lane] - mean) * factor);
        }
    }
    for (lane, ((x, gamma), dy)) in x_rest.iter().zip(gamma_rest).zip(dy_rest).enumerate() {
        let d = gamma * dy;
        plain[lane] += d;
        along[lane] += d * ((x - mean) * factor);
    }
    (sum(plain), sum(along))
}
