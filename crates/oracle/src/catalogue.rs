//! The named problems. Conformance tests run all of them on every backend. Benchmarks run some of
//! them at other lengths.

use crate::mask::Mask;
use crate::problem::Problem;

/// All named problems, from a single element to realistic layers.
pub fn catalogue() -> Vec<Problem> {
    vec![
        // Smallest sizes.
        Problem::new("one", [1, 1, 1, 1, 1]),
        Problem::new("tiny", [1, 1, 3, 3, 2]),
        Problem::new("one-key", [1, 2, 3, 1, 4]),
        Problem::new("one-query", [2, 2, 1, 5, 4]),
        // Odd sizes.
        Problem::new("odd", [2, 3, 7, 13, 5]).with_d_value(11),
        Problem::new("narrow-values", [1, 2, 6, 4, 5]).with_d_value(3),
        // Causal, with the last query aligned with the last key.
        causal("causal", [2, 2, 5, 5, 4]),
        causal("causal-more-keys", [1, 2, 4, 6, 4]),
        // The first two queries are fully masked.
        causal("causal-more-queries", [1, 2, 6, 4, 4]),
        Problem::new("window", [2, 2, 7, 7, 4]).with_mask(window(2, 1)),
        // The first queries are not aligned with any key, but keys of their window are visible.
        Problem::new("window-more-queries", [1, 2, 8, 5, 4]).with_mask(window(0, 2)),
        // Several tiles of keys and queries, none full, none a power of two.
        causal("several-tiles", [1, 2, 150, 210, 20])
            .with_kv_heads(1)
            .with_d_value(24),
        Problem::new("window-and-lengths", [2, 1, 300, 300, 16]).with_mask(Mask::All(vec![
            window(40, 25),
            Mask::KeyLengths(vec![290, 7]),
        ])),
        // One example has no keys.
        Problem::new("key-lengths", [3, 2, 4, 5, 4]).with_mask(Mask::KeyLengths(vec![5, 0, 2])),
        // Padding before, among and after the keys.
        Problem::new("key-padding", [2, 2, 4, 5, 4]).with_mask(Mask::KeyPadding(vec![
            vec![true, false, true, false, true],
            vec![false, false, false, true, true],
        ])),
        Problem::new("dense-mask", [2, 2, 4, 5, 4]).with_mask(Mask::Random {
            masked: 0.5,
            fully_masked_every: 3,
        }),
        // Masks over several tiles of every kernel.
        Problem::new("dense-mask-tiles", [1, 2, 270, 290, 8])
            .with_kv_heads(1)
            .with_mask(Mask::Random {
                masked: 0.6,
                fully_masked_every: 7,
            }),
        Problem::new("key-padding-tiles", [2, 1, 40, 300, 8]).with_mask(Mask::KeyPadding(vec![
            (0..300).map(|j| j < 40 || j % 7 == 3).collect(),
            (0..300).map(|j| j > 260).collect(),
        ])),
        Problem::new("causal-and-lengths", [2, 2, 6, 6, 4])
            .with_mask(Mask::All(vec![Mask::Causal, Mask::KeyLengths(vec![6, 3])])),
        Problem::new("causal-or-prefix", [2, 2, 6, 6, 4])
            .with_mask(Mask::Any(vec![Mask::Causal, Mask::KeyLengths(vec![2, 3])])),
        // Sparse patterns, small and over several tiles.
        Problem::new("block", [1, 2, 7, 7, 4]).with_mask(Mask::Block(3)),
        Problem::new("block-more-queries", [1, 2, 7, 4, 4]).with_mask(Mask::Block(2)),
        Problem::new("strided", [1, 2, 8, 10, 4]).with_mask(Mask::Strided(3)),
        // The first key of each stride is visible to all later queries.
        Problem::new("sparse-transformer", [1, 2, 230, 230, 16]).with_mask(Mask::All(vec![
            Mask::Causal,
            Mask::Any(vec![window(15, 0), Mask::Strided(16)]),
        ])),
        // The last block is partial and has one of its three summary columns.
        Problem::new("fixed", [1, 2, 222, 222, 16]).with_mask(Mask::All(vec![
            Mask::Causal,
            Mask::Any(vec![
                Mask::Block(16),
                Mask::SummaryColumns {
                    block: 16,
                    summary: 3,
                },
            ]),
        ])),
        // The window of the last queries is beyond the last key.
        Problem::new("monotonic", [1, 2, 9, 5, 4]).with_mask(Mask::Monotonic(2)),
        Problem::new("monotonic-more-keys", [1, 2, 70, 200, 8]).with_mask(Mask::Monotonic(30)),
        // The first queries are not aligned with any key and are fully masked.
        Problem::new("function", [1, 2, 13, 9, 4]).with_mask(Mask::PowersOfTwo),
        Problem::new("function-in-a-window", [2, 1, 150, 150, 8])
            .with_mask(Mask::All(vec![Mask::PowersOfTwo, window(70, 0)])),
        Problem::new("longformer", [1, 2, 9, 9, 4])
            .with_mask(Mask::Any(vec![window(1, 1), Mask::Global(vec![0, 5])])),
        Problem::new("bigbird-blocks", [1, 2, 270, 270, 16])
            .with_mask(Mask::BlockSparse {
                size: 32,
                visible: vec![
                    vec![0, 1, 2, 3, 4, 5, 6, 7, 8],
                    vec![0, 1, 2, 8, 6],
                    vec![8, 3, 2, 1, 0],
                    vec![0, 2, 3, 4, 8],
                    vec![0, 3, 4, 5, 8, 1],
                    vec![0, 4, 5, 6, 8],
                    vec![],
                    vec![0, 6, 7, 8, 3],
                    vec![0, 1, 2, 3, 4, 5, 6, 7, 8],
                ],
            })
            .with_kv_heads(1),
        Problem::new("documents", [2, 2, 8, 8, 4]).with_mask(Mask::All(vec![
            Mask::Causal,
            Mask::Documents(vec![
                vec![0, 0, 0, 1, 1, 1, 1, 2],
                vec![4, 4, 1, 1, 4, 4, 1, 1],
            ]),
        ])),
        // Modifications of scores and weights.
        Problem::new("softcap", [2, 2, 5, 6, 4])
            .with_softcap(1.5)
            .with_std(2.0),
        causal("alibi", [1, 3, 6, 8, 4]).with_alibi(),
        Problem::new("bias", [2, 2, 5, 6, 4]).with_bias([2, 2, 5, 6]),
        // A bias broadcast over examples and queries.
        Problem::new("bias-of-keys", [2, 4, 5, 6, 4])
            .with_bias([1, 4, 1, 6])
            .with_kv_heads(2),
        Problem::new("dropout", [2, 2, 5, 9, 4]).with_dropout((0.4, 17)),
        // All options together, over several tiles.
        Problem::new("everything", [2, 4, 130, 300, 20])
            .with_softcap(3.0)
            .with_alibi()
            .with_bias([1, 4, 1, 300])
            .with_dropout((0.2, 99))
            .with_kv_heads(2)
            .with_mask(Mask::All(vec![
                Mask::Causal,
                Mask::KeyLengths(vec![300, 170]),
            ]))
            .with_d_value(12),
        Problem::new("bias-of-all-heads", [2, 2, 300, 290, 16])
            .with_bias([1, 1, 300, 290])
            .with_mask(window(40, 25)),
        // Fewer KV heads than heads.
        causal("grouped-heads", [2, 6, 5, 5, 4]).with_kv_heads(2),
        Problem::new("multi-query", [2, 4, 3, 7, 4])
            .with_kv_heads(1)
            .with_mask(Mask::KeyLengths(vec![4, 7])),
        // Scores and their scale.
        Problem::new("unscaled", [1, 2, 4, 4, 3]).with_scale(1.0),
        // Scores near 1000, where exp overflows f32 unless the maximum is subtracted first.
        Problem::new("large-scores", [1, 2, 5, 6, 8]).with_std(16.0),
        // Problems that benchmarks run at many lengths.
        Problem::new("layer", [1, 8, 128, 128, 64]),
        causal("layer-causal", [1, 8, 128, 128, 64]),
        Problem::new("layer-window", [1, 8, 160, 160, 64]).with_mask(window(128, 128)),
        causal("decode-step", [1, 8, 1, 256, 64]),
        // Two queries per head and more keys than one task processes, few of them in one example.
        Problem::new("decode-in-parts", [2, 4, 2, 1000, 20])
            .with_kv_heads(2)
            .with_mask(Mask::KeyLengths(vec![1000, 90])),
        // Sizes of real layers.
        Problem::new("bert-base", [2, 12, 128, 128, 64]).with_mask(Mask::KeyLengths(vec![128, 77])),
        causal("gpt2", [1, 12, 256, 256, 64]),
        causal("llama-decode", [2, 8, 1, 333, 128]).with_kv_heads(2),
        Problem::new("translate-cross", [2, 8, 23, 31, 64])
            .with_mask(Mask::KeyLengths(vec![31, 17])),
    ]
}

