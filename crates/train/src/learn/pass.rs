//! One pass forward and back: the gradients of a step's batches, on one device or several.

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, Device, Tensor};
use zoo_models::ModelError;

use super::gradients;
use super::precision::rounded;
use crate::task::{Example, Task, TaskModel};

#[derive(Debug, Clone)]
pub(crate) struct Passes {
    /// The devices that learn together, with gradients; the weights are on the first.
    pub(crate) devices: Vec<Device>,
    /// The share of each answer's weight that goes to all others alike.
    pub(crate) smoothing: f64,
    /// The numbers that a pass computes in.
    pub(crate) precision: DType,
    /// The numbers that weights are kept in.
    pub(crate) kept: DType,
    /// Where all that is drawn comes from.
    pub(crate) seed: u64,
}

pub(crate) struct Passed {
    pub(crate) gradients: GradientsParams,
    /// The mean loss of everything that was to be said, `[1]`, where weights are.
    pub(crate) loss: Tensor<1>,
}

/// What every device knows of a step.
struct Step {
    number: usize,
    /// Batches of each device, but for a last one that may have fewer.
    passes: usize,
    /// How much is to be said in all of them.
    total: usize,
    /// What a loss is multiplied by on its way back.
    scale: f64,
    /// The dtype of this step's gradients.
    dtype: DType,
}

impl Passes {
    /// The gradients of the mean loss over all batches together, as if they were one: the random
    /// features of an attention are the same for all of them.
    pub(crate) fn make<T: Task>(
        &self,
        model: &T::Model,
        batches: &[Vec<T::Example>],
        step: usize,
        scale: f64,
    ) -> Result<Passed, ModelError> {
        let total = batches.iter().flatten().map(Example::predicted).sum();
        let step = Step {
            number: step,
            passes: batches.len().div_ceil(self.devices.len()),
            total,
            scale,
            // A sum of half-precision gradients would round every addend away in the end.
            dtype: match batches.len() {
                1 => self.kept,
                _ => DType::F32,
            },
        };
        for attention in model.attentions() {
            attention.redraw_features_before(step.number as u64);
        }
        let others = &self.devices[1..];
        let mut shares = batches.chunks(step.passes);
        let own = shares.next().unwrap_or_default();
        if others.is_empty() {
            let passed = self.on_device::<T>(model, own, 0, &step)?;
            return Ok(self.in_kept_dtype::<T>(model, passed, &step));
        }
        let passed = std::thread::scope(|scope| {
            let workers: Vec<_> = others
                .iter()
                .zip(shares)
                .enumerate()
                .map(|(at, (device, batches))| {
                    let step = &step;
                    scope.spawn(move || {
                        // Not a clone: it would share its running states with the model, and
                        // take them to its device.
                        let model = model.valid().fork(&device.clone().inner()).train();
                        self.on_device::<T>(&model, batches, 1 + at, step)
                    })
                })
                .collect();
            let own = self.on_device::<T>(model, own, 0, &step);
            let mut passed = vec![own];
            for worker in workers {
                passed.push(
                    worker
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                );
            }
            passed.into_iter().collect::<Result<Vec<_>, _>>()
        })?;
        let plain = self.devices[0].clone().inner();
        let mut sum = GradientsAccumulator::new();
        let mut losses = vec![];
        for passed in passed {
            sum.accumulate(model, passed.gradients.to_device(&plain, model));
            losses.push(passed.loss.to_device(&plain));
        }
        let passed = Passed {
            gradients: sum.grads(),
            loss: sum_of(losses, &plain),
        };
        Ok(self.in_kept_dtype::<T>(model, passed, &step))
    }

    fn in_kept_dtype<T: Task>(&self, model: &T::Model, passed: Passed, step: &Step) -> Passed {
        match step.dtype == self.kept {
            true => passed,
            false => Passed {
                gradients: gradients::unscaled(model, passed.gradients, 1.0, self.kept),
                ..passed
            },
        }
    }

