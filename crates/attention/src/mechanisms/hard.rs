//! One key alone, all or nothing:
//!
//! ```text
//! best    = argmax(score)                over the keys a query may see
//! context = value of the best
//! ```
//!
//! Xu et al., [Show, Attend and Tell](https://arxiv.org/abs/1502.03044), 2015.
//!
//! A choice has no gradient. In training, Gumbel noise on the scores makes the best a
//! sample of the softmax, and the gradient is that of the soft choice it comes near to:
//!
//! ```text
//! best    = argmax(score + noise)              noise = -ln(-ln(uniform))
//! weight  = 1 for the best, 0 for the others   forward
//! weight  = softmax((score + noise) / temperature)    for the gradient by scores
//! ```
//!
//! Jang et al., [Categorical Reparameterization with
//! Gumbel-Softmax](https://arxiv.org/abs/1611.01144), 2016: straight-through.

use burn::tensor::{Bool, FloatDType, Int, Tensor};
use zoo_spec::Hard;

pub use super::choice::Choice;
use super::{Attention, Inputs, Mode, Output, Params};
use crate::analysis::weighing::Weighing;
use crate::counter::{draw, mix, row_key};
use crate::mechanisms::standard::{
    Attended, all_places, attend_by_weights, by_rows, changed, may_hide, scores_of, softmax,
};
use crate::precision::widen;
use crate::seed::next_seed;
use crate::{AttentionOptions, AttentionShape};

impl Attention for Hard {
    fn forward(&self, inputs: Inputs, params: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        let choice = match params.mode {
            Mode::Function => sampled(self, self.seed),
            Mode::Training => sampled(self, mix(self.seed ^ next_seed(&query.device()))),
            Mode::Inference => Choice::Best,
        };
        hard(query, key, value, choice, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn weighing(&self, params: &Params, _: &Tensor<4>, _: &AttentionShape) -> Weighing {
        Weighing::Hard(match params.mode {
            Mode::Function => sampled(self, self.seed),
            Mode::Training | Mode::Inference => Choice::Best,
        })
    }
}

fn sampled(hard: &Hard, seed: u64) -> Choice {
    Choice::Sampled {
        temperature: hard.temperature,
        seed,
    }
}

/// Attends to one key alone; its weights are 1 for that and 0 for the others.
///
/// A query that sees nothing gets zeros. Half-precision tensors are computed in `f32` and
/// rounded once, at the end.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - context: `[batch, heads, seq_q, d_value]`
/// - weights: `[batch, heads, seq_q, seq_k]`
///
/// # Panics
///
/// If the tensors or the options do not fit together, the temperature is not a number from
/// 1e-6 to 1e6, or the tensors are not of one number type of up to 32 bits.
pub fn hard(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    choice: Choice,
    options: &AttentionOptions,
) -> Attended {
    let op = "hard attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    if let Choice::Sampled { temperature, .. } = choice {
        assert!(
            TEMPERATURES.contains(&temperature),
            "{op}: a temperature must be from 1e-6 to 1e6, got {temperature}"
        );
    }
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let scale = options.scale.unwrap_or(shape.default_scale());
    let scores = changed(
        scores_of(query, key, scale, &shape, may_hide(options)),
        options,
        all_places(&shape),
    );
    let hidden = options.pattern.hidden(op, &shape, &scores.device());
    let weights = match choice {
        Choice::Best => best(scores.detach(), hidden),
        Choice::Sampled { temperature, seed } => {
            let scores = scores.clone() + noise(seed, &shape, &scores);
            let best = best(scores.clone().detach(), hidden.clone());
            let soft = softmax(scores.div_scalar(temperature), hidden);
            // The difference is nothing, but for its gradient.
            best + (soft.clone() - soft.detach())
        }
    };
    attend_by_weights(weights, value, options, &shape, stored, may_hide(options))
}

/// Temperatures that leave numbers in their range.
pub(crate) const TEMPERATURES: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// 1 for the first of the largest scores of a row, if it is seen, and 0 for the others; NaN for
/// a score that is NaN.
fn best(scores: Tensor<4>, hidden: Option<Tensor<4, Bool>>) -> Tensor<4> {
    let dims = scores.dims();
    let [.., seq_k] = dims;
    let hidden = hidden.map(|hidden| hidden.expand(dims));
    let scores = match &hidden {
        Some(hidden) => scores.mask_fill(hidden.clone(), f32::MIN),
        None => scores,
    };
    // A bias of minus infinity hides, too: nothing is as large as this then.
    let largest = scores.clone().max_dim(3).clamp_min(f32::MIN); // [batch, heads, seq_q, 1]
    let is_less = scores.clone().lower(largest.expand(dims));
    // Which of several equals an argmax returns is not the same everywhere.
    let places = Tensor::<1, Int>::arange(0..seq_k as i64, &scores.device())
        .cast(FloatDType::from(scores.dtype()))
        .reshape([1, 1, 1, seq_k])
        .expand(dims);
    let first = places.clone().mask_fill(is_less, seq_k as f32).min_dim(3); // [batch, heads, seq_q, 1]
    let is_first = places.equal(first.expand(dims));
    let one = scores.zeros_like().mask_fill(is_first, 1.0);
    // No comparison with NaN holds: a score that is NaN would choose the first key in silence.
    let one = one.mask_where(scores.clone().is_nan(), scores);
    match hidden {
        Some(hidden) => one.mask_fill(hidden, 0.0),
        None => one,
    }
}

/// What is added to scores so that the best is a sample: `[batch, heads, seq_q, seq_k]`.
fn noise(seed: u64, shape: &AttentionShape, scores: &Tensor<4>) -> Tensor<4> {
    by_rows(shape, scores, |row, noise| {
        // Turned over, so that dropout of the same seed drops others.
        let row = row_key(!seed, row);
        noise.extend((0..shape.seq_k).map(|key| gumbel(draw(row, key as u32))));
    })
}

/// `-ln(-ln(u))` of 32 bits as a fraction `u`, half a step further, so that it is neither
/// 0 nor 1.
fn gumbel(bits: u32) -> f32 {
    let fraction = (f64::from(bits) + 0.5) / 2f64.powi(32);
    -(-fraction.ln()).ln() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_finite() {
        assert!(gumbel(0).is_finite() && gumbel(u32::MAX).is_finite());
    }
}
