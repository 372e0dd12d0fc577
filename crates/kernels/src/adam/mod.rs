//! Adam and AdamW in one pass over each parameter.
//!
//! ```text
//! m = β1 m + (1 - β1) g      v = β2 v + (1 - β2) g²
//! x = x - rate · (m / (1 - β1^t)) / (sqrt(v / (1 - β2^t)) + ε)
//! ```
//!
//! Weight decay is added to the gradient, `g + decay · x` (`adam`), or decoupled,
//! `x - rate · decay · x` (`adamw`). Kingma and Ba,
//! [Adam](https://arxiv.org/abs/1412.6980), 2014; Loshchilov and Hutter, [Decoupled Weight
//! Decay](https://arxiv.org/abs/1711.05101), 2017.
//!
//! Burn's Adam does the same in a dozen operations, each of which reads and writes memory. The
//! optimizer state is Burn's, so the two are interchangeable.

mod cpu;
#[allow(deprecated)] // Burn 0.22 is the last release with NdArray and LibTorch
mod ops;

use burn::backend::Dispatch;
use burn::config::Config;
use burn::optim::{AdamState, AdaptiveMomentumState, LearningRate, ModuleOptimizer, Optimizer};
use burn::tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use self::ops::AdamStep;
use crate::hosts::location::location;

/// How weight decay is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdamKind {
    /// L2 regularisation: added to the gradient.
    Adam,
    /// Decoupled: subtracted from the parameter.
    Adamw,
}

/// The coefficients of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Options for LibTorch, which computes the coefficients itself.
    #[cfg(feature = "tch")]
    pub(crate) options: crate::aten::AdamOptions,
    /// The number of the step, starting at 1.
    #[cfg(feature = "tch")]
    pub(crate) time: usize,
    beta_1: f32,
    beta_2: f32,
    /// Computed in `f64`: the subtraction in `f32` would lose digits.
    one_minus_beta_1: f32,
    one_minus_beta_2: f32,
    /// Weight decay that is added to the gradient.
    l2_decay: f32,
    /// Factor of the parameter: 1 minus decoupled weight decay.
    decay_factor: f32,
    /// Learning rate with bias correction, the factor of `m / (sqrt(v) + epsilon)`.
    lr: f32,
    /// Epsilon scaled for a `v` without bias correction.
    epsilon: f32,
}

/// Configuration of [`Adam`].
///
/// ```
/// # use zoo_kernels::{AdamConfig, AdamKind};
/// let optimizer = AdamConfig::new(AdamKind::Adamw).with_weight_decay(0.01).init();
/// ```
#[derive(Config, Debug)]
pub struct AdamConfig {
    /// How weight decay is applied.
    pub kind: AdamKind,
    /// Decay rate of the first moment. Default: 0.9.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Decay rate of the second moment. Default: 0.999.
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// Added to the square root of the second moment. Default: 1e-8.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// Weight decay. Default: 0.
    #[config(default = 0.0)]
    pub weight_decay: f64,
}

impl AdamConfig {
    /// Creates the optimizer of a single parameter.
    ///
    /// # Panics
    ///
    /// If a beta is not at least 0 and below 1, or epsilon or the weight decay is negative.
    pub fn build(&self) -> Adam {
        for (name, beta) in [("beta_1", self.beta_1), ("beta_2", self.beta_2)] {
            assert!(
                (0.0..1.0).contains(&beta),
                "Adam: {name} must be at least 0 and below 1, got {beta}"
            );
        }
        for (name, value) in [
            ("epsilon", self.epsilon),
            ("weight_decay", self.weight_decay),
        ] {
            assert!(
                value >= 0.0 && value.is_finite(),
                "Adam: {name} must be at least 0, got {value}"
            );
        }
        Adam {
            config: self.clone(),
        }
    }

    /// Creates the optimizer of a module.
    ///
    /// # Panics
    ///
    /// As [`build`](Self::build).
    pub fn init(&self) -> ModuleOptimizer {
        ModuleOptimizer::from(self.build())
    }
}

/// Adam or AdamW, created by an [`AdamConfig`].
#[derive(Debug, Clone)]
pub struct Adam {
    config: AdamConfig,
}

