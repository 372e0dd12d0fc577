use super::{Capabilities, Difference, KvHeads};
use crate::keys::{Presence, WIDTH};

mechanism! {
    /// `flash` with keys and values projected from one narrow latent vector per position.
    #[about(time = "n²", memory = "n", Exact, "mla.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·[W_k c_j; r_j] / √d) W_v c_j, with c_j and r_j for all heads")]
    #[paper("DeepSeek-AI 2024", "https://arxiv.org/abs/2405.04434")]
    pub struct Mla = "mla" {
        /// Elements of a latent vector.
        #[serde(skip_serializing_if = "Option::is_none")]
        latent: Option<usize> = None, small Some(6), WIDTH, Presence::Optional("2 * d_head");
        /// Elements of queries and keys for rotary positions, besides those of d_head. All heads
        /// share those of the keys.
        #[serde(skip_serializing_if = "Option::is_none")]
        rope: Option<usize> = None, small Some(4), WIDTH, Presence::Optional("d_head / 2, rounded up to an even number");
    }

    capabilities: |_| Capabilities::dense(KvHeads::Exactly(1), Difference::SharedHeads)
}

impl Mla {
    /// Elements of a latent vector, with the default for heads of this size.
    pub fn latent_of(self, d_head: usize) -> usize {
        self.latent.unwrap_or(2 * d_head)
    }

    /// Elements of queries and keys for rotary positions, with the default for heads of this size.
    pub fn rope_of(self, d_head: usize) -> usize {
        self.rope.unwrap_or(d_head.div_ceil(2).next_multiple_of(2))
    }
}
