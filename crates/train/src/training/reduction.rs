//! The sum of a step's gradients over its devices.
//!
//! Each device has weighted its batches by their share of the step's predicted tokens, so the
//! gradients of the step are a plain sum. On backends with collective operations it is Burn's
//! all-reduce; on the others the gradients are copied to the first device and added there.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::distributed::{CollectiveTensor, ReduceOperation, all_reduce};
use burn::tensor::{DType, Device, Tensor};
use zoo_backend::{OpenDevice, check_all_reduce};

use super::forward_backward::{StepGradients, sum_losses};
use crate::Result;
use crate::task::Note;

/// Sums tensors over devices.
pub(crate) trait Collective: fmt::Debug + Send + Sync {
    /// The sums of `tensors` over all devices, on this device.
    ///
    /// Every device takes part, each on its own thread, with tensors of the same sizes and dtypes in
    /// the same order.
    fn sum(&self, device_index: usize, tensors: Vec<Tensor<1>>) -> Vec<Tensor<1>>;
}

/// How gradients are summed over devices.
#[derive(Debug, Clone)]
pub(crate) enum Reduction {
    /// Copied to the first device and added there.
    Gather,
    /// Summed by a collective operation of all devices.
    AllReduce(Arc<dyn Collective>),
}

impl Reduction {
    /// The reduction for the devices of a run. `are_listed` if they are those of `backend.devices`
    /// in the config: a single listed device takes part in the same way as several.
    ///
    /// # Errors
    ///
    /// If the backend has an all-reduce that does not work on these devices.
    pub(crate) fn select(opened: &[OpenDevice], are_listed: bool, note: Note<'_>) -> Result<Self> {
        if !are_listed {
            return Ok(Self::Gather);
        }
        let names: Vec<String> = opened.iter().map(|it| it.id.to_string()).collect();
        let names = names.join(", ");
        if !opened[0].id.backend.has_all_reduce() {
            note(&format!(
                "data parallelism: {names}; gradients are summed on the first"
            ));
            return Ok(Self::Gather);
        }
        // First: if NCCL waits for a device that never answers, this is the last line.
        note(&format!(
            "data parallelism: {names}; gradients are summed by NCCL's all-reduce"
        ));
        check_all_reduce(opened)?;
        let devices = opened.iter().map(|it| it.device.clone()).collect();
        Ok(Self::AllReduce(Arc::new(BurnCollective { devices })))
    }

    /// The sum of the results of the first devices, on the first device. The other devices had no
    /// batches.
    pub(crate) fn sum<M: Module>(
        &self,
        model: &M,
        mut results: Vec<StepGradients>,
        devices: &[Device],
    ) -> StepGradients {
        let devices: Vec<Device> = devices.iter().map(|it| it.clone().inner()).collect();
        match self {
            Self::Gather if results.len() == 1 => results.remove(0),
            Self::Gather => gather(model, results, &devices[0]),
            Self::AllReduce(collective) => {
                sum_over_devices(&**collective, model, results, &devices)
            }
        }
    }
}

/// Burn's all-reduce.
#[derive(Debug)]
struct BurnCollective {
    devices: Vec<Device>,
}

impl Collective for BurnCollective {
    fn sum(&self, _: usize, tensors: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
        let sum = |tensor| all_reduce(tensor, ReduceOperation::Sum, self.devices.clone());
        let mut sums: Vec<CollectiveTensor<1>> = tensors.into_iter().map(sum).collect();
        // Waits for all collective operations of this device, which run in order.
        let last = sums.pop().map(CollectiveTensor::resolve);
        let mut sums: Vec<Tensor<1>> = sums
            .into_iter()
            // SAFETY: the last operation was resolved, so this one is complete.
            .map(|sum| unsafe { sum.assume_resolved() })
            .collect();
        sums.extend(last);
        sums
    }
}

