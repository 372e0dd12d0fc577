//! A model's results against those without any kernel of ours: by Burn's own operations on the
//! same device, with the same weights and the same batch.

use anyhow::{Context, Result};
use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use zoo_attention::with_seed;
use zoo_backend::Dtype;
use zoo_bench_core::case::{Fault, Pass};
use zoo_bench_core::model::Setup;
use zoo_bench_core::record::Outcome;
use zoo_kernels::{AdamConfig, AdamKind};
use zoo_models::without_kernels;
use zoo_oracle::{Formula, Parameter, Problem};
use zoo_spec::Mechanism;

use super::kinds::Kind;
use super::{LEARNING_RATE, Measurement, Sample, numbers};

/// The longest sequence that layers are compared at: the reference holds every weight.
const LONGEST: usize = 512;

/// The worst relative error and what was compared, or what is wrong.
type Compared = Result<(Option<f64>, String), Outcome>;

impl Measurement<'_> {
    /// Compares the results of a pass with the reference's.
    pub(super) fn against_reference<M: Kind>(&self, device: &Device) -> Result<Compared> {
        if chooses_keys(self.attention) {
            // A rounding error may change which key is chosen, and then everything.
            let why = "not compared with a reference: it chooses keys, and may choose others";
            return Ok(Ok((None, why.to_owned())));
        }
        let setup = self.setup_of_reference();
        // The same weights in every round.
        device.seed(0);
        let (model, sample) = Sample::<M>::new(&setup, self.attention, device)?;
        let errors = match self.setting.pass {
            Pass::Train => self.of_training(&model, &sample).to_vec(),
            Pass::Forward | Pass::Decode | Pass::Generate => {
                let computed = self.made_wrong(model.logits(&sample.batch));
                let expected = without_kernels(|| model.logits(&sample.batch));
                let distance = distance(&numbers(computed)?, &numbers(expected)?);
                vec![("logits", distance)]
            }
        };
        let allowed = match self.setting.opened.dtype {
            Dtype::F32 => 1e-3,
            Dtype::F16 => 2e-2,
            Dtype::Bf16 => 1e-1,
        };
        // A NaN is worse than anything.
        let key = |error: f64| if error.is_nan() { f64::INFINITY } else { error };
        let worst = errors.iter().copied();
        let worst = worst.max_by(|a, b| key(a.1).total_cmp(&key(b.1)));
        let worst = worst.context("nothing was compared")?;
        // Three digits: more mean nothing, and may not read back from JSON as they were.
        let (name, error, n) = (worst.0, rounded(worst.1), setup.n);
        if key(error) > allowed {
            let detail = format!(
                "{name} {error:.1e} away from the reference, Burn's own operations, at n = {n}; \
                 {allowed:.0e} is allowed"
            );
            let error = error.is_finite().then_some(error);
            return Ok(Err(Outcome::Wrong { error, detail }));
        }
        let names: Vec<&str> = errors.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        let compared = format!("{names} within {error:.1e} of the reference at n = {n}");
        Ok(Ok((Some(error), compared)))
    }

    /// The model that is compared: what is measured, on shorter sequences if they are long.
    fn setup_of_reference(&self) -> Setup {
        let is_long = self.setup.layers > 0 && self.setup.n > LONGEST;
        let shorter = is_long.then(|| self.setup.clone().at_length(LONGEST).ok());
        shorter.flatten().unwrap_or_else(|| self.setup.clone())
    }

    fn made_wrong<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        match self.setting.fault {
            // Finite, and near enough to look right.
            Some(Fault::Inexact) => tensor * 1.01,
            _ => tensor,
        }
    }

    /// The loss, its gradients, and the loss after a step along them.
    fn of_training<M: Kind>(&self, model: &M, sample: &Sample<M>) -> [(&'static str, f64); 3] {
        let results = |change: &dyn Fn(Tensor<1>) -> Tensor<1>| {
            let loss = change(sample.loss(model));
            let gradients = GradientsParams::from_grads(loss.backward(), model);
            let mut flat = Flat {
                gradients: &gradients,
                numbers: Vec::new(),
            };
            model.visit(&mut flat);
            let flat = flat.numbers;
            let mut optimizer = AdamConfig::new(AdamKind::Adam).init();
            let stepped = optimizer.step(LEARNING_RATE, model.clone(), gradients);
            let after = sample.loss(&stepped);
            let losses = [loss, after].map(|loss| loss.into_scalar::<f32>());
            (losses, flat)
        };
        // Both sample the same in training.
        let run = |change: &dyn Fn(Tensor<1>) -> Tensor<1>| with_seed(0, || results(change));
        let (losses, gradients) = run(&|loss| self.made_wrong(loss));
        let (expected_losses, expected) = without_kernels(|| run(&|loss| loss));
        let relative = |at: usize| {
            let [got, expected] = [losses[at], expected_losses[at]].map(f64::from);
            (got - expected).abs() / expected.abs()
        };
        [
            ("loss", relative(0)),
            ("gradients", distance(&gradients, &expected)),
            ("loss after a step", relative(1)),
        ]
    }
}

/// Whether a mechanism attends to keys that it chooses by their scores or hashes.
fn chooses_keys(mechanism: Mechanism) -> bool {
    let zeros = |parameter: Parameter| vec![0.0; parameter.count()];
    let config = mechanism.small_for_tests();
    let given = Problem::small_for(&config).given_to(&config, zeros);
    given.is_some_and(|given| match given.formula {
        Formula::Best | Formula::Sampled { .. } | Formula::Hashed(_) => true,
        Formula::Softmax
        | Formula::Additive(_)
        | Formula::Multiplicative(_)
        | Formula::Predicted { .. }
        | Formula::Features(_)
        | Formula::Retention(_) => false,
    })
}

/// Every gradient, parameter by parameter.
struct Flat<'a> {
    gradients: &'a GradientsParams,
    numbers: Vec<f32>,
}

impl ModuleVisitor for Flat<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            self.numbers.extend(gradient.into_data().iter::<f32>());
        }
    }
}

fn rounded(error: f64) -> f64 {
    format!("{error:.2e}").parse().unwrap_or(error)
}

/// The norm of the difference relative to that of what is expected; not a number if there are
/// not as many numbers, none, or one is not finite.
fn distance(got: &[f32], expected: &[f32]) -> f64 {
    if got.len() != expected.len() {
        return f64::NAN;
    }
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    let pairs = got.iter().zip(expected);
    let difference = norm(&mut pairs.map(|(got, expected)| f64::from(*got) - f64::from(*expected)));
    difference / norm(&mut expected.iter().map(|number| f64::from(*number)))
}

#[cfg(test)]
mod tests {
    use super::{distance, rounded};

    #[test]
    fn a_distance_is_relative_and_no_number_where_there_is_none() {
        assert_eq!(
            distance(&[3.0, 4.4], &[3.0, 4.0]),
            f64::from(4.4f32 - 4.0) / 5.0
        );
        assert!(distance(&[1.0], &[1.0, 2.0]).is_nan());
        assert!(distance(&[], &[]).is_nan());
        assert!(distance(&[f32::NAN], &[1.0]).is_nan());
        assert!(distance(&[0.0], &[0.0]).is_nan());
        assert_eq!(rounded(1.23456e-7), 1.23e-7);
        assert!(rounded(f64::NAN).is_nan());
    }
}
