//! Dropout on slices, with blocks distributed over threads.

use crate::cpu::dispatch;
use crate::cpu::parallel::{for_each, rows_per_task};
use crate::random::{self, mix, random_bits};

/// Elements that share a random key.
const BLOCK: usize = 1024;

fn block_key(seed: u64, block: usize) -> [u32; 2] {
    random::key(mix(seed), block)
}

/// Probability and seed of a dropout mask.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Mask {
    /// Dropout probability, in `[0, 1)`.
    pub(super) probability: f64,
    pub(super) seed: u64,
}

impl Mask {
    /// Scale of the retained elements.
    fn scale(&self) -> f32 {
        (1.0 / (1.0 - self.probability)) as f32
    }
}

/// The mask of one block.
#[derive(Debug, Clone, Copy)]
struct BlockMask {
    key: [u32; 2],
    threshold: u32,
    scale: f32,
}

impl BlockMask {
    /// The mask of the block that begins at element `start`.
    fn new(mask: Mask, start: usize) -> Self {
        Self {
            key: block_key(mask.seed, start / BLOCK),
            threshold: random::threshold(mask.probability),
            scale: mask.scale(),
        }
    }

    #[inline(always)]
    fn is_kept(self, index: usize) -> bool {
        random_bits(self.key, index as u32) >= self.threshold
    }
}

/// Elements per task, a multiple of the block size.
fn task_len(count: usize) -> usize {
    rows_per_task(count.div_ceil(BLOCK), BLOCK) * BLOCK
}

/// Runs `run` on all blocks, each with the index of its first element and its mask.
fn for_each_block(
    x: &mut [f32],
    mask: Mask,
    run: impl Fn(&mut [f32], usize, BlockMask) + Sync + Send,
) {
    let part = task_len(x.len());
    let tasks: Vec<_> = x.chunks_mut(part).enumerate().collect();
    for_each(tasks, |(task, x)| {
        for (block, x) in x.chunks_mut(BLOCK).enumerate() {
            let start = task * part + block * BLOCK;
            run(x, start, BlockMask::new(mask, start));
        }
    });
}

/// `x = keep · x`
pub(super) fn dropout(x: &mut [f32], mask: Mask) {
    for_each_block(x, mask, |x, _, mask| drop_block(x, mask));
}

/// `x = base + keep · x`
pub(super) fn add_dropout(base: &[f32], x: &mut [f32], mask: Mask) {
    for_each_block(x, mask, |x, start, mask| {
        add_block(&base[start..][..x.len()], x, mask);
    });
}

/// `x = keep · max(x, 0)`
pub(super) fn relu_dropout(x: &mut [f32], mask: Mask) {
    for_each_block(x, mask, |x, _, mask| relu_block(x, mask));
}

/// Scales the gradient where the output is positive and sets it to zero elsewhere.
pub(super) fn relu_dropout_backward(output: &[f32], gradient: &mut [f32], mask: Mask) {
    let part = task_len(gradient.len());
    let tasks: Vec<_> = gradient.chunks_mut(part).zip(output.chunks(part)).collect();
    for_each(tasks, |(gradient, output)| {
        relu_backward(output, gradient, mask.scale());
    });
}

dispatch! {
    fn drop_block(x: &mut [f32], mask: BlockMask) by drop_loop;
}

#[inline(always)]
fn drop_loop(x: &mut [f32], mask: BlockMask) {
    for (i, x) in x.iter_mut().enumerate() {
        let scaled = *x * mask.scale;
        *x = if mask.is_kept(i) { scaled } else { 0.0 };
    }
}

dispatch! {
    fn add_block(base: &[f32], x: &mut [f32], mask: BlockMask) by add_loop;
}

#[inline(always)]
fn add_loop(base: &[f32], x: &mut [f32], mask: BlockMask) {
    for (i, (x, base)) in x.iter_mut().zip(base).enumerate() {
        let scaled = *x * mask.scale;
        *x = base + if mask.is_kept(i) { scaled } else { 0.0 };
    }
}

dispatch! {
    fn relu_block(x: &mut [f32], mask: BlockMask) by relu_loop;
}

#[inline(always)]
fn relu_loop(x: &mut [f32], mask: BlockMask) {
    for (i, x) in x.iter_mut().enumerate() {
        // NaN is propagated.
        let scaled = if *x < 0.0 { 0.0 } else { *x * mask.scale };
        *x = if mask.is_kept(i) { scaled } else { 0.0 };
    }
}

dispatch! {
    fn relu_backward(output: &[f32], gradient: &mut [f32], scale: f32) by relu_backward_loop;
}

#[inline(always)]
fn relu_backward_loop(output: &[f32], gradient: &mut [f32], scale: f32) {
    for (gradient, output) in gradient.iter_mut().zip(output) {
        let scaled = *gradient * scale;
        *gradient = if *output > 0.0 { scaled } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(seed: u64, count: usize) -> Vec<u32> {
        (0..count)
            .map(|i| random_bits(block_key(seed, i / BLOCK), (i % BLOCK) as u32))
            .collect()
    }

    /// The top bits of neighbours, near and far, and of other seeds agree half of the time.
    #[test]
    fn elements_are_independent() {
        let count = 50_000;
        let stream = bits(11, count + BLOCK);
        let others = [
            ("offset 1", stream[1..].to_vec()),
            ("offset 16", stream[16..].to_vec()),
            ("next block", stream[BLOCK..].to_vec()),
            ("next seed", bits(12, count)),
        ];
        let noise = 5.0 * 0.5 / (count as f64).sqrt();
        for (name, other) in others {
            let is_large = |bits: &u32| *bits >= 1 << 31;
            let pairs = stream.iter().zip(&other).take(count);
            let agree = pairs.filter(|(a, b)| is_large(a) == is_large(b)).count();
            let fraction = agree as f64 / count as f64;
            assert!((fraction - 0.5).abs() < noise, "{name}: {fraction}");
        }
    }
}