fn gather<M: Module>(model: &M, results: Vec<StepGradients>, device: &Device) -> StepGradients {
    let mut sum = GradientsAccumulator::new();
    let mut losses = vec![];
    for result in results {
        sum.accumulate(model, result.gradients.to_device(device, model));
        losses.push(result.loss.to_device(device));
    }
    StepGradients {
        gradients: sum.grads(),
        loss: sum_losses(losses, device),
    }
}

/// Sums gradients and losses with a collective operation. A parameter that has no gradient on a
/// device counts as zero there; one without a gradient on any device remains without.
fn sum_over_devices<M: Module>(
    collective: &dyn Collective,
    model: &M,
    mut results: Vec<StepGradients>,
    devices: &[Device],
) -> StepGradients {
    let without_batches = devices[results.len()..].iter();
    results.extend(without_batches.map(|device| StepGradients {
        gradients: GradientsParams::new(),
        loss: sum_losses(vec![], device),
    }));
    let mut dtypes = GradientDTypes {
        results: &results,
        dtypes: HashMap::new(),
    };
    model.visit(&mut dtypes);
    let dtypes = dtypes.dtypes;
    let flat = results.into_iter().zip(devices).map(|(result, device)| {
        let mut flatten = Flatten {
            gradients: result.gradients,
            dtypes: &dtypes,
            device,
            flat: vec![],
        };
        model.visit(&mut flatten);
        flatten.flat.push(result.loss.cast(DType::F32));
        flatten.flat
    });
    let mut flat = flat.collect::<Vec<_>>().into_iter();
    let first = flat.next().unwrap_or_default();
    let mut sums = std::thread::scope(|scope| {
        for (index, tensors) in flat.enumerate() {
            // Only the first device has an optimizer, so the sums of the others are dropped.
            scope.spawn(move || drop(collective.sum(1 + index, tensors)));
        }
        // On this thread: collective operations are synchronised with the stream of their thread,
        // which the optimizer continues.
        collective.sum(0, first)
    });
    let loss = sums.pop().expect("the loss is last");
    let mut unflatten = Unflatten {
        sums: sums.into_iter(),
        dtypes: &dtypes,
        gradients: GradientsParams::new(),
    };
    model.visit(&mut unflatten);
    StepGradients {
        gradients: unflatten.gradients,
        loss,
    }
}

/// Finds the parameters with a gradient on any device, and its dtype, which is the same on all.
struct GradientDTypes<'a> {
    results: &'a [StepGradients],
    dtypes: HashMap<ParamId, DType>,
}

impl ModuleVisitor for GradientDTypes<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let mut results = self.results.iter();
        let gradient = results.find_map(|result| result.gradients.get::<D>(param.id));
        if let Some(gradient) = gradient {
            self.dtypes.insert(param.id, gradient.dtype());
        }
    }
}

/// Lists the gradients of one device in the order of the model's parameters.
struct Flatten<'a> {
    gradients: GradientsParams,
    dtypes: &'a HashMap<ParamId, DType>,
    device: &'a Device,
    flat: Vec<Tensor<1>>,
}

impl ModuleVisitor for Flatten<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(dtype) = self.dtypes.get(&param.id) else {
            return;
        };
        let size = param.shape().num_elements();
        self.flat.push(match self.gradients.remove::<D>(param.id) {
            Some(gradient) => gradient.reshape([size]),
            None => Tensor::zeros([size], (self.device, *dtype)),
        });
    }
}

/// The reverse of [`Flatten`].
struct Unflatten<'a> {
    sums: std::vec::IntoIter<Tensor<1>>,
    dtypes: &'a HashMap<ParamId, DType>,
    gradients: GradientsParams,
}