/// Problems for benchmarks only, at great lengths. The catalogue covers their features in smaller
/// sizes.
pub fn bench_only() -> Vec<Problem> {
    vec![
        Problem::new("layer-16-heads", [1, 16, 128, 128, 64]),
        Problem::new("layer-window-512", [1, 16, 128, 128, 64]).with_mask(window(512, 512)),
    ]
}

/// The problem with this name.
pub fn find(name: &str) -> Option<Problem> {
    let mut all = catalogue().into_iter().chain(bench_only());
    all.find(|problem| problem.name == name)
}

fn causal(name: &'static str, sizes: [usize; 5]) -> Problem {
    Problem::new(name, sizes).with_mask(Mask::Causal)
}

fn window(left: usize, right: usize) -> Mask {
    Mask::Window { left, right }
}

impl Problem {
    /// Whether it is small enough for central differences, which take two solutions per element.
    pub fn is_tiny(&self) -> bool {
        self.batch * self.heads * self.seq_q * self.seq_k * self.d_head <= 2_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropout::is_dropped;
    use crate::scores::Row;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_sizes_fit() {
        let mut names = HashSet::new();
        for problem in catalogue() {
            assert!(names.insert(problem.name), "duplicate {}", problem.name);
            assert_eq!(problem.heads % problem.kv_heads, 0, "{}", problem.name);
            assert_eq!(find(problem.name).as_ref(), Some(&problem));
        }
    }

    fn fully_masked_rows(problem: &Problem) -> usize {
        let mask = problem.dense_mask();
        let is_fully_masked = |row: &&[bool]| row.iter().all(|&masked| masked);
        mask.chunks(problem.seq_k).filter(is_fully_masked).count()
    }

    #[test]
    fn masks_are_neither_empty_nor_full() {
        for problem in catalogue().iter().filter(|p| p.mask != Mask::Full) {
            let is_single = problem.seq_q == 1 && problem.mask == Mask::Causal;
            let density = problem.density();
            assert!(density > 0.0, "{} masks all keys", problem.name);
            assert!(density < 1.0 || is_single, "{} masks no key", problem.name);
        }
    }

    /// Less than half of the rows of these problems are fully masked.
    #[test]
    fn some_problems_have_fully_masked_rows() {
        for name in [
            "causal-more-queries",
            "key-lengths",
            "dense-mask",
            "dense-mask-tiles",
            "monotonic",
            "function",
            "bigbird-blocks",
        ] {
            let problem = find(name).expect("in the catalogue");
            let masked = fully_masked_rows(&problem);
            let rows = problem.queries();
            assert!(
                0 < masked && 2 * masked < rows,
                "{name}: {masked} of {rows} rows"
            );
        }
    }

    #[test]
    fn dropout_drops_some_visible_weights() {
        let mut with_dropout = 0;
        for problem in catalogue() {
            let Some((prob, seed)) = problem.dropout else {
                continue;
            };
            with_dropout += 1;
            let mut counts = [0; 2];
            for row in (0..problem.queries()).map(|row| Row::new(&problem, row)) {
                for &key in &row.visible {
                    counts[usize::from(is_dropped(prob, seed, row.index(key)))] += 1;
                }
            }
            let [retained, dropped] = counts;
            assert!(retained > 0 && dropped > 0, "{}", problem.name);
        }
        assert!(with_dropout >= 2, "only {with_dropout}");
    }

    #[test]
    fn catalogue_covers_every_kind_of_problem() {
        let has = |kind: fn(&Problem) -> bool| catalogue().iter().any(kind);
        assert!(has(|p| p.seq_q < p.seq_k) && has(|p| p.seq_q > p.seq_k));
        assert!(has(|p| p.kv_heads == 1 && p.heads > 1));
        assert!(has(|p| p.kv_heads > 1 && p.kv_heads < p.heads));
        assert!(has(|p| p.d_value != p.d_head));
        assert!(has(|p| p.softcap.is_some()) && has(|p| p.alibi));
        assert!(has(|p| p.bias.is_some()) && has(|p| p.dropout.is_some()));
        assert!(has(|p| p.seq_k > 1 && fully_masked_rows(p) > 0));
    }
}