impl Adam {
    /// Coefficients of step `time`.
    fn coefficients(&self, lr: f64, time: usize) -> Step {
        let AdamConfig {
            kind,
            beta_1,
            beta_2,
            epsilon,
            weight_decay,
        } = self.config;
        let bias_correction = |beta: f64| 1.0 - beta.powf(time as f64);
        let root = bias_correction(beta_2).sqrt();
        let (l2_decay, decay) = match kind {
            AdamKind::Adam => (weight_decay, 0.0),
            AdamKind::Adamw => (0.0, weight_decay),
        };
        Step {
            #[cfg(feature = "tch")]
            options: crate::aten::AdamOptions {
                is_adamw: kind == AdamKind::Adamw,
                lr,
                betas: [beta_1, beta_2],
                weight_decay,
                epsilon,
            },
            #[cfg(feature = "tch")]
            time,
            beta_1: beta_1 as f32,
            beta_2: beta_2 as f32,
            one_minus_beta_1: (1.0 - beta_1) as f32,
            one_minus_beta_2: (1.0 - beta_2) as f32,
            l2_decay: l2_decay as f32,
            decay_factor: (1.0 - lr * decay) as f32,
            lr: (lr * root / bias_correction(beta_1)) as f32,
            epsilon: (epsilon * root) as f32,
        }
    }
}

impl Optimizer for Adam {
    type State<const D: usize> = AdamState<D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<AdamState<D>>,
    ) -> (Tensor<D>, Option<AdamState<D>>) {
        let (time, first, second) = match state {
            Some(AdamState { momentum }) => {
                (momentum.time + 1, momentum.moment_1, momentum.moment_2)
            }
            None => (1, tensor.zeros_like(), tensor.zeros_like()),
        };
        let step = self.coefficients(lr, time);
        let (device, dims) = (tensor.device(), tensor.dims());
        let others = [
            ("gradient", &gradient),
            ("first moment", &first),
            ("second moment", &second),
        ];
        for (name, other) in others {
            assert!(
                other.device() == device && other.dims() == dims,
                "Adam: the {name} must be {dims:?} on {device:?} like its parameter, got {:?} on \
                 {:?}",
                other.dims(),
                other.device()
            );
        }
        let has_kernel = [&tensor, &gradient, &first, &second]
            .into_iter()
            .all(|tensor| tensor.dtype() == DType::F32 && location(tensor).is_some());
        let (tensor, first, second) = if has_kernel {
            let tensors = [tensor, gradient, first, second].map(Tensor::into_dispatch);
            let [tensor, gradient, first, second] = tensors;
            let (tensor, first, second) =
                <Dispatch as AdamStep>::adam_step(tensor, gradient, first, second, step);
            [tensor, first, second].map(Tensor::from_dispatch).into()
        } else {
            step_with_burn(tensor, gradient, first, second, step)
        };
        let momentum = AdaptiveMomentumState::new(time, first, second);
        (tensor, Some(AdamState::new(momentum)))
    }

    fn to_device<const D: usize>(state: AdamState<D>, device: &Device) -> AdamState<D> {
        AdamState::new(state.momentum.to_device(device))
    }
}

/// The step with Burn's operations.
fn step_with_burn<const D: usize>(
    tensor: Tensor<D>,
    gradient: Tensor<D>,
    first: Tensor<D>,
    second: Tensor<D>,
    step: Step,
) -> (Tensor<D>, Tensor<D>, Tensor<D>) {
    let gradient = match step.l2_decay {
        0.0 => gradient,
        decay => gradient + tensor.clone().mul_scalar(decay),
    };
    let first = first.mul_scalar(step.beta_1) + gradient.clone().mul_scalar(step.one_minus_beta_1);
    let second =
        second.mul_scalar(step.beta_2) + gradient.square().mul_scalar(step.one_minus_beta_2);
    let update = first.clone() / second.clone().sqrt().add_scalar(step.epsilon);
    let tensor = match step.decay_factor {
        1.0 => tensor,
        factor => tensor.mul_scalar(factor),
    };
    (tensor - update.mul_scalar(step.lr), first, second)
}
