//! Computing in fewer digits than weights are kept in.
//!
//! A pass is made by a copy of the model whose weights are rounded; its gradients go to the model
//! itself, whose weights have all their digits, so that small steps are not lost. In `f16` small
//! gradients would vanish: the loss is multiplied by a scale, and gradients divided by it again.
//! Micikevicius et al., [Mixed Precision Training](https://arxiv.org/abs/1710.03740), 2017.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Tensor};
use zoo_config::{Config, LossScale};
use zoo_spec::Dtype;

use crate::run::ScaleState;

/// Where a dynamic loss scale begins.
const FIRST_SCALE: f64 = 65_536.0;
/// Steps without an overflow after which it is doubled.
const STEPS_TO_DOUBLE: usize = 2000;
/// Below this it is of no use to go on.
const LEAST_SCALE: f64 = 1e-4;

/// The copy of a model that computes in these numbers.
pub(crate) fn rounded<M: Module>(model: &M, dtype: DType) -> M {
    model.valid().map(&mut Rounding(dtype)).train()
}

struct Rounding(DType);

impl ModuleMapper for Rounding {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.cast(self.0))
    }
}

/// The numbers that Burn calls so.
pub(crate) fn burn_dtype(dtype: Dtype) -> DType {
    match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
    }
}

/// What the loss is multiplied by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scaling {
    /// Always the same, 1 for not at all.
    Fixed(f64),
    /// What was large enough so far, and small enough not to overflow.
    Dynamic(ScaleState),
}

impl Scaling {
    pub(crate) fn of(config: &Config) -> Self {
        match config.loss_scale() {
            LossScale::None => Self::Fixed(1.0),
            LossScale::Fixed(said) => Self::Fixed(said.scale),
            LossScale::Dynamic => Self::Dynamic(ScaleState {
                scale: FIRST_SCALE,
                good_steps: 0,
            }),
        }
    }

    pub(crate) fn scale(&self) -> f64 {
        match self {
            Self::Fixed(scale) => *scale,
            Self::Dynamic(state) => state.scale,
        }
    }

    /// Whether gradients have to be looked at.
    pub(crate) fn watches(&self) -> bool {
        matches!(self, Self::Dynamic(_))
    }

    pub(crate) fn state(&self) -> Option<ScaleState> {
        match self {
            Self::Fixed(_) => None,
            Self::Dynamic(state) => Some(*state),
        }
    }

    pub(crate) fn resumed(self, state: Option<ScaleState>) -> Self {
        match (self, state) {
            (Self::Dynamic(_), Some(state)) => Self::Dynamic(state),
            (other, _) => other,
        }
    }

    /// After a step whose gradients were finite or not. False if there is no smaller scale.
    pub(crate) fn watched(&mut self, is_finite: bool) -> bool {
        let Self::Dynamic(state) = self else {
            return true;
        };
        if is_finite {
            state.good_steps += 1;
            if state.good_steps == STEPS_TO_DOUBLE {
                *state = ScaleState {
                    scale: state.scale * 2.0,
                    good_steps: 0,
                };
            }
        } else {
            *state = ScaleState {
                scale: state.scale / 2.0,
                good_steps: 0,
            };
        }
        state.scale >= LEAST_SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_scale_falls_at_once_and_rises_slowly() {
        let mut scaling = Scaling::Dynamic(ScaleState {
            scale: 8.0,
            good_steps: 0,
        });
        assert!(scaling.watched(false));
        assert_eq!(scaling.scale(), 4.0);
        for _ in 0..STEPS_TO_DOUBLE - 1 {
            assert!(scaling.watched(true));
        }
        assert_eq!(scaling.scale(), 4.0);
        scaling.watched(true);
        assert_eq!(scaling.scale(), 8.0);
        let mut falls = 0;
        while scaling.watched(false) {
            falls += 1;
        }
        assert_eq!(falls, 16, "down to the least scale");
        let mut fixed = Scaling::Fixed(1024.0);
        assert!(fixed.watched(false));
        assert_eq!((fixed.scale(), fixed.state()), (1024.0, None));
    }
}
