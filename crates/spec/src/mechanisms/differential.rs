use super::capabilities::NO_DISTRIBUTION;
use super::{Capabilities, Difference, KvHeads, SupportedOptions};
use crate::keys::{Range, Values};

mechanism! {
    /// The difference of two softmax maps, which cancels weights that both have in common.
    #[about(time = "n²", memory = "n", Different, "differential.md")]
    #[formula("o_i = Σ_j (softmax_j(q¹_i·k¹_j / √(d/2)) - λ softmax_j(q²_i·k²_j / √(d/2))) v_j")]
    #[paper("Ye 2024", "https://arxiv.org/abs/2410.05258")]
    pub struct Differential = "differential" {
        /// The λ of an untrained layer, to which a learned term is added.
        lambda_init: f64 = 0.8, small 0.6, Values::Number(Range::PROBABILITY);
        /// Normalise the output of each head by RMSNorm and multiply it by 1 - `lambda_init`, as the
        /// paper does.
        head_norm: bool = true, small false, Values::Bool;
    }

    capabilities: |_| Capabilities {
        odd_d_head: Err("each half of a query or key has a score of its own"),
        options: SupportedOptions {
            entropy: NO_DISTRIBUTION,
            ..SupportedOptions::ALL
        },
        ..Capabilities::dense(KvHeads::Any, Difference::Weights)
    }
}
