//! Comparison of a model with a reference: the same weights and batch on the same device with
//! Burn's operations instead of our kernels.

use anyhow::{Context, Result};
use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use zoo_attention::with_seed;
use zoo_backend::Dtype;
use zoo_bench_core::case::{Fault, Pass};
use zoo_bench_core::record::Outcome;
use zoo_kernels::{AdamConfig, AdamKind};
use zoo_models::without_kernels;
use zoo_oracle::{Formula, Parameter, Problem};
use zoo_spec::Mechanism;

use super::bench_model::BenchModel;
use super::{BenchBatch, LEARNING_RATE, Measurement, to_vec};

/// Maximum length of the comparison: the reference materialises the attention weights.
const MAX_LENGTH: usize = 512;

/// The maximum relative error and what was compared, or the wrong outcome.
type Compared = Result<(Option<f64>, String), Outcome>;

impl Measurement<'_> {
    pub(super) fn check_reference<M: BenchModel>(&self, device: &Device) -> Result<Compared> {
        if selects_keys(self.attention) {
            let note = "not compared with a reference: rounding may change the selected keys";
            return Ok(Ok((None, note.to_owned())));
        }
        let is_long = self.setup.layers > 0 && self.setup.n > MAX_LENGTH;
        let n = if is_long { MAX_LENGTH } else { self.setup.n };
        let setup = self.setup.clone().at_length(n)?;
        // Equal weights in every round.
        device.seed(0);
        let (model, batch) = BenchBatch::<M>::new(&setup, self.attention, device)?;
        let errors = match self.setting.pass {
            Pass::Train => self.training_errors(&model, &batch).to_vec(),
            Pass::Forward | Pass::Decode | Pass::Generate => {
                let actual = self.inject_fault(model.logits(&batch.batch));
                let expected = without_kernels(|| model.logits(&batch.batch));
                let error = relative_error(&to_vec(actual)?, &to_vec(expected)?);
                vec![("logits", error)]
            }
        };
        let tolerance = match self.setting.opened.dtype {
            Dtype::F32 => 1e-3,
            Dtype::F16 => 2e-2,
            Dtype::Bf16 => 1e-1,
        };
        // NaN counts as infinite.
        let key = |error: f64| if error.is_nan() { f64::INFINITY } else { error };
        let worst = errors.iter().max_by(|a, b| key(a.1).total_cmp(&key(b.1)));
        let (name, error) = worst.context("no results to compare")?;
        // Three digits, which round-trip through JSON.
        let error = round_to_3_digits(*error);
        if key(error) > tolerance {
            let detail = format!(
                "{name}: error {error:.1e} against the reference (Burn's operations) at n = {n}; \
                 tolerance {tolerance:.0e}"
            );
            let error = error.is_finite().then_some(error);
            return Ok(Err(Outcome::Wrong { error, detail }));
        }
        let names = errors
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ");
        let compared = format!("{names} within {error:.1e} of the reference at n = {n}");
        Ok(Ok((Some(error), compared)))
    }

    fn inject_fault<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        match self.setting.fault {
            Some(Fault::Inexact) => tensor * 1.01,
            _ => tensor,
        }
    }

    /// Errors of the loss, its gradients, and the loss after an optimizer step.
    fn training_errors<M: BenchModel>(
        &self,
        model: &M,
        batch: &BenchBatch<M>,
    ) -> [(&'static str, f64); 3] {
        let results = |change: &dyn Fn(Tensor<1>) -> Tensor<1>| {
            let loss = change(batch.loss(model));
            let gradients = GradientsParams::from_grads(loss.backward(), model);
            let mut flat = FlatGradients {
                gradients: &gradients,
                values: Vec::new(),
            };
            model.visit(&mut flat);
            let flat = flat.values;
            let mut optimizer = AdamConfig::new(AdamKind::Adam).init();
            let stepped = optimizer.step(LEARNING_RATE, model.clone(), gradients);
            let after = batch.loss(&stepped);
            let losses = [loss, after].map(|loss| loss.into_scalar::<f32>());
            (losses, flat)
        };
        // The same random numbers in both runs.
        let run = |change: &dyn Fn(Tensor<1>) -> Tensor<1>| with_seed(0, || results(change));
        let (losses, gradients) = run(&|loss| self.inject_fault(loss));
        let (expected_losses, expected) = without_kernels(|| run(&|loss| loss));
        let loss_error = |i: usize| {
            let [actual, expected] = [losses[i], expected_losses[i]].map(f64::from);
            (actual - expected).abs() / expected.abs()
        };
        [
            ("loss", loss_error(0)),
            ("gradients", relative_error(&gradients, &expected)),
            ("loss after a step", loss_error(1)),
        ]
    }
}

/// Whether a mechanism selects keys by their scores or hashes.
fn selects_keys(mechanism: Mechanism) -> bool {
    let zeros = |parameter: Parameter| vec![0.0; parameter.num_elements()];
    let config = mechanism.small_for_tests();
    let resolved = Problem::small_for(&config).with_mechanism(&config, zeros);
    resolved.is_some_and(|problem| match problem.formula {
        Formula::Argmax
        | Formula::Sampled { .. }
        | Formula::Lsh(_)
        | Formula::BlockSelection(_)
        | Formula::NativeSparse(_) => true,
        Formula::Softmax
        | Formula::Additive(_)
        | Formula::Multiplicative(_)
        | Formula::LocalPredictive { .. }
        | Formula::Sink(_)
        | Formula::Sigmoid(_)
        | Formula::Relative(_)
        | Formula::Forgetting(_)
        | Formula::Differential { .. }
        | Formula::Linear(_)
        | Formula::Retention(_)
        | Formula::Gated(_)
        | Formula::Nystrom { .. }
        | Formula::Linformer(_) => false,
    })
}

struct FlatGradients<'a> {
    gradients: &'a GradientsParams,
    values: Vec<f32>,
}

impl ModuleVisitor for FlatGradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            self.values.extend(gradient.into_data().iter::<f32>());
        }
    }
}

fn round_to_3_digits(error: f64) -> f64 {
    format!("{error:.2e}").parse().unwrap_or(error)
}

/// Norm of the difference relative to the norm of `expected`; NaN if lengths differ, the slices
/// are empty, or a value is not finite.
fn relative_error(actual: &[f32], expected: &[f32]) -> f64 {
    if actual.len() != expected.len() {
        return f64::NAN;
    }
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let pairs = actual.iter().zip(expected);
    let difference = norm(&mut pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(&mut expected.iter().map(|x| f64::from(*x)))
}

#[cfg(test)]
mod tests {
    use super::{relative_error, round_to_3_digits};

    #[test]
    fn relative_error_of_invalid_values_is_nan() {
        let error = relative_error(&[3.0, 4.4], &[3.0, 4.0]);
        assert_eq!(error, f64::from(4.4f32 - 4.0) / 5.0);
        assert!(relative_error(&[1.0], &[1.0, 2.0]).is_nan());
        assert!(relative_error(&[], &[]).is_nan());
        assert!(relative_error(&[f32::NAN], &[1.0]).is_nan());
        assert!(relative_error(&[0.0], &[0.0]).is_nan());
        assert_eq!(round_to_3_digits(1.23456e-7), 1.23e-7);
        assert!(round_to_3_digits(f64::NAN).is_nan());
    }
}
