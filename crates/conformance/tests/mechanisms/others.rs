//! The mechanisms that see less than all, or weigh by another formula: each on the
//! problems of the catalogue that show what is its own, at sizes that small problems
//! have several of.

use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::{BigBird, Fixed, Linear, Performer, Strided};
use zoo_attention::{
    AttentionOptions, FeatureMap, LinearFeatures, Lsh, Mechanism, MechanismConfig, RandomFeatures,
    linear, standard,
};
use zoo_backend::Opened;
use zoo_conformance::*;
use zoo_oracle::{
    Difference, Input, Mask, Precision, Problem, SMALL_HEADS, kv_heads_of, small_for_tests,
};

use crate::hidden::fill;
use crate::{WORST, counted, judged_in_half, named};

pub(crate) fn trials(suite: &mut Suite, opened: &Opened) {
    for (name, mechanism) in mechanisms() {
        for problem in PROBLEMS.iter().map(|problem| named(problem)) {
            if takes(&mechanism, &problem) {
                let trial = format!("{name}/{}/gradients", problem.name);
                suite.add(trial, move |device| {
                    counted(&WORST, check_gradients(&mechanism, &problem, device));
                });
            }
        }
    }
    for mechanism in Mechanism::ALL {
        let config = small_for_tests(mechanism);
        // A software adapter compiles kernels for the wider heads for seconds each.
        let problems = if opened.software { 1 } else { 2 };
        for problem in aligned_problems(&config).into_iter().take(problems) {
            judged_in_half(suite, mechanism.word(), &config, &problem, opened);
        }
    }
    for (name, mechanism, problem) in long_ones() {
        suite.add_training(format!("{name}/{}", problem.name), move |device| {
            let queries = problem.sample_of_queries(40);
            let mut inputs = problem.inputs();
            inputs.keep_upstream_of(&queries, problem.d_value);
            let tensors = Tensors::new(&problem, &inputs, device);
            must(judge_gradients(&mechanism, &problem, tensors, &queries));
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
    let strided = |stride| Strided { stride }.into();
    let fixed = |block, summary| Fixed { block, summary }.into();
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
    let fixed = |block, summary| Fixed { block, summary }.into();
    let bigbird = BigBird {
        block: 2,
        neighbours: 1,
        global: 1,
        random: 1,
        seed: 5,
    };
    let features = LinearFeatures::Relu;
    let others = [
        ("strided-by-length", Strided { stride: None }.into()),
        ("fixed-by-length", fixed(None, 1)),
        ("fixed-with-two-summaries", fixed(Some(3), 2)),
        ("bigbird-with-neighbours", bigbird.into()),
        ("linear-relu", Linear { features }.into()),
    ];
    (Mechanism::ALL.into_iter())
        .filter(|mechanism| Difference::of(*mechanism) != Difference::None)
        .map(|mechanism| (mechanism.word(), small_for_tests(mechanism)))
        .chain(others)
        .collect()
}

/// The same with those that are full attention.
pub(crate) fn with_softmax() -> Vec<(&'static str, MechanismConfig)> {
    let mut all = mechanisms();
    all.push(("standard", Mechanism::Standard.into()));
    all.push(("flash", Mechanism::Flash.into()));
    all
}

/// The problem with as many key and value heads as the mechanism has; none if it does not take
/// the problem.
pub(crate) fn with_heads_of(mechanism: &MechanismConfig, problem: Problem) -> Option<Problem> {
    let problems = [4, 2, 1].map(|kv_heads| problem.clone().with_kv_heads(kv_heads));
    let mut taken = problems
        .into_iter()
        .filter(|problem| takes(mechanism, problem));
    taken.next()
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
            let tensors = Tensors::of(&problem, device);
            let linear = Mechanism::Linear.into();
            must(judge_forward(&linear, &problem, &tensors, &queries));
        }
    }),
    ("performer/comes-nearer-with-more-features", |device| {
        let problem = Problem::new("approximated", [1, 2, 24, 40, 16]).with_spread(0.4);
        let tensors = Tensors::of(&problem, device);
        let exact = numbers(tensors.apply(standard).context);
        // The mean square over seeds falls like 1/features.
        let errors = [32, 128, 512].map(|count| {
            error_over_seeds(0..24, &exact, |seed| {
                let features = FeatureMap::FavorPlus(RandomFeatures::new(count, seed));
                tensors.apply(|query, key, value, options| {
                    linear(query, key, value, features, options)
                })
            })
        });
        // Four times the features: half the error, give or take what seeds do.
        let is_half = |pair: &[f64]| (1.5..=2.8).contains(&(pair[0] / pair[1]));
        assert!(errors.windows(2).all(is_half), "{errors:?}");
    }),
    ("strided/refuses-a-stride-of-zero", |device| {
        let said = "strided attention: a stride must be at least 1, got 0";
        refused(Strided { stride: Some(0) }, said, device);
    }),
    ("fixed/refuses-blocks-of-nothing", |device| {
        let (block, summary) = (Some(0), 1);
        let said = "fixed attention: a block must have places, got 0";
        refused(Fixed { block, summary }, said, device);
    }),
    ("performer/refuses-no-features", |device| {
        let none = Performer {
            features: 0,
            ..Performer::default()
        };
        let said = "linear attention: there must be random features, got 0";
        refused(none, said, device);
    }),
    ("lsh/misuse/no-bucket", |device| {
        let said = "lsh attention: a bucket must be at least 1, got 0";
        refused(Lsh::new(0, 1, 0), said, device);
    }),
    ("lsh/misuse/no-rounds", |device| {
        let said = "lsh attention: rounds must be at least 1, got 0";
        refused(Lsh::new(1, 0, 0), said, device);
    }),
    ("linear/features-that-are-almost-nothing", |device| {
        // The products of these features are smaller than any number there is.
        let far = Tensor::<4>::full([1, 1, 2, 1], -60.0, device);
        let near = Tensor::<4>::full([1, 1, 2, 1], -20.0, device);
        let value = Tensor::<4>::ones([1, 1, 2, 3], device);
        for (x, wanted) in [(far, 0.0), (near, 1.0)] {
            let options = AttentionOptions::new();
            let got = linear(x.clone(), x, value.clone(), FeatureMap::Elu1, &options);
            let got = numbers(got);
            let is_near = got.iter().all(|x| (x - wanted).abs() < 1e-5);
            assert!(is_near, "{got:?} instead of {wanted}");
        }
    }),
    ("linear/hidden-keys-do-not-matter", |device| {
        let problem = named("key-padding");
        let is_hidden = |example: usize, key: usize| {
            problem.hidden_from(example * problem.heads * problem.seq_q)[key]
        };
        for mechanism in [Mechanism::Linear, Mechanism::Performer].map(MechanismConfig::from) {
            let of = |element: f32| {
                let mut inputs = problem.inputs();
                fill(&mechanism, &problem, &mut inputs, is_hidden, element);
                numbers(Tensors::new(&problem, &inputs, device).attend(&mechanism))
            };
            for garbage in [1e3, f32::NAN] {
                let tolerance = Precision::F32.forward(0.0);
                must(tolerance.compare("context", &of(garbage), &of(0.0)));
            }
        }
    }),
];

/// The root mean square over seeds of what results are off by.
pub(crate) fn error_over_seeds(
    seeds: std::ops::Range<u64>,
    exact: &[f32],
    attend: impl Fn(u64) -> Tensor<4>,
) -> f64 {
    let of_seed = |seed| {
        let pairs = numbers(attend(seed)).into_iter().zip(exact);
        pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
    };
    let count = seeds.end as usize * exact.len();
    (seeds.map(of_seed).sum::<f64>() / count as f64).sqrt()
}

fn refused(mechanism: impl Into<MechanismConfig>, message: &str, device: &Device) {
    let problem = Problem::new("refused", [1, 2, 4, 4, 4]);
    let mechanism = mechanism.into();
    is_refused(|| Tensors::of(&problem, device).attend(&mechanism), message);
}
