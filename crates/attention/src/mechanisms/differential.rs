//! Differential attention: the difference of two softmax maps over the same values, which cancels
//! weights that both have in common.
//!
//! ```text
//! context = (softmax(scale q¹ k¹ᵀ) - λ softmax(scale q² k²ᵀ)) v
//! λ       = exp(a¹ · b¹) - exp(a² · b²) + λ_init
//! ```
//!
//! `q¹` and `q²` are the halves of a head's query, and `a` and `b` are learned vectors.
//!
//! Ye et al., [Differential Transformer](https://arxiv.org/abs/2410.05258), 2024.

use burn::module::Param;
use burn::nn::RmsNormConfig;
use burn::tensor::{Device, Tensor, TensorData};
use zoo_spec::Differential;

use super::{Attention, HeadSizes, Inputs, MechanismParams, Params, init_differential, pair_flops};
use crate::analysis::weights::WeightFunction;
use crate::flash::{flash_unrounded, selected_kernel};
use crate::precision::{narrow, widen};
use crate::{AttentionOptions, AttentionShape};

impl Attention for Differential {
    fn default_scale(&self, d_head: usize) -> f64 {
        1.0 / (d_head as f64 / 2.0).sqrt()
    }

    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        let half = sizes.d_head / 2;
        let vectors = TensorData::new(init_differential(half), [4, half]);
        let norm = RmsNormConfig::new(sizes.d_head).with_epsilon(1e-5);
        MechanismParams {
            differential: Some(Param::from_tensor(Tensor::from_data(vectors, device))),
            head_norm: self.head_norm.then(|| norm.init(device)),
            ..MechanismParams::default()
        }
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn attend(&self, inputs: Inputs, params: &Params, options: &AttentionOptions) -> Tensor<4> {
        let lambda = lambda(params.differential(&inputs.query), self.lambda_init);
        differential(inputs.query, inputs.key, inputs.value, lambda, options)
    }

    fn weight_fn(&self, inputs: &Inputs, params: &Params) -> WeightFunction {
        let vectors = params.differential(&inputs.query);
        WeightFunction::Differential(lambda(vectors, self.lambda_init))
    }

    fn attends_to_all_keys(&self) -> bool {
        true
    }

    fn finish(&self, params: &MechanismParams, context: Tensor<4>) -> Tensor<4> {
        if params.head_norm.is_none() {
            return context;
        }
        params
            .normalize_heads(context)
            .mul_scalar(1.0 - self.lambda_init)
    }

    fn flops(&self, shape: &AttentionShape, options: &AttentionOptions) -> f64 {
        // Each half of the queries weights all values.
        let half = AttentionShape {
            d_head: shape.d_head / 2,
            ..*shape
        };
        2.0 * pair_flops(&half, options)
    }
}

/// The λ of vectors `[4, d_head / 2]`, which are `a¹`, `b¹`, `a²` and `b²`: `[1]`.
pub fn lambda(vectors: Tensor<2>, lambda_init: f64) -> Tensor<1> {
    let vectors = widen(vectors);
    let row = |index: usize| vectors.clone().slice_dim(0, index..index + 1);
    let exponential = |index: usize| (row(index) * row(index + 1)).sum().exp();
    (exponential(0) - exponential(2)).add_scalar(lambda_init)
}

/// Differential attention with a λ, `[1]`. All inputs have gradients.
///
/// The options apply to both maps, which drop the same weights. The default scale is that of half of
/// `d_head`. Half-precision contexts are rounded once, after the subtraction, unless a kernel
/// computes in half precision.
///
/// # Shapes
///
/// As for [`flash`](crate::flash()).
///
/// # Panics
///
/// As for [`flash`](crate::flash()), and if `d_head` is odd.
pub fn differential(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    lambda: Tensor<1>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = options.check_call(OP, [&query, &key, &value]);
    let stored = query.dtype();
    // Both maps contribute to each gradient, which is then rounded once.
    let has_half_kernel = selected_kernel(&query, &key, &value, options).supports_half();
    let [query, key, value] = match has_half_kernel {
        true => [query, key, value],
        false => [query, key, value].map(widen),
    };
    let [query, key] = [query, key].map(halves);
    let options = AttentionOptions {
        scale: Some(
            options
                .scale
                .unwrap_or(1.0 / (shape.d_head as f64 / 2.0).sqrt()),
        ),
        ..options.clone()
    };
    let [first, second] = [0, 1].map(|half| {
        let tensors = [query[half].clone(), key[half].clone(), value.clone()];
        widen(flash_unrounded(OP, tensors, &options).context)
    });
    narrow(first - second * widen(lambda).reshape([1, 1, 1, 1]), stored)
}

/// The halves of each query or key.
pub(crate) fn halves(tensor: Tensor<4>) -> [Tensor<4>; 2] {
    let [.., d_head] = tensor.dims();
    assert!(
        d_head.is_multiple_of(2),
        "{OP}: d_head must be even, since each half of a query or key has a score of its own, got {d_head}"
    );
    let half = d_head / 2;
    [0, half].map(|start| tensor.clone().slice_dim(3, start..start + half))
}

const OP: &str = "differential attention";
