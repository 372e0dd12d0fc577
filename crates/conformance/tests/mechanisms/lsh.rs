//! Attention to the keys that hash as the query does.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use libtest_mimic::Failed;
use zoo_attention::{AttentionOptions, Hashing, Lsh, Pattern, lsh, standard};
use zoo_conformance::{Suite, Tensors, Test, all_queries, is_refused, judge_gradients, numbers};
use zoo_oracle::{Mask, Precision, Problem};

pub(crate) fn trials(suite: &mut Suite, device: &Device) {
    for (hashing, problem) in problems() {
        crate::judged_by_both(suite, "lsh", &hashing.into(), &problem, device);
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
    vec![
        (by(5, 4), masked("full", Mask::Full)),
        (by(5, 4), masked("causal-chunks", Mask::Causal)),
        (by(6, 1), masked("one-round", Mask::Causal)),
        // One example has three keys, which most chunks have none of.
        (by(5, 2), masked("lengths", Mask::KeyLengths(vec![37, 3]))),
        (
            by(5, 3),
            masked(
                "causal-and-padding",
                Mask::All(vec![
                    Mask::Causal,
                    Mask::KeyPadding(vec![every_fifth(0), every_fifth(3)]),
                ]),
            ),
        ),
        (
            by(5, 3),
            masked(
                "dense-chunks",
                Mask::Scattered {
                    hidden: 0.5,
                    blind_every: 7,
                },
            ),
        ),
        (
            by(5, 3),
            masked("windows", Mask::Window { left: 9, right: 4 }),
        ),
        (
            by(5, 3),
            masked("softcap-and-scale", Mask::Full)
                .with_softcap(1.5)
                .with_scale(1.0)
                .with_spread(2.0),
        ),
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
        let problem = Problem::new("shared", [2, 2, 13, 13, 6]);
        for pattern in [Pattern::Full, Pattern::Causal] {
            // One chunk, two chunks that see each other, and rounds enough that everybody
            // met everybody: two of three do in each.
            for hashing in [Lsh::new(13, 2, 0), Lsh::new(7, 1, 0), Lsh::new(5, 12, 0)] {
                is_attention_of_shared_queries(&problem, &pattern, &hashing, device)?;
            }
        }
        Ok(())
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
        assert!(
            twins > 0.8 && (0.03..0.25).contains(&strangers),
            "{twins} of twins, {strangers} of strangers"
        );
        Ok(())
    }),
    ("comes-nearer-with-more-rounds", |device| {
        let problem = Problem::new("nearer", [1, 2, 96, 96, 8]).with_spread(2.0);
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        let exact = numbers(of_shared_queries(&tensors, &Pattern::Full));
        let error = |rounds: usize| {
            let seeds = 0..6;
            let squares: f64 = seeds
                .clone()
                .map(|seed| {
                    let hashing = Lsh::new(6, rounds, seed);
                    let near = attend(&tensors, &Pattern::Full, &hashing);
                    let pairs = numbers(near).into_iter().zip(&exact);
                    pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
                })
                .sum();
            (squares / (seeds.end as usize * exact.len()) as f64).sqrt()
        };
        let errors = [1, 2, 4, 8].map(error);
        // What is not seen yet gets less with every round, first of all what weighs most.
        assert!(
            errors.windows(2).all(|pair| pair[1] < 0.85 * pair[0]),
            "twice the rounds each: {errors:?}"
        );
        Ok(())
    }),
    ("nothing-comes-from-later", |device| {
        let problem = Problem::new("later", [1, 2, 29, 29, 4]);
        let device = device.clone().autodiff();
        let tensors = Tensors::new(&problem, &problem.inputs(), &device).require_grad();
        for place in [0, 11, 20, 28] {
            let result = attend(&tensors, &Pattern::Causal, &Lsh::new(3, 4, 2));
            let upstream = tensors.upstream.clone().slice_dim(2, place..place + 1);
            let gradients = (result.slice_dim(2, place..place + 1) * upstream)
                .sum()
                .backward();
            for (name, tensor) in [("query", &tensors.query), ("value", &tensors.value)] {
                let gradient = tensor.grad(&gradients).ok_or("the result depends on it")?;
                for (row, d) in numbers(gradient).chunks(4).enumerate() {
                    let is_zero = d.iter().all(|&x| x == 0.0);
                    assert!(
                        row % 29 <= place || is_zero,
                        "{place} learns from {name} {}",
                        row % 29
                    );
                    // The first sees itself alone: its value counts, its query does not.
                    assert!(
                        name != "value" || place != 0 || row % 29 != 0 || !is_zero,
                        "the first place does not see itself"
                    );
                }
            }
        }
        Ok(())
    }),
    ("a-seed-says-it-all", |device| {
        let problem = Problem::new("seeds", [1, 2, 40, 40, 8]);
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        let of = |seed| numbers(attend(&tensors, &Pattern::Full, &Lsh::new(4, 2, seed)));
        match (of(3) == of(3), of(3) == of(4)) {
            (true, false) => Ok(()),
            got => Err(format!("the same and another seed give the same: {got:?}").into()),
        }
    }),
    ("a-query-of-zeros-is-a-key-of-zeros", |device| {
        let problem = Problem::new("zeros", [1, 2, 23, 23, 6]);
        let mut inputs = problem.inputs();
        for row in [0, 5, 22, 30] {
            inputs.query[row * 6..][..6].fill(0.0);
        }
        let tensors = Tensors::new(&problem, &inputs, &device.clone().autodiff());
        judge_gradients(&by(3, 2).into(), &problem, tensors, &all_queries(&problem))?;
        Ok(())
    }),
    ("misuse/fewer-values", |device| {
        let [query, value] = [4, 2].map(|heads| Tensor::zeros([1, heads, 6, 2], device));
        is_refused(
            || lsh(query, value, &by(2, 2), &AttentionOptions::new()),
            "lsh attention: keys are made of the queries: value must be [batch = 1, heads = 4, \
             seq = 6, d_value] to fit query [1, 4, 6, 2], got [1, 2, 6, 2]",
        )
    }),
    ("misuse/no-bucket", |device| {
        let refused = "lsh attention: a bucket must be at least 1, got 0";
        is_refused(|| of_zeros(Lsh::new(0, 1, 0), device), refused)
    }),
    ("misuse/no-rounds", |device| {
        let refused = "lsh attention: rounds must be at least 1, got 0";
        is_refused(|| of_zeros(Lsh::new(1, 0, 0), device), refused)
    }),
];

