//! LSH attention.

use zoo_attention::mechanisms::{Hashing, Lsh, lsh};

use crate::other_mechanisms::error_over_seeds;
use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    for (hashing, problem) in problems() {
        crate::add_problem(suite, "lsh", &hashing.into(), &problem);
    }
    suite.add_table("lsh/", TESTS);
}

/// Several examples and heads, lengths that are not a multiple of the bucket, and all kinds of
/// masks.
fn problems() -> Vec<(Lsh, Problem)> {
    let sizes = [2, 3, 37, 37, 8];
    let masked = |name, mask| Problem::new(name, sizes).with_mask(mask).with_d_value(5);
    let every_fifth = |first: usize| (0..37).map(|j| j % 5 == first).collect();
    let padding = Mask::KeyPadding(vec![every_fifth(0), every_fifth(3)]);
    let causal_and_padding = Mask::All(vec![Mask::Causal, padding]);
    let random = Mask::Random {
        masked: 0.5,
        fully_masked_every: 7,
    };
    let window = Mask::Window { left: 9, right: 4 };
    let softcap = masked("softcap-and-scale", Mask::Full).with_softcap(1.5);
    [
        ((5, 4), masked("full", Mask::Full)),
        ((5, 4), masked("causal-chunks", Mask::Causal)),
        ((6, 1), masked("one-round", Mask::Causal)),
        // Rows that no backend pads.
        (
            (5, 4),
            masked("powers-of-two", Mask::Causal).with_d_value(16),
        ),
        // One example has three keys, so most chunks have none.
        ((5, 2), masked("lengths", Mask::KeyLengths(vec![37, 3]))),
        ((5, 3), masked("causal-and-padding", causal_and_padding)),
        ((5, 3), masked("dense-chunks", random)),
        ((5, 3), masked("windows", window)),
        ((5, 3), softcap.with_scale(1.0).with_std(2.0)),
        // One position per chunk, and all positions in one chunk.
        ((1, 3), masked("chunks-of-one", Mask::Causal)),
        ((37, 3), masked("one-chunk", Mask::Causal)),
        // Wider than the tiles of the CPU kernel and of the portable one.
        ((150, 2), Problem::new("wide-chunks", [1, 1, 470, 470, 4])),
        // More chunks than one hash can distinguish.
        ((2, 2), Problem::new("pairs-of-hashes", [1, 1, 521, 521, 4])),
    ]
    .into_iter()
    .map(|((bucket, rounds), problem)| (Lsh::new(bucket, rounds, 1), problem))
    .collect()
}

