//! Forward and backward pass: the gradients of a step's batches, on one or several devices.

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, Device, Tensor};
use zoo_models::ModelError;

use super::gradients::unscale;
use super::precision::cast_params;
use super::reduction::Reduction;
use crate::task::{Example, Task, TaskModel};

#[derive(Debug, Clone)]
pub(crate) struct ForwardBackward {
    /// Data-parallel devices with autodiff; the parameters are on the first.
    pub(crate) devices: Vec<Device>,
    pub(crate) reduction: Reduction,
    pub(crate) label_smoothing: f64,
    pub(crate) compute_dtype: DType,
    pub(crate) param_dtype: DType,
    pub(crate) seed: u64,
}

pub(crate) struct StepGradients {
    pub(crate) gradients: GradientsParams,
    /// The mean loss over all predictions, `[1]`, on the parameters' device.
    pub(crate) loss: Tensor<1>,
}

struct StepContext {
    step: usize,
    predictions: usize,
    loss_scale: f64,
    grad_dtype: DType,
}

impl ForwardBackward {
    /// Computes the gradients of the mean loss over all batches, as for one large batch: they share
    /// the random features of an attention.
    pub(crate) fn compute<T: Task>(
        &self,
        model: &T::Model,
        batches: &[Vec<T::Example>],
        step: usize,
        loss_scale: f64,
    ) -> Result<StepGradients, ModelError> {
        let context = StepContext {
            step,
            predictions: batches.iter().flatten().map(Example::predicted).sum(),
            loss_scale,
            // Small gradients would be lost in a half-precision sum.
            grad_dtype: match batches.len() {
                1 => self.param_dtype,
                _ => DType::F32,
            },
        };
        for attention in model.attentions() {
            attention.resample_features_before(step as u64);
        }
        let batches_per_device = batches.len().div_ceil(self.devices.len());
        let mut chunks = batches.chunks(batches_per_device);
        let first_chunk = chunks.next().unwrap_or_default();
        let results = std::thread::scope(|scope| {
            let workers: Vec<_> = self.devices[1..]
                .iter()
                .zip(chunks)
                .enumerate()
                .map(|(index, (device, batches))| {
                    let context = &context;
                    scope.spawn(move || {
                        // Not a clone: it would share its running states with the model, and
                        // move them to its device.
                        let model = model.valid().fork(&device.clone().inner()).train();
                        self.on_device::<T>(&model, batches, 1 + index, context)
                    })
                })
                .collect();
            let mut results = vec![self.on_device::<T>(model, first_chunk, 0, &context)];
            for worker in workers {
                let result = worker.join();
                results.push(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results.into_iter().collect::<Result<Vec<_>, _>>()
        })?;
        let result = self.reduction.sum(model, results, &self.devices);
        Ok(self.to_param_dtype::<T>(model, result, &context))
    }

    fn to_param_dtype<T: Task>(
        &self,
        model: &T::Model,
        result: StepGradients,
        context: &StepContext,
    ) -> StepGradients {
        if context.grad_dtype == self.param_dtype {
            return result;
        }
        StepGradients {
            gradients: unscale(model, result.gradients, 1.0, self.param_dtype),
            ..result
        }
    }

    fn on_device<T: Task>(
        &self,
        model: &T::Model,
        batches: &[Vec<T::Example>],
        device_index: usize,
        context: &StepContext,
    ) -> Result<StepGradients, ModelError> {
        let seed = step_seed(self.seed, context.step, device_index);
        let device = &self.devices[device_index];
        device.seed(seed);
        let copy;
        let model = if self.compute_dtype == self.param_dtype {
            model
        } else {
            copy = cast_params(model, self.compute_dtype);
            &copy
        };
        let loss_scale = context.loss_scale;
        let must_unscale = self.compute_dtype != context.grad_dtype || loss_scale != 1.0;
        zoo_attention::with_seed(seed, || {
            let mut sum = GradientsAccumulator::new();
            let mut losses = vec![];
            for batch in batches {
                let examples: Vec<&T::Example> = batch.iter().collect();
                let predictions: usize = batch.iter().map(Example::predicted).sum();
                let weight = predictions as f64 / context.predictions.max(1) as f64;
                let loss = T::loss(model, &examples, self.label_smoothing, device)? * weight;
                losses.push(loss.clone().inner());
                let grads = (loss * loss_scale).backward();
                let mut gradients = GradientsParams::from_grads(grads, model);
                if must_unscale {
                    gradients = unscale(model, gradients, loss_scale, context.grad_dtype);
                }
                sum.accumulate(model, gradients);
            }
            Ok(StepGradients {
                gradients: sum.grads(),
                loss: sum_losses(losses, &device.clone().inner()),
            })
        })
    }
}

/// The sum of losses in their order; 0 for a device without batches.
pub(super) fn sum_losses(losses: Vec<Tensor<1>>, device: &Device) -> Tensor<1> {
    let sum = losses.into_iter().reduce(|sum, loss| sum + loss);
    sum.unwrap_or_else(|| Tensor::zeros([1], (device, DType::F32)))
}

fn step_seed(seed: u64, step: usize, device: usize) -> u64 {
    // The finaliser of SplitMix64 decorrelates neighbouring steps.
    let mut bits = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add((step as u64) << 16)
        .wrapping_add(device as u64);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

// One device listed several times stands for several: the code is the same.
#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::module::{ModuleVisitor, Param};
    use burn::tensor::distributed::{DistributedConfig, DistributedContext, ReduceOperation};
    use zoo_attention::MechanismConfig;
    use zoo_attention::mechanisms::Performer;
    use zoo_attention::scan::FeatureMap;
    use zoo_data::LabelledIds;
    use zoo_models::weights::Weights;
    use zoo_models::{Classifier, ClassifierConfig};

    use super::super::gradients::grad_norm;
    use super::*;
    use crate::task::Classification;

    fn example(index: usize) -> LabelledIds {
        LabelledIds {
            label: index % 3,
            ids: (0..1 + index as u32 % 5).map(|i| 4 + i % 3).collect(),
        }
    }

    fn flex() -> Device {
        let flex = "flex".parse().expect("a backend");
        let opened = zoo_backend::open(flex, zoo_spec::Dtype::F32);
        opened.expect("flex is available").device
    }

    fn on_devices(count: usize, label_smoothing: f64, compute_dtype: DType) -> ForwardBackward {
        ForwardBackward {
            devices: vec![flex().autodiff(); count],
            reduction: Reduction::Gather,
            label_smoothing,
            compute_dtype,
            param_dtype: DType::F32,
            seed: 1,
        }
    }

    fn compute(
        pass: &ForwardBackward,
        model: &Classifier,
        batches: &[Vec<LabelledIds>],
        step: usize,
    ) -> StepGradients {
        let result = pass.compute::<Classification<Classifier>>(model, batches, step, 1.0);
        result.expect("gradients")
    }

    #[test]
    fn data_parallel_gradients_equal_those_of_one_device() {
        let model: Classifier = ClassifierConfig::new(8, 3, 8, 2, 1)
            .with_dropout(0.0)
            .init(&flex().autodiff());
        // Batches of several sizes, weighted by their number of predictions.
        let batches: Vec<Vec<LabelledIds>> = vec![
            (0..5).map(example).collect(),
            (5..6).map(example).collect(),
            (6..9).map(example).collect(),
        ];
        let on = |count: usize| on_devices(count, 0.1, DType::F32);
        let one = compute(&on(1), &model, &[batches.concat()], 1);
        for count in [1, 2, 3, 4] {
            let several = compute(&on(count), &model, &batches, 1);
            let [a, b] = [&one, &several].map(|it| it.loss.clone().into_scalar::<f32>());
            assert!((a - b).abs() < 1e-6, "{count} devices: {a} and {b}");
            let [a, b] = [&one, &several].map(|it| {
                let norm = grad_norm(&model, &it.gradients).unwrap();
                norm.into_scalar::<f32>()
            });
            assert!((a - b).abs() < 1e-5 * a, "{count} devices: {a} and {b}");
            let id = model.head.weight.id;
            let [a, b] = [&one, &several].map(|it| it.gradients.get::<2>(id).unwrap());
            let max_diff = (a - b).abs().max().into_scalar::<f32>();
            assert!(max_diff < 1e-6, "{count} devices: {max_diff}");
        }
    }

    #[test]
    fn all_reduce_equals_gathering() {
        let model: Classifier = ClassifierConfig::new(8, 3, 8, 2, 1)
            .with_dropout(0.0)
            .init(&flex().autodiff());
        let batches: Vec<Vec<LabelledIds>> = vec![
            (0..5).map(example).collect(),
            (5..6).map(example).collect(),
            (6..9).map(example).collect(),
        ];
        for precision in [DType::F32, DType::BF16] {
            // With four devices, the last has no batches.
            for count in [1, 2, 3, 4] {
                let gathered = on_devices(count, 0.1, precision);
                let reduced = ForwardBackward {
                    reduction: Reduction::on_host(count),
                    ..gathered.clone()
                };
                // Twice, as in a run.
                for step in [1, 2] {
                    let [a, b] =
                        [&gathered, &reduced].map(|pass| compute(pass, &model, &batches, step));
                    let case = format!("{count} devices, {precision:?}, step {step}");
                    assert_eq!(a.gradients.len(), b.gradients.len(), "{case}");
                    let [loss_a, loss_b] = [a.loss, b.loss].map(|it| it.into_scalar::<f32>());
                    assert!((loss_a - loss_b).abs() < 1e-6, "{case}: {loss_a}, {loss_b}");
                    let mut compare = Compare(&a.gradients, &b.gradients, 0);
                    model.visit(&mut compare);
                    assert_eq!(compare.2, a.gradients.len(), "{case}");
                }
            }
        }
    }

    /// Compares all gradients and counts them.
    struct Compare<'a>(&'a GradientsParams, &'a GradientsParams, usize);

    impl ModuleVisitor for Compare<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let [Some(a), Some(b)] = [self.0, self.1].map(|it| it.get::<D>(param.id)) else {
                return;
            };
            assert_eq!(a.dtype(), b.dtype());
            let max_diff = (a - b).abs().max().into_scalar::<f32>();
            assert!(max_diff < 1e-6, "{:?}: {max_diff}", param.id);
            self.2 += 1;
        }
    }

