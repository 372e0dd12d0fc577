//! The mechanisms that see less than all, or weigh by another formula: each on the
//! problems of the catalogue that show what is its own, at sizes that small problems
//! have several of.

use burn::tensor::{Device, Tensor};
use libtest_mimic::Failed;
use zoo_attention::mechanisms::{BigBird, Fixed, Linear, Performer, Strided};
use zoo_attention::{
    AttentionOptions, FeatureMap, LinearFeatures, Mechanism, MechanismConfig, RandomFeatures,
    attend, linear, standard,
};
use zoo_backend::Opened;
use zoo_conformance::{
    Suite, Tensors, Test, all_queries, check_gradients, judge_forward, judge_gradients, numbers,
    takes,
};
use zoo_oracle::{
    Difference, Input, Mask, Precision, Problem, SMALL_HEADS, find, kv_heads_of, small_for_tests,
};

pub(crate) fn trials(suite: &mut Suite, opened: &Opened) {
    for (name, mechanism) in mechanisms() {
        for problem in PROBLEMS {
            let problem = find(problem).expect("a problem of the catalogue");
            if !takes(&mechanism, &problem) {
                continue;
            }
            let (mechanism, device) = (mechanism, opened.device.clone());
            let trial = format!("{name}/{}/gradients", problem.name);
            suite.trials.push(crate::judged(trial, move || {
                check_gradients(&mechanism, &problem, &device)
            }));
        }
    }
    for mechanism in Mechanism::ALL {
        let config = small_for_tests(mechanism);
        for (word, dtype) in crate::half_types(opened) {
            // A software adapter compiles kernels for the wider heads for seconds each.
            let problems = if opened.software { 1 } else { 2 };
            for problem in aligned_problems(&config).into_iter().take(problems) {
                let device = opened.device.clone().autodiff();
                let name = format!("{mechanism}/{}/{word}", problem.name);
                suite.trials.push(crate::judged(name, move || {
                    let tensors = Tensors::new(&problem, &problem.inputs(), &device).cast(dtype);
                    judge_gradients(&config, &problem, tensors, &all_queries(&problem))
                }));
            }
        }
    }
    for (name, mechanism, problem) in long_ones() {
        suite.add_training(format!("{name}/{}", problem.name), move |device| {
            let queries = problem.sample_of_queries(40);
            let mut inputs = problem.inputs();
            inputs.keep_upstream_of(&queries, problem.d_value);
            let tensors = Tensors::new(&problem, &inputs, device);
            judge_gradients(&mechanism, &problem, tensors, &queries)?;
            Ok(())
        });
    }
    suite.add_table("", TESTS);
}

/// Between them: several tiles and chunks, odd sizes, more keys and more queries, shared
/// heads, padding, a single query, options, and rows that see nothing.
const PROBLEMS: &[&str] = &[
    "one",
    "odd",
    "causal",
    "causal-more-keys",
    "causal-more-queries",
    "causal-and-lengths",
    "key-padding",
    "several-tiles",
    "everything",
    "multi-query",
    "gpt2",
    "llama-decode",
];

/// What the catalogue has none of: sequences apart in both directions and with shared
/// heads, and more chunks than are added up at once.
fn long_ones() -> Vec<(&'static str, MechanismConfig, Problem)> {
    let grouped = Problem::new("both-directions", [2, 4, 50, 50, 8]).with_kv_heads(2);
    let long = Problem::new("groups-of-groups", [1, 1, 2200, 2200, 4]).with_mask(Mask::Causal);
    let strided = |stride| MechanismConfig::Strided(Strided { stride });
    let fixed = |block, summary| MechanismConfig::Fixed(Fixed { block, summary });
    vec![
        ("strided", strided(None), grouped.clone()),
        ("strided-by-16", strided(Some(16)), grouped.clone()),
        ("fixed", fixed(None, 2), grouped.clone()),
        // The last block has none of its summaries, and one of five.
        ("fixed-by-16", fixed(Some(16), 3), grouped.clone()),
        ("fixed-by-9", fixed(Some(9), 5), grouped),
        ("linear", Mechanism::Linear.into(), long.clone()),
        ("retention", Mechanism::Retention.into(), long),
    ]
}

/// Every mechanism but those that are full attention, at [small sizes](small_for_tests), and
/// some at others: sizes that follow from the length, several summaries, other features.
pub(crate) fn mechanisms() -> Vec<(&'static str, MechanismConfig)> {
    let fixed = |block, summary| MechanismConfig::Fixed(Fixed { block, summary });
    let others = [
        (
            "strided-by-length",
            MechanismConfig::Strided(Strided { stride: None }),
        ),
        ("fixed-by-length", fixed(None, 1)),
        ("fixed-with-two-summaries", fixed(Some(3), 2)),
        (
            "bigbird-with-neighbours",
            MechanismConfig::BigBird(BigBird {
                block: 2,
                neighbours: 1,
                global: 1,
                random: 1,
                seed: 5,
            }),
        ),
        (
            "linear-relu",
            MechanismConfig::Linear(Linear {
                features: LinearFeatures::Relu,
            }),
        ),
    ];
    (Mechanism::ALL.into_iter())
        .filter(|mechanism| Difference::of(*mechanism) != Difference::None)
        .map(|mechanism| (mechanism.word(), small_for_tests(mechanism)))
        .chain(others)
        .collect()
}