const TESTS: &[(&str, Test)] = &[
    ("hashes-span-chunks", |device| {
        for (hashing, problem) in problems() {
            // One chunk holds all positions; a chunk of one position has one hash.
            let expected = [hashing.bucket_size < problem.seq_k, hashing.bucket_size > 1];
            let got = splits_hashes(hashing, &problem, device);
            assert_eq!(got, expected, "{}", problem.name);
        }
    }),
    ("matches-full-attention-if-all-keys-are-visible", |device| {
        let device = &device.clone().autodiff();
        let problem = Problem::new("shared", [2, 2, 13, 13, 6]);
        for pattern in [Pattern::Full, Pattern::Causal] {
            // One chunk, two chunks that attend to each other, and enough rounds that every pair
            // shares a chunk in one of them.
            for hashing in [Lsh::new(13, 2, 0), Lsh::new(7, 1, 0), Lsh::new(5, 12, 0)] {
                let tensors = || Tensors::from_problem(&problem, device).require_grad();
                let (got, want) = (tensors(), tensors());
                let got = got.results(attend(&got, &pattern, &hashing));
                let want = want.results(shared_qk_attention(&want, &pattern));
                assert_results_close(Precision::F32.backward(0.0), got, want);
            }
        }
    }),
    ("similar-queries-share-hashes", |device| {
        // The second half is the first plus noise.
        let (half, d_head, rounds) = (32, 16, 16);
        let inputs = Problem::new("twins", [1, 1, half, half, d_head]).inputs();
        let (first, noise) = (inputs.query, inputs.key);
        let second = first.iter().zip(&noise).map(|(x, noise)| x + 0.1 * noise);
        let query: Vec<f32> = first.iter().copied().chain(second).collect();
        let query = tensor_of(query, [1, 1, 2 * half, d_head], device);
        let hashes = Lsh::new(8, rounds, 0).hashes(&query);
        // The fraction of rounds in which a position has the hash of another.
        let shared = |other: &dyn Fn(usize) -> usize| {
            let same = (0..half * rounds).filter(|i| {
                let (position, round) = (i / rounds, i % rounds);
                hashes[*i] == hashes[other(position) * rounds + round]
            });
            same.count() as f64 / (half * rounds) as f64
        };
        let similar = shared(&|position| half + position);
        let unrelated = shared(&|position| half + (position + 1) % half);
        // One in eight by chance.
        let is_expected = similar > 0.8 && (0.03..0.25).contains(&unrelated);
        assert!(is_expected, "{similar} similar, {unrelated} unrelated");
    }),
    ("error-decreases-with-rounds", |device| {
        let problem = Problem::new("nearer", [1, 2, 96, 96, 8]).with_std(2.0);
        let tensors = Tensors::from_problem(&problem, device);
        let exact = to_vec(shared_qk_attention(&tensors, &Pattern::Full));
        let errors = [1, 2, 4, 8].map(|rounds| {
            error_over_seeds(0..6, &exact, |seed| {
                attend(&tensors, &Pattern::Full, &Lsh::new(6, rounds, seed))
            })
        });
        // Each round adds visible keys, those with the largest weights first.
        let decreases = |pair: &[f64]| pair[1] < 0.85 * pair[0];
        assert!(errors.windows(2).all(decreases), "{errors:?}");
    }),
    ("causal-gradients", |device| {
        let problem = Problem::new("later", [1, 2, 29, 29, 4]);
        let device = device.clone().autodiff();
        let tensors = Tensors::from_problem(&problem, &device).require_grad();
        for position in [0, 11, 20, 28] {
            let result = attend(&tensors, &Pattern::Causal, &Lsh::new(3, 4, 2));
            let own = position..position + 1;
            let output_grad = tensors.output_grad.clone().slice_dim(2, own.clone());
            let gradients = (result.slice_dim(2, own) * output_grad).sum().backward();
            for (name, tensor) in [("query", &tensors.query), ("value", &tensors.value)] {
                let gradient = tensor.grad(&gradients).expect("a gradient");
                for (row, d) in to_vec(gradient).chunks(4).enumerate() {
                    let row = row % 29;
                    let is_zero = d.iter().all(|&x| x == 0.0);
                    assert!(row <= position || is_zero, "{position}: {name} {row}");
                    // The first position attends only to itself.
                    let is_first_value = name == "value" && position == 0 && row == 0;
                    assert!(!is_first_value || !is_zero, "no gradient");
                }
            }
        }
    }),
    ("seed-determines-the-result", |device| {
        let problem = Problem::new("seeds", [1, 2, 40, 40, 8]);
        let tensors = Tensors::from_problem(&problem, device);
        let result = |seed| to_vec(attend(&tensors, &Pattern::Full, &Lsh::new(4, 2, seed)));
        assert_eq!(result(3), result(3));
        assert_ne!(result(3), result(4));
    }),
    ("zero-queries", |device| {
        let problem = Problem::new("zeros", [1, 2, 23, 23, 6]);
        let mut inputs = problem.inputs();
        for row in [0, 5, 22, 30] {
            inputs.query[row * 6..][..6].fill(0.0);
        }
        let tensors = Tensors::new(&problem, &inputs, &device.clone().autodiff());
        let (mechanism, queries) = (Lsh::new(3, 2, 1).into(), all_queries(&problem));
        must(compare_gradients(&mechanism, &problem, tensors, &queries));
    }),
    ("invalid/fewer-value-heads", |device| {
        let [query, value] = [4, 2].map(|heads| Tensor::zeros([1, heads, 6, 2], device));
        assert_panics_with(
            || lsh(query, value, &Lsh::new(2, 2, 1), &AttentionOptions::new()),
            "lsh attention: the queries are the keys, so value must be [batch = 1, heads = 4, \
             seq = 6, d_value] to fit query [1, 4, 6, 2], got [1, 2, 6, 2]",
        );
    }),
];

/// Whether more positions share a hash than fit into a chunk, and whether a chunk has positions of
/// several hashes. Otherwise, the problems would not test either.
fn splits_hashes(hashing: Lsh, problem: &Problem, device: &Device) -> [bool; 2] {
    let Lsh {
        bucket_size: bucket,
        n_hashes: rounds,
        ..
    } = hashing;
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

fn attend(tensors: &Tensors, pattern: &Pattern, hashing: &Lsh) -> Tensor<4> {
    let options = AttentionOptions::new().with_pattern(pattern.clone());
    let (query, value) = (tensors.query.clone(), tensors.value.clone());
    lsh(query, value, hashing, &options)
}

/// Attention to all normalised queries as keys except the own position, unless it is the only one.
fn shared_qk_attention(tensors: &Tensors, pattern: &Pattern) -> Tensor<4> {
    let query = tensors.query.clone();
    let key = query.clone() / query.clone().square().sum_dim(3).sqrt();
    let [.., seq, _] = query.dims();
    let is_only_key = |position| position == 0 && matches!(pattern, Pattern::Causal);
    let own: Vec<bool> = (0..seq * seq)
        .map(|i| i / seq == i % seq && !is_only_key(i % seq))
        .collect();
    let own = tensor_of(own, [1, 1, seq, seq], &query.device());
    let pattern = pattern.clone().and(Pattern::Dense(own));
    let options = AttentionOptions::new().with_pattern(pattern);
    standard(query, key, tensors.value.clone(), &options).context
}
