//! Conditions that problems must have for their tests to be meaningful: tiles that are skipped,
//! hashes that more positions share than fit into a chunk.

use burn::tensor::Device;
use zoo_attention::AttentionShape;
use zoo_attention::mechanisms::{Hashing, Lsh};
use zoo_conformance::*;
use zoo_oracle::Problem;

use crate::find_problem;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("problems-have-skipped-and-partial-tiles", |device| {
        for name in WITH_TILES {
            let problem = find_problem(name);
            let tensors = Tensors::from_problem(&problem, device);
            let shape =
                AttentionShape::from_tensors("test", &tensors.query, &tensors.key, &tensors.value);
            let computed = tensors.options.pattern.plan(&shape, [64, 64]).density();
            // Partially visible tiles are computed completely.
            let has_partial_tiles = computed > problem.density() && computed < 1.0;
            assert!(has_partial_tiles, "{name}: density {computed}");
        }
    }),
    ("hashes-span-chunks", |device| {
        for (hashing, problem) in crate::lsh::problems() {
            // One chunk holds all positions; a chunk of one position has one hash.
            let expected = [hashing.bucket < problem.seq_k, hashing.bucket > 1];
            let got = splits_hashes(hashing, &problem, device);
            assert_eq!(got, expected, "{}", problem.name);
        }
    }),
];

/// Problems with skipped, complete and partial tiles.
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

/// Whether more positions share a hash than fit into a chunk, and whether a chunk has positions of
/// several hashes.
fn splits_hashes(hashing: Lsh, problem: &Problem, device: &Device) -> [bool; 2] {
    let Lsh { bucket, rounds, .. } = hashing;
    let hashes = hashing.hashes(&Tensors::from_problem(problem, device).query);
    let (mut hash_spans_chunks, mut chunk_has_several) = (false, false);
    for head in hashes.chunks(problem.seq_q * rounds) {
        for round in 0..rounds {
            let mut sorted: Vec<_> = head.iter().skip(round).step_by(rounds).collect();
            sorted.sort_unstable();
            hash_spans_chunks |= sorted.windows(bucket + 1).any(|w| w[0] == w[bucket]);
            chunk_has_several |= sorted
                .chunks(bucket)
                .any(|chunk| chunk[0] != chunk[chunk.len() - 1]);
        }
    }
    [hash_spans_chunks, chunk_has_several]
}
