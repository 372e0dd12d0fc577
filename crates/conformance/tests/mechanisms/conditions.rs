//! That problems which are there for a condition have it: a tile that is skipped, a hash that
//! more positions share than a chunk has room for. Without it their tests would pass whatever is
//! done about it.

use burn::tensor::Device;
use zoo_attention::{AttentionShape, Hashing, Lsh};
use zoo_conformance::*;
use zoo_oracle::Problem;

use crate::named;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("tiles-are-skipped-and-split", |device| {
        for name in WITH_TILES {
            let problem = named(name);
            let tensors = Tensors::of(&problem, device);
            let shape = AttentionShape::of("test", &tensors.query, &tensors.key, &tensors.value);
            let computed = tensors.options.pattern.plan(&shape, [64, 64]).density();
            // More is computed than is seen where a tile is seen in part.
            let is_split = computed > problem.density() && computed < 1.0;
            assert!(is_split, "{name}: {computed} computed");
        }
    }),
    ("chunks-split-hashes", |device| {
        for (hashing, problem) in crate::lsh::problems() {
            // One chunk holds everything; a single position has one hash.
            let wanted = [hashing.bucket < problem.seq_k, hashing.bucket > 1];
            let got = splits_hashes(hashing, &problem, device);
            assert_eq!(got, wanted, "{}", problem.name);
        }
    }),
];

/// Problems for which some tiles are skipped, and others computed as a whole or in part.
const WITH_TILES: &[&str] = &[
    "several-tiles",
    "window-and-lengths",
    "sparse-transformer",
    "everything",
    "bias-of-all-heads",
    "bigbird-blocks",
    "function-in-a-window",
    "monotonic-more-keys",
];

/// For a mechanism of hashes and its problem, whether some hash is shared by more positions than
/// a chunk has, and a chunk has positions of several hashes.
fn splits_hashes(hashing: Lsh, problem: &Problem, device: &Device) -> [bool; 2] {
    let Lsh { bucket, rounds, .. } = hashing;
    let hashes = hashing.hashes(&Tensors::of(problem, device).query);
    let (mut is_split, mut is_joined) = (false, false);
    for head in hashes.chunks(problem.seq_q * rounds) {
        for round in 0..rounds {
            let mut sorted: Vec<_> = head.iter().skip(round).step_by(rounds).collect();
            sorted.sort_unstable();
            is_split |= sorted.windows(bucket + 1).any(|w| w[0] == w[bucket]);
            is_joined |= sorted
                .chunks(bucket)
                .any(|chunk| chunk[0] != chunk[chunk.len() - 1]);
        }
    }
    [is_split, is_joined]
}
