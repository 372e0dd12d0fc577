//! Multi-head latent attention, of queries and keys in the space of the latent vectors: one key and
//! value head for all query heads, as in decoding.
//!
//! [`MultiHeadAttention`](crate::MultiHeadAttention) with this mechanism has the projections from and
//! to that space, described at [`LatentProjections`](crate::module::LatentProjections).
//!
//! DeepSeek-AI, [DeepSeek-V2](https://arxiv.org/abs/2405.04434), 2024.

use zoo_spec::Mla;

use super::Attention;

impl Attention for Mla {
    fn attends_to_all_keys(&self) -> bool {
        true
    }
}