fn attend(tensors: &Tensors, pattern: &Pattern, hashing: &Lsh) -> Tensor<4> {
    let options = AttentionOptions::new().with_pattern(pattern.clone());
    lsh(
        tensors.query.clone(),
        tensors.value.clone(),
        hashing,
        &options,
    )
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

fn is_attention_of_shared_queries(
    problem: &Problem,
    pattern: &Pattern,
    hashing: &Lsh,
    device: &Device,
) -> Result<(), Failed> {
    let device = device.clone().autodiff();
    let of = |attend: &dyn Fn(&Tensors) -> Tensor<4>| {
        let tensors = Tensors::new(problem, &problem.inputs(), &device).require_grad();
        let context = attend(&tensors);
        let gradients = tensors.backward(context.clone());
        let [d_query, _, d_value] = tensors.gradients_by_inputs(&gradients);
        [numbers(context), d_query, d_value]
    };
    let got = of(&|tensors| attend(tensors, pattern, hashing));
    let want = of(&|tensors| of_shared_queries(tensors, pattern));
    for ((name, got), want) in ["context", "d_query", "d_value"].iter().zip(got).zip(want) {
        Precision::F32.backward(0.0).compare(name, &got, &want)?;
    }
    Ok(())
}

fn of_zeros(hashing: Lsh, device: &Device) -> Tensor<4> {
    let zeros = || Tensor::zeros([1, 2, 6, 2], device);
    lsh(zeros(), zeros(), &hashing, &AttentionOptions::new())
}