    #[test]
    fn random_features_are_resampled_at_the_same_steps_on_several_devices() {
        let device = flex().autodiff();
        let performer = MechanismConfig::Performer(Performer {
            n_features: 4,
            seed: 2,
            resample: Some(3),
        });
        let config = ClassifierConfig::new(8, 3, 8, 2, 2)
            .with_dropout(0.0)
            .with_attention(performer);
        let batches: Vec<Vec<LabelledIds>> = (0..4)
            .map(|i| (3 * i..3 * i + 3).map(example).collect())
            .collect();
        // The features after each step, and its loss.
        let initial = Weights::from_model::<Classifier>(&config.init(&device));
        let steps = |count: usize, precision: DType| {
            // The same weights each time, whatever other tests sample on this device meanwhile.
            let model: Classifier = initial.clone().apply(config.init(&device)).unwrap();
            let pass = on_devices(count, 0.0, precision);
            let step = |step: usize| {
                let loss = compute(&pass, &model, &batches, step).loss;
                let features = model.layers.iter().map(|layer| {
                    let features = layer.attention.params.features.as_ref().unwrap();
                    match features.features() {
                        FeatureMap::Directions(directions) => {
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
        let resampled: Vec<usize> = (1..7).filter(|i| one[*i].0 != one[i - 1].0).collect();
        assert_eq!(resampled, [2, 5], "steps 3 and 6");
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
                let diff = (a.1 - b.1).abs();
                assert!(diff < tolerance, "{case}: {diff}");
            }
        }
    }

    /// Why data parallelism is implemented here and does not use Burn's strategy
    /// (docs/known-issues.md). When this no longer panics, Burn's can be used.
    #[test]
    #[should_panic(expected = "Distributed operations are not supported")]
    fn burn_has_no_all_reduce_on_our_backends() {
        let config = DistributedConfig {
            all_reduce_op: ReduceOperation::Sum,
        };
        let _context = DistributedContext::init(vec![flex(); 2], config);
    }
}
