//! The Adam step on slices.

use super::Step;
use crate::cpu::dispatch;
use crate::cpu::parallel::{for_each, rows_per_task};

/// Updates `tensor`, `first` and `second` in place.
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
        "Adam: the gradient and moments must have {count} elements like the parameter, got {}, {} \
         and {}",
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
    // Equal lengths, visible to the compiler: no bounds checks in the loop.
    let count = tensor.len();
    let (gradient, first, second) = (
        &gradient[..count],
        &mut first[..count],
        &mut second[..count],
    );
    for i in 0..count {
        let x = tensor[i];
        let g = gradient[i] + step.l2_decay * x;
        let m = step.beta_1 * first[i] + step.one_minus_beta_1 * g;
        let v = step.beta_2 * second[i] + step.one_minus_beta_2 * (g * g);
        first[i] = m;
        second[i] = v;
        tensor[i] = step.decay_factor * x - step.lr * (m / (v.sqrt() + step.epsilon));
    }
}
