//! Gradient processing between the backward pass and the optimizer step: unscaling, norm and
//! clipping.
//!
//! ```text
//! norm    g · min(1, at / ‖g‖),  ‖g‖ of all parameters together
//! value   min(max(g, -at), at)
//! ```
//!
//! Pascanu et al., [On the difficulty of training recurrent neural
//! networks](https://arxiv.org/abs/1211.5063), 2012. Burn clips each parameter separately,
//! which changes the direction of a step.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor};
use zoo_config::Clipping;

/// The global gradient norm, `[1]` in `f32`.
pub(crate) fn grad_norm<M: Module>(model: &M, gradients: &GradientsParams) -> Option<Tensor<1>> {
    let mut squares = Squares {
        gradients,
        sums: vec![],
    };
    model.visit(&mut squares);
    if squares.sums.is_empty() {
        return None;
    }
    Some(Tensor::cat(squares.sums, 0).sum().sqrt())
}

struct Squares<'a> {
    gradients: &'a GradientsParams,
    sums: Vec<Tensor<1>>,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            let gradient = gradient.cast(DType::F32);
            self.sums.push((gradient.clone() * gradient).sum());
        }
    }
}

/// Clips gradients by their global norm or by value. `norm` is the norm of `gradients`, if it was
/// computed; `norm_value` is the same on the host, if it was read.
pub(crate) fn clip<M: Module>(
    model: &M,
    gradients: GradientsParams,
    clipping: &Clipping,
    norm: Option<&Tensor<1>>,
    norm_value: Option<f64>,
) -> GradientsParams {
    match (clipping, norm) {
        (Clipping::Norm(clip), Some(norm)) => {
            if norm_value.is_some_and(|norm| norm <= clip.threshold) {
                return gradients;
            }
            let factor = (norm.clone().clamp_min(clip.threshold).recip()) * clip.threshold; // [1]
            map_gradients(model, gradients, GradientOp::Multiply(Box::new(factor)))
        }
        (Clipping::Value(clip), _) => {
            map_gradients(model, gradients, GradientOp::Clamp(clip.threshold))
        }
        (Clipping::None | Clipping::Norm(_), _) => gradients,
    }
}

/// Casts gradients to the dtype of the parameters and divides them by the loss scale.
pub(crate) fn unscale<M: Module>(
    model: &M,
    gradients: GradientsParams,
    scale: f64,
    dtype: DType,
) -> GradientsParams {
    map_gradients(model, gradients, GradientOp::Unscale(1.0 / scale, dtype))
}

enum GradientOp {
    Multiply(Box<Tensor<1>>),
    Clamp(f64),
    Unscale(f64, DType),
}

fn map_gradients<M: Module>(
    model: &M,
    gradients: GradientsParams,
    op: GradientOp,
) -> GradientsParams {
    let mut mapper = GradientMapper { gradients, op };
    model.visit(&mut mapper);
    mapper.gradients
}

struct GradientMapper {
    gradients: GradientsParams,
    op: GradientOp,
}

impl ModuleVisitor for GradientMapper {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else {
            return;
        };
        let gradient = match &self.op {
            GradientOp::Multiply(factor) => {
                let factor = factor.as_ref().clone().cast(gradient.dtype());
                gradient * factor.reshape([1; D])
            }
            GradientOp::Clamp(at) => gradient.clamp(-at, *at),
            GradientOp::Unscale(1.0, dtype) => gradient.cast(*dtype),
            GradientOp::Unscale(factor, dtype) => gradient.cast(*dtype) * *factor,
        };
        self.gradients.register(param.id, gradient);
    }
}
