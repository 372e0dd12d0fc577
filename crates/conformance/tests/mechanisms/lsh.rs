//! Attention to the keys that hash as the query does.

use burn::tensor::{Bool, Tensor, TensorData};
use zoo_attention::{AttentionOptions, Hashing, Lsh, Pattern, lsh, standard};
use zoo_conformance::*;
use zoo_oracle::{Mask, Precision, Problem};

use crate::others::error_over_seeds;

pub(crate) fn trials(suite: &mut Suite) {
    for (hashing, problem) in problems() {
        crate::judged_by_both(suite, "lsh", &hashing.into(), &problem);
    }
    suite.add_table("lsh/", TESTS);
}

fn by(bucket: usize, rounds: usize) -> Lsh {
    Lsh::new(bucket, rounds, 1)
}

/// Several examples and heads, lengths that are no multiple of the bucket, and every way
/// to see less.
pub(crate) fn problems() -> Vec<(Lsh, Problem)> {
    let sizes = [2, 3, 37, 37, 8];
    let masked = |name, mask| Problem::new(name, sizes).with_mask(mask).with_d_value(5);
    let every_fifth = |first: usize| (0..37).map(|j| j % 5 == first).collect();
    let padding = Mask::KeyPadding(vec![every_fifth(0), every_fifth(3)]);
    let causal_and_padding = Mask::All(vec![Mask::Causal, padding]);
    let scattered = Mask::Scattered {
        hidden: 0.5,
        blind_every: 7,
    };
    let window = Mask::Window { left: 9, right: 4 };
    let softcap = masked("softcap-and-scale", Mask::Full).with_softcap(1.5);
    vec![
        (by(5, 4), masked("full", Mask::Full)),
        (by(5, 4), masked("causal-chunks", Mask::Causal)),
        (by(6, 1), masked("one-round", Mask::Causal)),
        // One example has three keys, which most chunks have none of.
        (by(5, 2), masked("lengths", Mask::KeyLengths(vec![37, 3]))),
        (by(5, 3), masked("causal-and-padding", causal_and_padding)),
        (by(5, 3), masked("dense-chunks", scattered)),
        (by(5, 3), masked("windows", window)),
        (by(5, 3), softcap.with_scale(1.0).with_spread(2.0)),
        // One place in a chunk, and all places in one.
        (by(1, 3), masked("chunks-of-one", Mask::Causal)),
        (by(37, 3), masked("one-chunk", Mask::Causal)),
        // Wider than the tiles of the CPU body, and than those of the portable one.
        (by(150, 2), Problem::new("wide-chunks", [1, 1, 470, 470, 4])),
        // More chunks than one hash tells apart.
        (
            by(2, 2),
            Problem::new("pairs-of-hashes", [1, 1, 521, 521, 4]),
        ),
    ]
}

