//! Forgetting numbers in memory, some blocks to a thread.

use super::draw::{BLOCK, block_key};
use super::settings::Forgetting;
use crate::cpu::dispatch;
use crate::cpu::parallel::{for_each, rows_per_task};
use crate::random::draw;

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
        threshold: forgetting.threshold(),
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