    /// The part of the gradients that the batches of a device make, by its number.
    fn on_device<T: Task>(
        &self,
        model: &T::Model,
        batches: &[Vec<T::Example>],
        device: usize,
        step: &Step,
    ) -> Result<Passed, ModelError> {
        let drawn = seed(self.seed, step.number, device);
        let device = &self.devices[device];
        device.seed(drawn);
        let copy;
        let computing = match self.precision == self.kept {
            true => model,
            false => {
                copy = rounded(model, self.precision);
                &copy
            }
        };
        zoo_attention::with_seed(drawn, || self.passed::<T>(computing, batches, device, step))
    }

    fn passed<T: Task>(
        &self,
        computing: &T::Model,
        batches: &[Vec<T::Example>],
        device: &Device,
        step: &Step,
    ) -> Result<Passed, ModelError> {
        let mut sum = GradientsAccumulator::new();
        let mut losses = vec![];
        for batch in batches {
            let examples: Vec<&T::Example> = batch.iter().collect();
            let said: usize = batch.iter().map(Example::predicted).sum();
            let share = said as f64 / step.total.max(1) as f64;
            let loss = T::loss(computing, &examples, self.smoothing, device)? * share;
            losses.push(loss.clone().inner());
            let back = (loss * step.scale).backward();
            let of_batch = GradientsParams::from_grads(back, computing);
            let of_batch = match self.precision == step.dtype && step.scale == 1.0 {
                true => of_batch,
                false => gradients::unscaled(computing, of_batch, step.scale, step.dtype),
            };
            sum.accumulate(computing, of_batch);
        }
        Ok(Passed {
            gradients: sum.grads(),
            loss: sum_of(losses, &device.clone().inner()),
        })
    }
}

/// The sum of losses in their order; 0 for a device without batches.
fn sum_of(losses: Vec<Tensor<1>>, device: &Device) -> Tensor<1> {
    let sum = losses.into_iter().reduce(|sum, loss| sum + loss);
    sum.unwrap_or_else(|| Tensor::zeros([1], (device, DType::F32)))
}