impl ModuleVisitor for Unflatten<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.dtypes.contains_key(&param.id) {
            return;
        }
        let sum = self.sums.next().expect("a sum of each gradient");
        self.gradients
            .register(param.id, sum.reshape::<D, _>(param.shape()));
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use std::sync::{Barrier, Mutex, PoisonError};

    use zoo_models::{Classifier, ClassifierConfig};

    use super::*;

    /// An all-reduce in host memory, for several threads of one device.
    #[derive(Debug)]
    struct HostCollective {
        barrier: Barrier,
        /// The tensors of each device.
        tensors: Mutex<Vec<Vec<Tensor<1>>>>,
    }

    impl Reduction {
        pub(crate) fn on_host(devices: usize) -> Self {
            Self::AllReduce(Arc::new(HostCollective {
                barrier: Barrier::new(devices),
                tensors: Mutex::new(vec![vec![]; devices]),
            }))
        }
    }

    impl Collective for HostCollective {
        fn sum(&self, device_index: usize, tensors: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
            let lock = || self.tensors.lock().unwrap_or_else(PoisonError::into_inner);
            lock()[device_index] = tensors;
            self.barrier.wait();
            let all = lock().clone();
            // Before the next sum replaces them.
            self.barrier.wait();
            let count = all[0].len();
            assert!(all.iter().all(|tensors| tensors.len() == count));
            let sum = |index: usize| {
                let of_devices = all.iter().map(|tensors| tensors[index].clone());
                of_devices.reduce(|sum, tensor| {
                    assert_eq!(sum.shape(), tensor.shape());
                    assert_eq!(sum.dtype(), tensor.dtype());
                    sum + tensor
                })
            };
            (0..count).filter_map(sum).collect()
        }
    }

    fn flex() -> OpenDevice {
        let flex = "flex".parse().expect("a backend");
        zoo_backend::open(flex, zoo_spec::Dtype::F32).expect("flex is available")
    }

    /// Gradients of all parameters with this value.
    fn gradients(model: &Classifier, value: f64) -> GradientsParams {
        struct Fill(f64, GradientsParams);
        impl ModuleVisitor for Fill {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let gradient = param.val().inner().zeros_like() + self.0;
                self.1.register(param.id, gradient);
            }
        }
        let mut fill = Fill(value, GradientsParams::new());
        model.visit(&mut fill);
        fill.1
    }

    #[test]
    fn missing_gradients_are_zeros_unless_no_device_has_them() {
        let device = flex().device;
        let model: Classifier =
            ClassifierConfig::new(8, 3, 8, 2, 1).init(&device.clone().autodiff());
        let [weight, bias] = [
            model.head.weight.id,
            model.head.bias.as_ref().expect("a bias").id,
        ];
        let result = |value: f64| StepGradients {
            gradients: gradients(&model, value),
            loss: Tensor::full([1], value, &device),
        };
        let mut results = vec![result(2.0), result(3.0)];
        results[0].gradients.remove::<2>(weight);
        for result in &mut results {
            result.gradients.remove::<1>(bias);
        }
        let count = results[1].gradients.len();
        // The third device has no batches.
        let devices = vec![device.clone().autodiff(); 3];
        let sum = Reduction::on_host(3).sum(&model, results, &devices);
        assert_eq!(sum.loss.into_scalar::<f32>(), 5.0);
        assert_eq!(sum.gradients.len(), count);
        let expect = |gradient: Tensor<2>, expected: f32| {
            let [rows, columns] = gradient.dims();
            let values: Vec<f32> = gradient.into_data().try_to_vec().expect("f32");
            assert_eq!(values, vec![expected; rows * columns]);
        };
        expect(sum.gradients.get::<2>(weight).expect("on one device"), 3.0);
        let embedding = model.embedding.weight.id;
        expect(sum.gradients.get::<2>(embedding).expect("on two"), 5.0);
        assert!(sum.gradients.get::<1>(bias).is_none());
    }

    #[test]
    fn backends_without_all_reduce_gather() {
        let mut notes = vec![];
        let opened = [flex()];
        for are_listed in [false, true] {
            let note = &mut |line: &str| notes.push(line.to_owned());
            let reduction = Reduction::select(&opened, are_listed, note).expect("no all-reduce");
            assert!(matches!(reduction, Reduction::Gather), "{reduction:?}");
        }
        assert_eq!(
            notes,
            ["data parallelism: flex; gradients are summed on the first"]
        );
    }
}
