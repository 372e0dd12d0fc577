//! Causal convolution on slices, with positions distributed over threads.

use std::ops::Range;

use crate::cpu::parallel::{for_each, map, rows_per_task};
use crate::cpu::{add, dispatch, exp_of_negative};

/// Sizes of a sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) seq: usize,
    pub(super) width: usize,
}

/// Convolves every sequence.
pub(super) fn forward(sizes: Sizes, input: &[f32], weight: &[f32], output: &mut [f32]) {
    let Sizes { seq, width } = sizes;
    if input.is_empty() {
        return;
    }
    let part = rows_per_task(input.len() / width, width).min(seq);
    let sequences = input
        .chunks(seq * width)
        .zip(output.chunks_mut(seq * width));
    let tasks: Vec<_> = sequences
        .flat_map(|(input, output)| {
            let parts = output.chunks_mut(part * width).enumerate();
            parts.map(move |(i, output)| (input, i * part, output))
        })
        .collect();
    for_each(tasks, |(input, first, output)| {
        forward_rows(input, weight, width, first, output);
    });
}

/// Computes the gradients of the input and of the weight.
pub(super) fn backward(
    sizes: Sizes,
    input: &[f32],
    weight: &[f32],
    output_grad: &[f32],
    d_input: &mut [f32],
    d_weight: &mut [f32],
) {
    let Sizes { seq, width } = sizes;
    d_weight.fill(0.0);
    if input.is_empty() {
        return;
    }
    let part = rows_per_task(input.len() / width, width).min(seq);
    let sequences = input
        .chunks(seq * width)
        .zip(output_grad.chunks(seq * width));
    let sequences = sequences.zip(d_input.chunks_mut(seq * width));
    let tasks: Vec<_> = sequences
        .flat_map(|((input, output_grad), d_input)| {
            let parts = d_input.chunks_mut(part * width).enumerate();
            parts.map(move |(i, d_input)| (input, output_grad, i * part, d_input))
        })
        .collect();
    let parts = map(tasks, |(input, output_grad, first, d_input)| {
        let mut d_weight = vec![0.0; weight.len()];
        let rows = d_input.len() / width;
        // Later positions depend on the last ones of this part.
        let after = (weight.len() / width - 1).min(seq - first - rows);
        let mut d_sums = vec![0.0; (rows + after) * width];
        d_sums.copy_from_slice(&output_grad[first * width..][..(rows + after) * width]);
        backward_rows(
            input,
            weight,
            width,
            first,
            &mut d_sums,
            d_input,
            &mut d_weight,
        );
        d_weight
    });
    // In the order of the positions, so that the sum does not depend on scheduling.
    for part in parts {
        add(d_weight, &part);
    }
}

dispatch! {
    fn forward_rows(
        input: &[f32],
        weight: &[f32],
        width: usize,
        first: usize,
        output: &mut [f32],
    ) by forward_loop;
}

/// `output` begins at position `first` of the sequence `input`.
#[inline(always)]
fn forward_loop(input: &[f32], weight: &[f32], width: usize, first: usize, output: &mut [f32]) {
    for (row, y) in output.chunks_exact_mut(width).enumerate() {
        sum_row(input, weight, width, first + row, y);
        for y in y {
            *y *= sigmoid(*y);
        }
    }
}

dispatch! {
    fn backward_rows(
        input: &[f32],
        weight: &[f32],
        width: usize,
        first: usize,
        d_sums: &mut [f32],
        d_input: &mut [f32],
        d_weight: &mut [f32],
    ) by backward_loop;
}

/// `d_input` and `d_sums`, which holds the output gradient, begin at position `first`. `d_sums` has
/// the positions after those of `d_input` that depend on them, and is overwritten.
#[inline(always)]
fn backward_loop(
    input: &[f32],
    weight: &[f32],
    width: usize,
    first: usize,
    d_sums: &mut [f32],
    d_input: &mut [f32],
    d_weight: &mut [f32],
) {
    let own = d_input.len() / width;
    let mut sums = vec![0.0; width];
    for (row, d_sum) in d_sums.chunks_exact_mut(width).enumerate() {
        sum_row(input, weight, width, first + row, &mut sums);
        for (d, z) in d_sum.iter_mut().zip(&sums) {
            let s = sigmoid(*z);
            *d *= s * (1.0 + z * (1.0 - s));
        }
        if row < own {
            let rows = d_weight.chunks_exact_mut(width);
            for (d_weight, position) in rows.zip(earlier(first + row)) {
                multiply_add(d_weight, d_sum, &input[position * width..][..width]);
            }
        }
    }
    for (row, d_x) in d_input.chunks_exact_mut(width).enumerate() {
        d_x.fill(0.0);
        let later = d_sums[row * width..].chunks_exact(width);
        for (weight, d_sum) in weight.chunks_exact(width).zip(later) {
            multiply_add(d_x, weight, d_sum);
        }
    }
}

/// `Σ_i w_i ∘ x_(t-i)` of a position.
#[inline(always)]
fn sum_row(input: &[f32], weight: &[f32], width: usize, position: usize, to: &mut [f32]) {
    to.fill(0.0);
    for (weight, position) in weight.chunks_exact(width).zip(earlier(position)) {
        multiply_add(to, weight, &input[position * width..][..width]);
    }
}

/// A position and those before it, from the last to the first.
#[inline(always)]
fn earlier(position: usize) -> std::iter::Rev<Range<usize>> {
    (0..position + 1).rev()
}

#[inline(always)]
fn multiply_add(to: &mut [f32], a: &[f32], b: &[f32]) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to += a * b;
    }
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    // NaN stays NaN.
    let exp = exp_of_negative(-x.abs());
    let numerator = if x < 0.0 { exp } else { 1.0 };
    numerator / (1.0 + exp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several parts of a sequence have the result of one.
    #[test]
    fn parts_are_independent() {
        let (seq, width) = (3000, 40);
        let value = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 25.0;
        let input: Vec<f32> = (0..seq * width).map(value).collect();
        let weight: Vec<f32> = (0..4 * width).map(|i| value(i + 7)).collect();
        let sizes = Sizes { seq, width };
        let mut output = vec![0.0; input.len()];
        forward(sizes, &input, &weight, &mut output);
        let mut whole = vec![0.0; input.len()];
        forward_rows(&input, &weight, width, 0, &mut whole);
        assert!(rows_per_task(seq, width) < seq);
        assert_eq!(output, whole);

        let (mut d_input, mut d_weight) = (vec![0.0; input.len()], vec![0.0; weight.len()]);
        backward(sizes, &input, &weight, &output, &mut d_input, &mut d_weight);
        let (mut d_whole, mut d_weight_whole) = (vec![0.0; input.len()], vec![0.0; weight.len()]);
        let mut d_sums = output.clone();
        backward_rows(
            &input,
            &weight,
            width,
            0,
            &mut d_sums,
            &mut d_whole,
            &mut d_weight_whole,
        );
        assert_eq!(d_input, d_whole);
        for (part, whole) in d_weight.iter().zip(&d_weight_whole) {
            assert!(
                (part - whole).abs() <= 1e-4 * whole.abs().max(1.0),
                "{part} {whole}"
            );
        }
    }
}
