use super::{Capabilities, Difference, KvHeads, Padding, Support, SupportedOptions};
use crate::keys::{LENGTH, SEED, count};

mechanism! {
    /// Softmax over keys in the same hash bucket, at most 2·w in each of r rounds; the keys
    /// are the normalised queries.
    #[about(time = "n·r·(w + sqrt(n/w))", memory = "n·r·w", Approximate, "lsh.md")]
    #[paper("Kitaev 2020", "https://arxiv.org/abs/2001.04451")]
    pub struct Lsh = "lsh" {
        /// Positions in a chunk of the sorted sequence.
        bucket: usize = 64, small 2, LENGTH;
        /// Hash rounds.
        rounds: usize = 4, small 2, count(1, 1 << 10);
        /// Seed of the hash directions; training passes combine it with random numbers of the device.
        seed: u64 = 0, small 1, SEED;
    }

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::FromQueries,
        cross_attention: Err("its keys are its queries, so it has no keys of another sequence"),
        bidirectional: Ok(()),
        decoding: Err("it hashes and sorts the whole sequence"),
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
    }
}

const SORTED: Support = Err("it sorts positions by their hashes");

impl Lsh {
    /// Chunks of `bucket` positions, sorted in `rounds` rounds by hashes of this seed.
    pub const fn new(bucket: usize, rounds: usize, seed: u64) -> Self {
        Self {
            bucket,
            rounds,
            seed,
        }
    }
}
