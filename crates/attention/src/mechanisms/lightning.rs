//! Lightning attention: causal linear attention with a constant decay for each head, computed like
//! [retention](mod@super::retention).
//!
//! ```text
//! S_t = exp(-slope) S_(t-1) + k_t v_tᵀ        slope = 8 head / heads · (1 - depth)
//! ```
//!
//! Qin et al., [Lightning Attention-2](https://arxiv.org/abs/2401.04658), 2024; MiniMax,
//! [MiniMax-01](https://arxiv.org/abs/2501.08313), 2025.

use burn::nn::RmsNormConfig;
use burn::tensor::{Device, Tensor};
use zoo_spec::Lightning;

use super::retention::decayed;
use super::{Attention, Call, HeadSizes, Inputs, MechanismParams, Params};
use crate::analysis::weights::WeightFunction;
use crate::scan::{LinearState, RecurrentState, ScanKernel, kernel_for};
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Lightning {
    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        let norm = RmsNormConfig::new(sizes.d_head).with_epsilon(1e-5);
        MechanismParams {
            head_norm: self.head_norm.then(|| norm.init(device)),
            ..MechanismParams::default()
        }
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let decays = lightning_decays(inputs.key.dims()[1], self.depth);
        let tensors = [inputs.query, inputs.key, inputs.value];
        decayed("lightning attention", tensors, &decays, call.options).into()
    }

    fn weight_fn(&self, inputs: &Inputs, _: &Params) -> WeightFunction {
        WeightFunction::Retention(lightning_decays(inputs.key.dims()[1], self.depth))
    }

    fn state(&self, kv_heads: usize) -> Option<RecurrentState> {
        let state = LinearState::from_decays(lightning_decays(kv_heads, self.depth));
        Some(RecurrentState::Linear(state))
    }

    fn finish(&self, params: &MechanismParams, context: Tensor<4>) -> Tensor<4> {
        params.normalize_heads(context)
    }

    fn scan_kernel(&self, query: &Tensor<4>, shape: &AttentionShape) -> Option<ScanKernel> {
        Some(kernel_for(query, shape, shape.d_head).0)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, shape.d_head)
    }
}

/// The decay of each head in a layer at a relative depth: the first does not decay.
pub fn lightning_decays(heads: usize, depth: f64) -> Vec<f64> {
    let slope = |head: usize| 8.0 * head as f64 / heads as f64 * (1.0 - depth);
    (0..heads).map(|head| (-slope(head)).exp()).collect()
}
