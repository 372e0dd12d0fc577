//! The step on numbers in memory.

use super::Step;
use crate::cpu::dispatch;
use crate::cpu::parallel::{for_each, rows_per_task};

/// Takes the step: `tensor`, `first` and `second` are written over.
pub(super) fn adam_step(
    tensor: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    step: Step,
) {
    let count = tensor.len();
    assert!(
        [gradient.len(), first.len(), second.len()] == [count; 3],
        "Adam: a parameter of {count} numbers needs as many of its gradient and moments, got \
         {}, {} and {}",
        gradient.len(),
        first.len(),
        second.len()
    );
    let part = rows_per_task(count, 1);
    let tasks: Vec<_> = tensor
        .chunks_mut(part)
        .zip(gradient.chunks(part))
        .zip(first.chunks_mut(part).zip(second.chunks_mut(part)))
        .collect();
    for_each(tasks, |((tensor, gradient), (first, second))| {
        step_part(tensor, gradient, first, second, step);
    });
}

dispatch! {
    fn step_part(
        tensor: &mut [f32],
        gradient: &[f32],
        first: &mut [f32],
        second: &mut [f32],
        step: Step,
    ) by step_loop;
}

#[inline(always)]
fn step_loop(
    tensor: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    step: Step,
) {
    // All slices are as long, which the compiler sees here.
    let count = tensor.len();
    let (gradient, first, second) = (
        &gradient[..count],
        &mut first[..count],
        &mut second[..count],
    );
    for at in 0..count {
        let x = tensor[at];
        let g = gradient[at] + step.in_gradient * x;
        let m = step.beta_1 * first[at] + step.new_1 * g;
        let v = step.beta_2 * second[at] + step.new_2 * (g * g);
        first[at] = m;
        second[at] = v;
        tensor[at] = step.stays * x - step.rate * (m / (v.sqrt() + step.epsilon));
    }
}