/// What is drawn in a step, on a device: the same in every run of the seed.
fn seed(seed: u64, step: usize, device: usize) -> u64 {
    // The finaliser of SplitMix64, so that neighbours have nothing in common.
    let mut bits = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add((step as u64) << 16)
        .wrapping_add(device as u64);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

// The same device twice stands for two: what is computed where is the same code.
#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::tensor::distributed::{DistributedConfig, ReduceOperation};
    use burn_train::ExecutionStrategy;
    use zoo_attention::mechanisms::Performer;
    use zoo_attention::{FeatureMap, MechanismConfig};
    use zoo_data::LabelledIds;
    use zoo_models::weights::Weights;
    use zoo_models::{Classifier, ClassifierConfig};

    use super::super::gradients::norm;
    use super::*;
    use crate::task::Classification;

    fn example(at: usize) -> LabelledIds {
        LabelledIds {
            label: at % 3,
            ids: (0..1 + at as u32 % 5).map(|place| 4 + place % 3).collect(),
        }
    }

    fn flex() -> Device {
        let flex = "flex".parse().expect("a backend");
        let opened = zoo_backend::open(flex, zoo_spec::Dtype::F32);
        opened.expect("flex runs everywhere").device
    }

    fn passes(count: usize, smoothing: f64, precision: DType) -> Passes {
        Passes {
            devices: vec![flex().autodiff(); count],
            smoothing,
            precision,
            kept: DType::F32,
            seed: 1,
        }
    }

    fn passed(
        passes: &Passes,
        model: &Classifier,
        batches: &[Vec<LabelledIds>],
        step: usize,
    ) -> Passed {
        let passed = passes.make::<Classification<Classifier>>(model, batches, step, 1.0);
        passed.expect("a pass")
    }

    #[test]
    fn devices_together_make_the_gradient_of_one() {
        let model: Classifier = ClassifierConfig::new(8, 3, 8, 2, 1)
            .with_dropout(0.0)
            .init(&flex().autodiff());
        // Batches of several sizes: each weighs what it has.
        let batches: Vec<Vec<LabelledIds>> = vec![
            (0..5).map(example).collect(),
            (5..6).map(example).collect(),
            (6..9).map(example).collect(),
        ];
        let one = passed(&passes(1, 0.1, DType::F32), &model, &[batches.concat()], 1);
        for count in [1, 2, 3, 4] {
            let several = passed(&passes(count, 0.1, DType::F32), &model, &batches, 1);
            let [a, b] = [&one, &several].map(|passed| passed.loss.clone().into_scalar::<f32>());
            assert!((a - b).abs() < 1e-6, "{count} devices: {a} and {b}");
            let [a, b] = [&one, &several].map(|passed| {
                let norm = norm(&model, &passed.gradients).unwrap();
                norm.into_scalar::<f32>()
            });
            assert!((a - b).abs() < 1e-5 * a, "{count} devices: {a} and {b}");
            let id = model.head.weight.id;
            let [a, b] = [&one, &several].map(|passed| passed.gradients.get::<2>(id).unwrap());
            let worst = (a - b).abs().max().into_scalar::<f32>();
            assert!(worst < 1e-6, "{count} devices: {worst}");
        }
    }

    /// Features are redrawn for all copies of a model at once, and the model keeps them.
    #[test]
    fn features_are_redrawn_at_the_same_steps_on_several_devices() {
        let device = flex().autodiff();
        let performer = MechanismConfig::Performer(Performer {
            features: 4,
            seed: 2,
            redraw: Some(3),
        });
        let config = ClassifierConfig::new(8, 3, 8, 2, 2)
            .with_dropout(0.0)
            .with_attention(performer);
        let batches: Vec<Vec<LabelledIds>> = (0..4)
            .map(|at| (3 * at..3 * at + 3).map(example).collect())
            .collect();
        // The features after each step, and its loss.
        let initial = Weights::of::<Classifier>(&config.init(&device));
        let steps = |count: usize, precision: DType| {
            // The same weights each time, whatever other tests draw on this device meanwhile.
            let model: Classifier = initial.clone().apply(config.init(&device)).unwrap();
            let passes = passes(count, 0.0, precision);
            let step = |step: usize| {
                let loss = passed(&passes, &model, &batches, step).loss;
                let features = model.layers.iter().map(|layer| {
                    let features = layer.attention.params.features.as_ref().unwrap();
                    match features.features() {
                        FeatureMap::Drawn(directions) => {
                            directions.into_data().try_to_vec::<f32>().unwrap()
                        }
                        other => panic!("{other:?}"),
                    }
                });
                let features: Vec<Vec<f32>> = features.collect();
                (features, loss.into_scalar::<f32>())
            };
            (1..=7).map(step).collect::<Vec<_>>()
        };
        let one = steps(1, DType::F32);
        let redrawn: Vec<usize> = (1..7).filter(|at| one[*at].0 != one[at - 1].0).collect();
        assert_eq!(redrawn, [2, 5], "of the steps 3 and 6");
        for (count, precision, tolerance) in [
            (2, DType::F32, 1e-6),
            (3, DType::F32, 1e-6),
            (1, DType::BF16, 2e-2),
            (2, DType::BF16, 2e-2),
        ] {
            let several = steps(count, precision);
            for (step, (a, b)) in one.iter().zip(&several).enumerate() {
                let case = format!("{count} devices, {precision:?}, step {}", step + 1);
                assert_eq!(a.0, b.0, "{case}");
                let off = (a.1 - b.1).abs();
                assert!(off < tolerance, "{case}: off by {off}");
            }
        }
    }

    /// Why devices that learn together gather their gradients here, and not by Burn's own
    /// strategy (docs/known-issues.md). When it no longer panics, it can take over.
    #[test]
    #[should_panic(expected = "Distributed operations are not supported")]
    fn burn_does_not_gather_gradients_on_our_backends() {
        let config = DistributedConfig {
            all_reduce_op: ReduceOperation::Sum,
        };
        let _strategy = ExecutionStrategy::ddp(vec![flex(); 2], config);
    }
}
