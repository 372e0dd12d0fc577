//! Mixed precision: forward and backward passes in a lower precision than the parameters.
//!
//! A pass uses a copy of the model with parameters cast to the compute dtype. Its gradients update
//! the full-precision parameters, so that small updates are not lost. In `f16` small gradients
//! would underflow: the loss is multiplied by a scale, and the gradients are divided by it.
//! Micikevicius et al., [Mixed Precision Training](https://arxiv.org/abs/1710.03740), 2017.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Tensor};
use zoo_config::{Config, LossScale};
use zoo_spec::{Backend, Dtype};

use crate::run::ScaleState;

const INITIAL_SCALE: f64 = 65_536.0;
/// Steps without overflow after which the scale is doubled.
const GROWTH_INTERVAL: usize = 2000;
/// Training is aborted below this scale.
const MIN_SCALE: f64 = 1e-4;

pub(crate) fn cast_params<M: Module>(model: &M, dtype: DType) -> M {
    model.valid().map(&mut CastParams(dtype)).train()
}

struct CastParams(DType);

impl ModuleMapper for CastParams {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.cast(self.0))
    }
}

pub(crate) fn burn_dtype(dtype: Dtype) -> DType {
    match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
    }
}

/// Half-precision matmul instructions of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HalfInstructions {
    f16: bool,
    bf16: bool,
}

impl HalfInstructions {
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        return Self {
            f16: is_x86_feature_detected!("avx512fp16"),
            bf16: is_x86_feature_detected!("avx512bf16"),
        };
        #[cfg(not(target_arch = "x86_64"))]
        Self {
            f16: false,
            bf16: false,
        }
    }
}

/// Why a step is slower in this precision than in `f32`, if it is.
pub(crate) fn slow_precision(
    backend: Backend,
    precision: Dtype,
    instructions: HalfInstructions,
) -> Option<&'static str> {
    let has_instructions = match precision {
        Dtype::F32 => return None,
        Dtype::F16 => instructions.f16,
        Dtype::Bf16 => instructions.bf16,
    };
    match backend {
        Backend::Flex | Backend::Ndarray => Some("it converts tensors to f32 and back"),
        Backend::TchCpu if !has_instructions => {
            Some("this processor has no instructions for this type")
        }
        // `tch` has been resolved.
        Backend::Tch | Backend::TchCpu | Backend::TchCuda => None,
        Backend::Wgpu | Backend::Vulkan | Backend::Cuda => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LossScaler {
    state: ScaleState,
    /// Gradients must then be checked for overflow.
    pub(crate) is_dynamic: bool,
}

impl LossScaler {
    /// The scaler of a config. A dynamic scale continues from a resumed state.
    pub(crate) fn new(config: &Config, resumed: Option<ScaleState>) -> Self {
        let (scale, is_dynamic) = match config.loss_scale() {
            LossScale::None => (1.0, false),
            LossScale::Fixed(fixed) => (fixed.scale, false),
            LossScale::Dynamic => (INITIAL_SCALE, true),
        };
        let good_steps = 0;
        let resumed = resumed.filter(|_| is_dynamic);
        let state = resumed.unwrap_or(ScaleState { scale, good_steps });
        Self { state, is_dynamic }
    }

    pub(crate) fn scale(&self) -> f64 {
        self.state.scale
    }

    pub(crate) fn state(&self) -> Option<ScaleState> {
        self.is_dynamic.then_some(self.state)
    }

    /// Updates the scale after a step with finite or non-finite gradients. Returns false if the
    /// scale is too small.
    pub(crate) fn update(&mut self, is_finite: bool) -> bool {
        if !self.is_dynamic {
            return true;
        }
        let ScaleState { scale, good_steps } = &mut self.state;
        *good_steps += 1;
        if !is_finite || *good_steps == GROWTH_INTERVAL {
            *scale *= if is_finite { 2.0 } else { 0.5 };
            *good_steps = 0;
        }
        *scale >= MIN_SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_without_instructions_is_slow() {
        let instructions = |f16, bf16| HalfInstructions { f16, bf16 };
        let reason = |backend, precision, instructions| {
            slow_precision(backend, precision, instructions).is_some()
        };
        for backend in Backend::ALL {
            assert!(!reason(backend, Dtype::F32, instructions(false, false)));
            for precision in [Dtype::F16, Dtype::Bf16] {
                let converts = matches!(backend, Backend::Flex | Backend::Ndarray);
                assert_eq!(
                    reason(backend, precision, instructions(true, true)),
                    converts
                );
                let is_slow = converts || backend == Backend::TchCpu;
                assert_eq!(
                    reason(backend, precision, instructions(false, false)),
                    is_slow
                );
            }
        }
        assert!(reason(
            Backend::TchCpu,
            Dtype::F16,
            instructions(false, true)
        ));
        assert!(!reason(
            Backend::TchCpu,
            Dtype::Bf16,
            instructions(false, true)
        ));
    }

    #[test]
    fn a_dynamic_scale_halves_on_overflow_and_doubles_after_the_growth_interval() {
        let scaler = |scale, is_dynamic| {
            let good_steps = 0;
            let state = ScaleState { scale, good_steps };
            LossScaler { state, is_dynamic }
        };
        let mut fixed = scaler(1024.0, false);
        assert!(fixed.update(false));
        assert_eq!((fixed.scale(), fixed.state()), (1024.0, None));
        let mut scaler = scaler(8.0, true);
        assert!(scaler.update(false));
        assert_eq!(scaler.scale(), 4.0);
        for _ in 0..GROWTH_INTERVAL - 1 {
            assert!(scaler.update(true));
        }
        assert_eq!(scaler.scale(), 4.0);
        scaler.update(true);
        assert_eq!(scaler.scale(), 8.0);
        let mut halvings = 0;
        while scaler.update(false) {
            halvings += 1;
        }
        assert_eq!(halvings, 16, "down to the minimum scale");
    }
}
