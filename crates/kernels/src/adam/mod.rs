//! Adam, in one pass over each parameter.
//!
//! ```text
//! m = β1 m + (1 - β1) g      v = β2 v + (1 - β2) g²
//! x = x - rate · (m / (1 - β1^t)) / (sqrt(v / (1 - β2^t)) + ε)
//! ```
//!
//! Weight decay is added to the gradient, `g + decay · x` (`adam`), or taken from the
//! parameter, `x - rate · decay · x` (`adamw`). Kingma and Ba,
//! [Adam](https://arxiv.org/abs/1412.6980), 2014; Loshchilov and Hutter, [Decoupled Weight
//! Decay](https://arxiv.org/abs/1711.05101), 2017.
//!
//! Burn's own does the same in a dozen operations, each of which goes through memory. States
//! are Burn's, so that either goes on with the other's.

mod cpu;
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray and LibTorch; we carry them.
mod ops;

use burn::backend::Dispatch;
use burn::config::Config;
use burn::optim::{AdamState, AdaptiveMomentumState, LearningRate, ModuleOptimizer, Optimizer};
use burn::tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use self::ops::AdamStep;
use crate::hosts::location::location;

/// What weight decay is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdamKind {
    /// It is part of the gradient.
    Adam,
    /// It is taken from the parameter, whatever the gradient is.
    Adamw,
}

/// One step in numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// What was asked for, for LibTorch, which works the rest out itself.
    #[cfg(feature = "tch")]
    pub(crate) asked: crate::aten::Adam,
    /// Which step it is, counted from 1.
    #[cfg(feature = "tch")]
    pub(crate) time: usize,
    beta_1: f32,
    beta_2: f32,
    /// `1 - β1`, of which `f32` would lose digits.
    new_1: f32,
    /// `1 - β2`
    new_2: f32,
    /// How much of the parameter is added to its gradient.
    in_gradient: f32,
    /// What the parameter is multiplied by.
    stays: f32,
    /// What `m / (sqrt(v) + epsilon)` is multiplied by.
    rate: f32,
    /// Epsilon for a `v` that is not divided by `1 - β2^t`.
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
    /// What weight decay is taken from.
    pub kind: AdamKind,
    /// The share of the first moment that stays. Default: 0.9.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// The share of the second moment that stays. Default: 0.999.
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// What is added to the root of the second moment. Default: 1e-8.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// Default: none.
    #[config(default = 0.0)]
    pub weight_decay: f64,
}

impl AdamConfig {
    /// The optimizer of one parameter.
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
        for (name, number) in [
            ("epsilon", self.epsilon),
            ("weight_decay", self.weight_decay),
        ] {
            assert!(
                number >= 0.0 && number.is_finite(),
                "Adam: {name} must be at least 0, got {number}"
            );
        }
        Adam {
            config: self.clone(),
        }
    }

    /// The optimizer of a module.
    ///
    /// # Panics
    ///
    /// As [`build`](Self::build).
    pub fn init(&self) -> ModuleOptimizer {
        ModuleOptimizer::from(self.build())
    }
}

/// Adam or AdamW. Made by an [`AdamConfig`].
#[derive(Debug, Clone)]
pub struct Adam {
    config: AdamConfig,
}

impl Adam {
    /// The step that makes `time` of them.
    fn at(&self, rate: f64, time: usize) -> Step {
        let AdamConfig {
            kind,
            beta_1,
            beta_2,
            epsilon,
            weight_decay,
        } = self.config;
        let grown = |beta: f64| 1.0 - beta.powf(time as f64);
        let root = grown(beta_2).sqrt();
        let (in_gradient, decay) = match kind {
            AdamKind::Adam => (weight_decay, 0.0),
            AdamKind::Adamw => (0.0, weight_decay),
        };
        Step {
            #[cfg(feature = "tch")]
            asked: crate::aten::Adam {
                is_adamw: kind == AdamKind::Adamw,
                rate,
                betas: [beta_1, beta_2],
                decay: weight_decay,
                epsilon,
            },
            #[cfg(feature = "tch")]
            time,
            beta_1: beta_1 as f32,
            beta_2: beta_2 as f32,
            new_1: (1.0 - beta_1) as f32,
            new_2: (1.0 - beta_2) as f32,
            in_gradient: in_gradient as f32,
            stays: (1.0 - rate * decay) as f32,
            rate: (rate * root / grown(beta_1)) as f32,
            epsilon: (epsilon * root) as f32,
        }
    }
}

impl Optimizer for Adam {
    type State<const D: usize> = AdamState<D>;

    fn step<const D: usize>(
        &self,
        rate: LearningRate,
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
        let step = self.at(rate, time);
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
        let have_body = [&tensor, &gradient, &first, &second]
            .into_iter()
            .all(|tensor| tensor.dtype() == DType::F32 && location(tensor).is_some());
        let (tensor, first, second) = if have_body {
            let (tensor, first, second) = <Dispatch as AdamStep>::adam_step(
                tensor.into_dispatch(),
                gradient.into_dispatch(),
                first.into_dispatch(),
                second.into_dispatch(),
                step,
            );
            (
                Tensor::from_dispatch(tensor),
                Tensor::from_dispatch(first),
                Tensor::from_dispatch(second),
            )
        } else {
            composed(tensor, gradient, first, second, step)
        };
        let momentum = AdaptiveMomentumState::new(time, first, second);
        (tensor, Some(AdamState::new(momentum)))
    }

    fn to_device<const D: usize>(state: AdamState<D>, device: &Device) -> AdamState<D> {
        AdamState::new(state.momentum.to_device(device))
    }
}

/// The step by Burn's operations.
fn composed<const D: usize>(
    tensor: Tensor<D>,
    gradient: Tensor<D>,
    first: Tensor<D>,
    second: Tensor<D>,
    step: Step,
) -> (Tensor<D>, Tensor<D>, Tensor<D>) {
    let gradient = match step.in_gradient {
        0.0 => gradient,
        share => gradient + tensor.clone().mul_scalar(share),
    };
    let first = first.mul_scalar(step.beta_1) + gradient.clone().mul_scalar(step.new_1);
    let second = second.mul_scalar(step.beta_2) + gradient.square().mul_scalar(step.new_2);
    let slope = first.clone() / second.clone().sqrt().add_scalar(step.epsilon);
    let tensor = match step.stays {
        1.0 => tensor,
        stays => tensor.mul_scalar(stays),
    };
    (tensor - slope.mul_scalar(step.rate), first, second)
}
