//! Forgetting numbers in memory, some blocks to a thread.

use crate::cpu::dispatch;
use crate::cpu::parallel::{for_each, rows_per_task};
use crate::random::{self, draw, mix};

/// Elements that are drawn by one key.
const BLOCK: usize = 1024;

fn block_key(seed: u64, block: usize) -> [u32; 2] {
    random::key(mix(seed), block)
}

/// What is forgotten, and by which seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Forgetting {
    /// The share of numbers that are forgotten, from 0 to below 1.
    pub(super) probability: f64,
    pub(super) seed: u64,
}

impl Forgetting {
    /// What the numbers that stay are multiplied by.
    fn factor(&self) -> f32 {
        (1.0 / (1.0 - self.probability)) as f32
    }
}

/// What is done to a block.
#[derive(Debug, Clone, Copy)]
struct Drawing {
    key: [u32; 2],
    threshold: u32,
    factor: f32,
}

/// How many of `count` numbers a task takes: whole blocks.
fn task(count: usize) -> usize {
    rows_per_task(count.div_ceil(BLOCK), BLOCK) * BLOCK
}

/// What is drawn for the block that starts at number `first`.
fn drawing(forgetting: Forgetting, first: usize) -> Drawing {
    Drawing {
        key: block_key(forgetting.seed, first / BLOCK),
        threshold: random::threshold(forgetting.probability),
        factor: forgetting.factor(),
    }
}

/// Runs what is done to a block over all of them.
fn for_each_block(
    numbers: &mut [f32],
    forgetting: Forgetting,
    run: impl Fn(&mut [f32], Drawing) + Sync + Send,
) {
    let part = task(numbers.len());
    let tasks: Vec<_> = numbers.chunks_mut(part).enumerate().collect();
    for_each(tasks, |(at, numbers)| {
        for (block, numbers) in numbers.chunks_mut(BLOCK).enumerate() {
            run(numbers, drawing(forgetting, at * part + block * BLOCK));
        }
    });
}

/// `x = keep · x`
pub(super) fn dropout(numbers: &mut [f32], forgetting: Forgetting) {
    for_each_block(numbers, forgetting, drop_block);
}

/// `x = base + keep · x`
pub(super) fn add_dropout(base: &[f32], numbers: &mut [f32], forgetting: Forgetting) {
    let part = task(numbers.len());
    let tasks: Vec<_> = numbers
        .chunks_mut(part)
        .zip(base.chunks(part))
        .enumerate()
        .collect();
    for_each(tasks, |(at, (numbers, base))| {
        let blocks = numbers.chunks_mut(BLOCK).zip(base.chunks(BLOCK));
        for (block, (numbers, base)) in blocks.enumerate() {
            let drawing = drawing(forgetting, at * part + block * BLOCK);
            add_block(base, numbers, drawing);
        }
    });
}

/// `x = keep · max(x, 0)`
pub(super) fn relu_dropout(numbers: &mut [f32], forgetting: Forgetting) {
    for_each_block(numbers, forgetting, relu_block);
}

/// What arrives, where something came out; zero elsewhere.
pub(super) fn relu_dropout_backward(output: &[f32], arrived: &mut [f32], forgetting: Forgetting) {
    let part = task(arrived.len());
    let tasks: Vec<_> = arrived.chunks_mut(part).zip(output.chunks(part)).collect();
    for_each(tasks, |(arrived, output)| {
        relu_back(output, arrived, forgetting.factor());
    });
}

dispatch! {
    fn drop_block(numbers: &mut [f32], drawing: Drawing) by drop_loop;
}

#[inline(always)]
fn drop_loop(numbers: &mut [f32], drawing: Drawing) {
    for (place, number) in numbers.iter_mut().enumerate() {
        let kept = *number * drawing.factor;
        let is_kept = draw(drawing.key, place as u32) >= drawing.threshold;
        *number = if is_kept { kept } else { 0.0 };
    }
}

dispatch! {
    fn add_block(
        base: &[f32],
        numbers: &mut [f32],
        drawing: Drawing,
    ) by add_loop;
}

#[inline(always)]
fn add_loop(base: &[f32], numbers: &mut [f32], drawing: Drawing) {
    for (place, (number, base)) in numbers.iter_mut().zip(base).enumerate() {
        let kept = *number * drawing.factor;
        let is_kept = draw(drawing.key, place as u32) >= drawing.threshold;
        *number = base + if is_kept { kept } else { 0.0 };
    }
}

dispatch! {
    fn relu_block(numbers: &mut [f32], drawing: Drawing) by relu_loop;
}

#[inline(always)]
fn relu_loop(numbers: &mut [f32], drawing: Drawing) {
    for (place, number) in numbers.iter_mut().enumerate() {
        let x = *number;
        // NaN is not below zero, and stays.
        let kept = if x < 0.0 { 0.0 } else { x * drawing.factor };
        let is_kept = draw(drawing.key, place as u32) >= drawing.threshold;
        *number = if is_kept { kept } else { 0.0 };
    }
}

dispatch! {
    fn relu_back(
        output: &[f32],
        arrived: &mut [f32],
        factor: f32,
    ) by relu_back_loop;
}

#[inline(always)]
fn relu_back_loop(output: &[f32], arrived: &mut [f32], factor: f32) {
    for (arrived, output) in arrived.iter_mut().zip(output) {
        let passed = *arrived * factor;
        *arrived = if *output > 0.0 { passed } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(seed: u64, count: usize) -> Vec<u32> {
        (0..count)
            .map(|at| draw(block_key(seed, at / BLOCK), (at % BLOCK) as u32))
            .collect()
    }

    /// Neighbours, near and far, and other seeds, agree half of the time.
    #[test]
    fn places_are_independent() {
        let count = 50_000;
        let numbers = bits(11, count + BLOCK);
        let others = [
            ("the next", numbers[1..].to_vec()),
            ("the next but 15", numbers[16..].to_vec()),
            ("the next block", numbers[BLOCK..].to_vec()),
            ("the next seed", bits(12, count)),
        ];
        let noise = 5.0 * 0.5 / (count as f64).sqrt();
        for (what, others) in others {
            let is_large = |bits: &u32| *bits >= 1 << 31;
            let pairs = numbers.iter().zip(&others).take(count);
            let agree = pairs.filter(|(a, b)| is_large(a) == is_large(b)).count();
            let share = agree as f64 / count as f64;
            assert!((share - 0.5).abs() < noise, "{what}: {share}");
        }
    }
}
