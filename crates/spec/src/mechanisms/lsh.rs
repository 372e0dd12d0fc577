use super::{Capabilities, Difference, KvHeads, Padding, Support, SupportedOptions};
use crate::keys::{LENGTH, SEED, count};

mechanism! {
    /// Softmax over keys in the same hash bucket, at most 2·w in each of r rounds; the keys
    /// are the normalised queries.
    #[about(time = "n·r·(w + sqrt(n/w))", memory = "n·r·w", Approximate, "lsh.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·q_j / (|q_j| √d)) v_j over j near i in the order of their hashes")]
    #[paper("Kitaev 2020", "https://arxiv.org/abs/2001.04451")]
    pub struct Lsh = "lsh" {
        /// Positions in a chunk of the sorted sequence.
        bucket_size: usize = 64, small 2, LENGTH;
        /// Hash rounds.
        n_hashes: usize = 4, small 2, count(1, 1 << 10);
        /// Seed of the hash directions; training passes combine it with random numbers of the device.
        seed: u64 = 0, small 1, SEED;
    }

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::FromQueries,
        cross_attention: Err("its keys are its queries, so it has no keys of another sequence"),
        bidirectional: Ok(()),
        causal: Ok(()),
        decoding: Err("it hashes and sorts the whole sequence"),
        odd_d_head: Ok(()),
        padding: Padding::ChangesResult(
            "padding would be hashed and sorted with the other positions",
        ),
        options: SupportedOptions {
            alibi: SORTED,
            bias: SORTED,
            dropout: SORTED,
            ..SupportedOptions::ALL
        },
        returns_weights: false,
        difference: Difference::MaskedKeys,
        max_length: None,
    }
}

const SORTED: Support = Err("it sorts positions by their hashes");

impl Lsh {
    /// Chunks of `bucket_size` positions, sorted in `n_hashes` rounds by hashes of this seed.
    pub const fn new(bucket_size: usize, n_hashes: usize, seed: u64) -> Self {
        Self {
            bucket_size,
            n_hashes,
            seed,
        }
    }
}
