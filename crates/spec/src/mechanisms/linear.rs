use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::Values;

mechanism! {
    /// Linear attention: a feature map instead of the softmax.
    #[about(time = "n", memory = "n", Different, "linear.md")]
    #[formula("o_i = Σ_j (φ(q_i)·φ(k_j)) v_j / Σ_j φ(q_i)·φ(k_j), φ(x) = elu(x) + 1")]
    #[paper("Katharopoulos 2020", "https://arxiv.org/abs/2006.16236")]
    pub struct Linear = "linear" {
        /// Feature map.
        feature_map: LinearFeatures = LinearFeatures::Elu1, small LinearFeatures::Elu1, Values::Names(LinearFeatures::NAMES);
    }

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        causal: Ok(()),
        decoding: Ok(()),
        odd_d_head: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions::NO_SCORES,
        returns_weights: false,
        difference: Difference::Weights,
        max_length: None,
    }
}

crate::names! {
    /// The feature map of linear attention.
    pub enum LinearFeatures: "feature map" {
        /// `elu(x) + 1`.
        Elu1 = "elu1",
        /// `max(x, 0) + 0.001`.
        Relu = "relu",
    }
}
