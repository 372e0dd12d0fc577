use super::{Capabilities, Difference, KvHeads};

mechanism! {
    /// Softmax of v·tanh(W₁q + W₂k), with learned W₁, W₂ and vector v.
    #[about(time = "n²", memory = "n", Different, "scores.md")]
    #[formula("o_i = Σ_j softmax_j(v·tanh(W₁q_i + W₂k_j)) v_j")]
    #[paper("Bahdanau 2014", "https://arxiv.org/abs/1409.0473")]
    pub struct Additive = "additive" | "concat"

    capabilities: |_| Capabilities::dense(KvHeads::Any, Difference::Weights)
}