const TESTS: &[(&str, Test)] = &[
    ("one-chunk-is-attention-of-shared-queries", |device| {
        let device = &device.clone().autodiff();
        let problem = Problem::new("shared", [2, 2, 13, 13, 6]);
        for pattern in [Pattern::Full, Pattern::Causal] {
            // One chunk, two chunks that see each other, and rounds enough that everybody
            // met everybody: two of three do in each.
            for hashing in [Lsh::new(13, 2, 0), Lsh::new(7, 1, 0), Lsh::new(5, 12, 0)] {
                let tensors = || Tensors::of(&problem, device).require_grad();
                let (got, want) = (tensors(), tensors());
                let got = got.results(attend(&got, &pattern, &hashing));
                let want = want.results(of_shared_queries(&want, &pattern));
                same_results(Precision::F32.backward(0.0), got, want);
            }
        }
    }),
    ("those-alike-share-their-hashes", |device| {
        // The second half is the first, a little off.
        let (half, d_head, rounds) = (32, 16, 16);
        let drawn = Problem::new("twins", [1, 1, half, half, d_head]).inputs();
        let (first, off) = (drawn.query, drawn.key);
        let second = first.iter().zip(&off).map(|(x, off)| x + 0.1 * off);
        let query: Vec<f32> = first.iter().copied().chain(second).collect();
        let query = TensorData::new(query, [1, 1, 2 * half, d_head]);
        let hashes = Lsh::new(8, rounds, 0).hashes(&Tensor::from_data(query, device));
        // The share of rounds in which a place has the hash of another.
        let shared = |other: &dyn Fn(usize) -> usize| {
            let same = (0..half * rounds).filter(|at| {
                let (place, round) = (at / rounds, at % rounds);
                hashes[*at] == hashes[other(place) * rounds + round]
            });
            same.count() as f64 / (half * rounds) as f64
        };
        let twins = shared(&|place| half + place);
        let strangers = shared(&|place| half + (place + 1) % half);
        // One in eight by chance.
        let is_right = twins > 0.8 && (0.03..0.25).contains(&strangers);
        assert!(is_right, "{twins} of twins, {strangers} of strangers");
    }),
    ("comes-nearer-with-more-rounds", |device| {
        let problem = Problem::new("nearer", [1, 2, 96, 96, 8]).with_spread(2.0);
        let tensors = Tensors::of(&problem, device);
        let exact = numbers(of_shared_queries(&tensors, &Pattern::Full));
        let errors = [1, 2, 4, 8].map(|rounds| {
            error_over_seeds(0..6, &exact, |seed| {
                attend(&tensors, &Pattern::Full, &Lsh::new(6, rounds, seed))
            })
        });
        // What is not seen yet gets less with every round, first of all what weighs most.
        let is_nearer = |pair: &[f64]| pair[1] < 0.85 * pair[0];
        assert!(errors.windows(2).all(is_nearer), "{errors:?}");
    }),
    ("nothing-comes-from-later", |device| {
        let problem = Problem::new("later", [1, 2, 29, 29, 4]);
        let device = device.clone().autodiff();
        let tensors = Tensors::of(&problem, &device).require_grad();
        for place in [0, 11, 20, 28] {
            let result = attend(&tensors, &Pattern::Causal, &Lsh::new(3, 4, 2));
            let own = place..place + 1;
            let upstream = tensors.upstream.clone().slice_dim(2, own.clone());
            let gradients = (result.slice_dim(2, own) * upstream).sum().backward();
            for (name, tensor) in [("query", &tensors.query), ("value", &tensors.value)] {
                let gradient = tensor.grad(&gradients).expect("the result depends on it");
                for (row, d) in numbers(gradient).chunks(4).enumerate() {
                    let row = row % 29;
                    let is_zero = d.iter().all(|&x| x == 0.0);
                    assert!(row <= place || is_zero, "{place} learns from {name} {row}");
                    // The first sees itself alone: its value counts, its query does not.
                    let must_count = name == "value" && place == 0 && row == 0;
                    assert!(!must_count || !is_zero, "the first does not see itself");
                }
            }
        }
    }),
    ("a-seed-says-it-all", |device| {
        let problem = Problem::new("seeds", [1, 2, 40, 40, 8]);
        let tensors = Tensors::of(&problem, device);
        let of = |seed| numbers(attend(&tensors, &Pattern::Full, &Lsh::new(4, 2, seed)));
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }),
    ("a-query-of-zeros-is-a-key-of-zeros", |device| {
        let problem = Problem::new("zeros", [1, 2, 23, 23, 6]);
        let mut inputs = problem.inputs();
        for row in [0, 5, 22, 30] {
            inputs.query[row * 6..][..6].fill(0.0);
        }
        let tensors = Tensors::new(&problem, &inputs, &device.clone().autodiff());
        let (mechanism, queries) = (by(3, 2).into(), all_queries(&problem));
        must(judge_gradients(&mechanism, &problem, tensors, &queries));
    }),
    ("misuse/fewer-values", |device| {
        let [query, value] = [4, 2].map(|heads| Tensor::zeros([1, heads, 6, 2], device));
        is_refused(
            || lsh(query, value, &by(2, 2), &AttentionOptions::new()),
            "lsh attention: keys are made of the queries: value must be [batch = 1, heads = 4, \
             seq = 6, d_value] to fit query [1, 4, 6, 2], got [1, 2, 6, 2]",
        );
    }),
];

fn attend(tensors: &Tensors, pattern: &Pattern, hashing: &Lsh) -> Tensor<4> {
    let options = AttentionOptions::new().with_pattern(pattern.clone());
    let (query, value) = (tensors.query.clone(), tensors.value.clone());
    lsh(query, value, hashing, &options)
}

/// Every query to all keys that are queries of length 1, but for its own, unless there is
/// no other.
fn of_shared_queries(tensors: &Tensors, pattern: &Pattern) -> Tensor<4> {
    let query = tensors.query.clone();
    let key = query.clone() / query.clone().square().sum_dim(3).sqrt();
    let [.., seq, _] = query.dims();
    let is_alone = |place| place == 0 && matches!(pattern, Pattern::Causal);
    let own: Vec<bool> = (0..seq * seq)
        .map(|at| at / seq == at % seq && !is_alone(at % seq))
        .collect();
    let own = TensorData::new(own, [1, 1, seq, seq]);
    let own = Tensor::<4, Bool>::from_data(own, &query.device());
    let pattern = pattern.clone().and(Pattern::Dense(own));
    let options = AttentionOptions::new().with_pattern(pattern);
    standard(query, key, tensors.value.clone(), &options).context
}
