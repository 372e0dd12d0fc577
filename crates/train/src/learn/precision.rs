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

/// What the loss is multiplied by. If it is dynamic: what was large enough so far, and small enough
/// not to overflow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scaling {
    state: ScaleState,
    is_dynamic: bool,
}

impl Scaling {
    /// That of a config, or of a run that is resumed.
    pub(crate) fn of(config: &Config, resumed: Option<ScaleState>) -> Self {
        let (scale, is_dynamic) = match config.loss_scale() {
            LossScale::None => (1.0, false),
            LossScale::Fixed(said) => (said.scale, false),
            LossScale::Dynamic => (FIRST_SCALE, true),
        };
        let good_steps = 0;
        let resumed = resumed.filter(|_| is_dynamic);
        Self {
            state: resumed.unwrap_or(ScaleState { scale, good_steps }),
            is_dynamic,
        }
    }

    pub(crate) fn scale(&self) -> f64 {
        self.state.scale
    }

    /// Whether gradients have to be looked at.
    pub(crate) fn watches(&self) -> bool {
        self.is_dynamic
    }

    pub(crate) fn state(&self) -> Option<ScaleState> {
        self.is_dynamic.then_some(self.state)
    }

    /// After a step whose gradients were finite or not. False if there is no smaller scale.
    pub(crate) fn watched(&mut self, is_finite: bool) -> bool {
        if !self.is_dynamic {
            return true;
        }
        let ScaleState { scale, good_steps } = &mut self.state;
        *good_steps += 1;
        if !is_finite || *good_steps == STEPS_TO_DOUBLE {
            *scale *= if is_finite { 2.0 } else { 0.5 };
            *good_steps = 0;
        }
        *scale >= LEAST_SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_scale_falls_at_once_and_rises_slowly() {
        let scaling = |scale, is_dynamic| {
            let good_steps = 0;
            let state = ScaleState { scale, good_steps };
            Scaling { state, is_dynamic }
        };
        let mut fixed = scaling(1024.0, false);
        assert!(fixed.watched(false));
        assert_eq!((fixed.scale(), fixed.state()), (1024.0, None));
        let mut scaling = scaling(8.0, true);
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
    }
}
