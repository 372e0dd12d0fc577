//! Linear attention with ReLU features and weights that decrease with the distance by a cosine.
//!
//! ```text
//! w_ij = cos(π/2 · (i - j) / M) relu(q_i)·relu(k_j)
//!      = relu(q_i) cos(π i / 2M) · relu(k_j) cos(π j / 2M) + relu(q_i) sin(π i / 2M) · relu(k_j) sin(π j / 2M)
//! ```
//!
//! Positions of queries and keys are aligned at the end, and no distance is as large as `M`.
//!
//! Qin et al., [cosFormer](https://arxiv.org/abs/2202.08791), 2022.

use burn::tensor::Tensor;
use zoo_spec::Cosformer;

use super::{Attention, Call, Inputs, Params};
use crate::analysis::weights::WeightFunction;
use crate::mechanisms::linear::linear;
use crate::scan::{FeatureMap, ScanKernel, kernel_for};
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Cosformer {
    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let features = cosine_features(self, &inputs);
        let Inputs {
            query, key, value, ..
        } = inputs;
        linear(query, key, value, features, call.options).into()
    }

    fn default_scale(&self, _: usize) -> f64 {
        1.0
    }

    fn weight_fn(&self, inputs: &Inputs, _: &Params) -> WeightFunction {
        WeightFunction::Features(cosine_features(self, inputs))
    }

    fn features(&self) -> Option<FeatureMap> {
        self.length.map(FeatureMap::Cosine)
    }

    fn scan_kernel(&self, query: &Tensor<4>, shape: &AttentionShape) -> Option<ScanKernel> {
        Some(kernel_for(query, shape, 2 * shape.d_head).0)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, 2 * shape.d_head)
    }
}

/// The features of a call.
fn cosine_features(config: &Cosformer, inputs: &Inputs) -> FeatureMap {
    let [_, _, seq_q, _] = inputs.query.dims();
    let [_, _, seq_k, _] = inputs.key.dims();
    FeatureMap::Cosine(config.length.unwrap_or(seq_q.max(seq_k)))
}
