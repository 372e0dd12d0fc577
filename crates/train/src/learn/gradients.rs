//! What is done to gradients between a backward pass and a step: brought to the numbers of the
//! weights, measured, and made smaller where they are too large.
//!
//! ```text
//! norm    g · min(1, at / ‖g‖),  ‖g‖ of all parameters together
//! value   min(max(g, -at), at)
//! ```
//!
//! Pascanu et al., [On the difficulty of training recurrent neural
//! networks](https://arxiv.org/abs/1211.5063), 2012. Burn's own clipping takes each parameter by
//! itself, which changes the direction of a step.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor};
use zoo_config::Clipping;

/// The norm of all gradients together, `[1]` in `f32`.
pub(crate) fn norm<M: Module>(model: &M, gradients: &GradientsParams) -> Option<Tensor<1>> {
    let mut squares = Squares {
        gradients,
        of_each: vec![],
    };
    model.visit(&mut squares);
    if squares.of_each.is_empty() {
        return None;
    }
    Some(Tensor::cat(squares.of_each, 0).sum().sqrt())
}

struct Squares<'a> {
    gradients: &'a GradientsParams,
    of_each: Vec<Tensor<1>>,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            let gradient = gradient.cast(DType::F32);
            self.of_each.push((gradient.clone() * gradient).sum());
        }
    }
}

/// Gradients that are not too large. The norm, where it was computed, is that of `gradients`;
/// `known` is its number, where that is at hand.
pub(crate) fn clipped<M: Module>(
    model: &M,
    gradients: GradientsParams,
    clipping: &Clipping,
    norm: Option<&Tensor<1>>,
    known: Option<f64>,
) -> GradientsParams {
    match (clipping, norm) {
        (Clipping::Norm(clip), Some(norm)) => {
            if known.is_some_and(|norm| norm <= clip.at) {
                return gradients;
            }
            let share = (norm.clone().clamp_min(clip.at).recip()) * clip.at; // [1]
            changed(model, gradients, Change::Multiply(Box::new(share)))
        }
        (Clipping::Value(clip), _) => changed(model, gradients, Change::Clamp(clip.at)),
        (Clipping::None | Clipping::Norm(_), _) => gradients,
    }
}

/// Gradients in the numbers that the weights are kept in, divided by the loss scale.
pub(crate) fn unscaled<M: Module>(
    model: &M,
    gradients: GradientsParams,
    scale: f64,
    dtype: DType,
) -> GradientsParams {
    changed(model, gradients, Change::Unscale(1.0 / scale, dtype))
}

enum Change {
    Multiply(Box<Tensor<1>>),
    Clamp(f64),
    Unscale(f64, DType),
}

fn changed<M: Module>(model: &M, gradients: GradientsParams, change: Change) -> GradientsParams {
    let mut changer = Changer { gradients, change };
    model.visit(&mut changer);
    changer.gradients
}

struct Changer {
    gradients: GradientsParams,
    change: Change,
}

impl ModuleVisitor for Changer {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else {
            return;
        };
        let gradient = match &self.change {
            Change::Multiply(share) => {
                let share = share.as_ref().clone().cast(gradient.dtype());
                gradient * share.reshape([1; D])
            }
            Change::Clamp(at) => gradient.clamp(-at, *at),
            Change::Unscale(share, dtype) => match *share == 1.0 {
                true => gradient.cast(*dtype),
                false => gradient.cast(*dtype) * *share,
            },
        };
        self.gradients.register(param.id, gradient);
    }
}