/// Heads and sequences as wide and as long as kernels for half precision want them: multiples of
/// 64, as in real layers. Other shapes may take another path.
pub(crate) fn aligned_problems(mechanism: &MechanismConfig) -> [Problem; 2] {
    let kv_heads = kv_heads_of(mechanism, SMALL_HEADS).unwrap_or(SMALL_HEADS);
    let of = |name, mask, [seq, d_head]: [usize; 2]| {
        Problem::new(name, [1, SMALL_HEADS, seq, seq, d_head])
            .with_kv_heads(kv_heads)
            .with_mask(mask)
    };
    let must_be_causal = Input::NotCausal.refused_by(mechanism.mechanism());
    let full = must_be_causal.map_or(Mask::Full, |_| Mask::Causal);
    [
        of("aligned-causal", Mask::Causal, [128, 64]),
        of("aligned-full", full, [64, 128]),
    ]
}

const TESTS: &[(&str, Test)] = &[
    ("linear/some-heads-at-a-time", |device| {
        // Three of four heads of keys are taken together, of one example.
        let problem = Problem::new("large-heads", [2, 8, 1100, 1100, 128])
            .with_kv_heads(4)
            .with_mask(Mask::KeyLengths(vec![1100, 700]));
        let causal = problem
            .clone()
            .with_mask(Mask::All(vec![Mask::Causal, problem.mask.clone()]));
        let queries = problem.sample_of_queries(24);
        for problem in [problem, causal] {
            let tensors = Tensors::new(&problem, &problem.inputs(), device);
            judge_forward(&Mechanism::Linear.into(), &problem, &tensors, &queries)?;
        }
        Ok(())
    }),
    ("performer/comes-nearer-with-more-features", |device| {
        let problem = Problem::new("approximated", [1, 2, 24, 40, 16]).with_spread(0.4);
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        let exact = numbers(tensors.apply(standard).context);
        // The mean square over seeds falls like 1/features.
        let error = |count: usize| {
            let seeds = 0..24;
            let squares: f64 = seeds
                .clone()
                .map(|seed| {
                    let features = FeatureMap::FavorPlus(RandomFeatures::new(count, seed));
                    let near = tensors.apply(|query, key, value, options| {
                        linear(query, key, value, features, options)
                    });
                    let pairs = numbers(near).into_iter().zip(&exact);
                    pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
                })
                .sum();
            (squares / (seeds.end as usize * exact.len()) as f64).sqrt()
        };
        let errors = [32, 128, 512].map(error);
        for pair in errors.windows(2) {
            let gain = pair[0] / pair[1];
            // Four times the features: half the error, give or take what seeds do.
            assert!(
                (1.5..=2.8).contains(&gain),
                "four times the features: {errors:?}"
            );
        }
        Ok(())
    }),
    ("strided/refuses-a-stride-of-zero", |device| {
        is_refused(
            device,
            MechanismConfig::Strided(Strided { stride: Some(0) }),
            "strided attention: a stride must be at least 1, got 0",
        )
    }),
    ("fixed/refuses-blocks-of-nothing", |device| {
        let empty = MechanismConfig::Fixed(Fixed {
            block: Some(0),
            summary: 1,
        });
        is_refused(
            device,
            empty,
            "fixed attention: a block must have places, got 0",
        )
    }),
    ("performer/refuses-no-features", |device| {
        let none = MechanismConfig::Performer(Performer {
            features: 0,
            seed: 0,
            redraw: None,
        });
        is_refused(
            device,
            none,
            "linear attention: there must be random features, got 0",
        )
    }),
    ("linear/features-that-are-almost-nothing", |device| {
        // The products of these features are smaller than any number there is.
        let far = Tensor::<4>::full([1, 1, 2, 1], -60.0, device);
        let near = Tensor::<4>::full([1, 1, 2, 1], -20.0, device);
        let value = Tensor::<4>::ones([1, 1, 2, 3], device);
        let of = |x: &Tensor<4>| {
            let options = AttentionOptions::new();
            let (query, key) = (x.clone(), x.clone());
            numbers(linear(
                query,
                key,
                value.clone(),
                FeatureMap::Elu1,
                &options,
            ))
        };
        let want = |wanted: f32, got: Vec<f32>| match got.iter().all(|x| (x - wanted).abs() < 1e-5)
        {
            true => Ok(()),
            false => Err(Failed::from(format!("{got:?} instead of {wanted}"))),
        };
        want(0.0, of(&far))?;
        want(1.0, of(&near))
    }),
    ("linear/hidden-keys-do-not-matter", |device| {
        let problem = find("key-padding").expect("a problem of the catalogue");
        let inputs = problem.inputs();
        let mut spoilt = inputs.clone();
        for row in 0..problem.batch * problem.kv_heads * problem.seq_k {
            let example = row / (problem.kv_heads * problem.seq_k);
            let first_query = example * problem.heads * problem.seq_q;
            if problem.hidden_from(first_query)[row % problem.seq_k] {
                spoilt.key[row * problem.d_head..][..problem.d_head].fill(1e3);
                spoilt.value[row * problem.d_value..][..problem.d_value].fill(f32::NAN);
            }
        }
        for mechanism in [Mechanism::Linear, Mechanism::Performer] {
            let of =
                |inputs| numbers(Tensors::new(&problem, inputs, device).attend(&mechanism.into()));
            let tolerance = Precision::F32.forward(0.0);
            tolerance.compare("context", &of(&spoilt), &of(&inputs))?;
        }
        Ok(())
    }),
];

fn is_refused(device: &Device, mechanism: MechanismConfig, message: &str) -> Result<(), Failed> {
    let options = AttentionOptions::new();
    let zeros = || Tensor::<4>::zeros([1, 2, 4, 4], device);
    zoo_conformance::is_refused(
        || attend(mechanism, zeros(), zeros(), zeros(), &options),
        message,
    )
}
