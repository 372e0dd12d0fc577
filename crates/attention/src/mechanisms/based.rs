//! Linear attention with the second-order Taylor polynomial of the exponential instead of the
//! exponential of softmax.
//!
//! ```text
//! w_ij = 1 + s_ij + s_ij² / 2 = φ(q_i)·φ(k_j)        s_ij = q_i·k_j / √d
//! ```
//!
//! with `1 + d + d²` features: 1, the elements, and the products of pairs of elements. No weight is
//! below 1/2 before normalisation.
//!
//! Arora et al., [Based](https://arxiv.org/abs/2402.18668), 2024.

use burn::tensor::Tensor;
use zoo_spec::Based;

use super::{Attention, Call, Inputs};
use crate::mechanisms::linear::linear;
use crate::scan::{FeatureMap, ScanKernel, kernel_for, taylor_count};
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Based {
    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        linear(query, key, value, FeatureMap::Taylor, call.options).into()
    }

    fn features(&self) -> Option<FeatureMap> {
        Some(FeatureMap::Taylor)
    }

    fn scan_kernel(&self, query: &Tensor<4>, shape: &AttentionShape) -> Option<ScanKernel> {
        Some(kernel_for(query, shape, taylor_count(shape.d_head)).0)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, taylor_count(shape.d_head))
    }
}
