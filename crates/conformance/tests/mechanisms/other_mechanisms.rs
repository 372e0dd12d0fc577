//! Mechanisms other than full softmax attention, on the problems of the catalogue that they accept,
//! with sizes that fit several times into small problems.

use zoo_attention::flash::FlashKernel;
use zoo_attention::mechanisms::linear::linear;
use zoo_attention::mechanisms::{
    BigBird, Cosformer, Fixed, Linear, LinearFeatures, Linformer, Lsh, MechanismKernel, Moba,
    NativeSparse, Nystrom, Performer, Relative, Sigmoid, Sink, Strided, selected_kernel_of,
};
use zoo_attention::scan::{FeatureMap, LinearState, RandomFeatures, ScanKernel};
use zoo_oracle::{Precision, expected_kv_heads};

use crate::flash::default_kernel;
use crate::masked_values::filled;
use crate::prelude::*;
use crate::{MAX_ERRORS, add_problem_in_half, record_errors};

pub(crate) fn trials(suite: &mut Suite, opened: &OpenDevice) {
    for (name, mechanism) in mechanisms() {
        for (problem_name, problem) in accepted(&mechanism, PROBLEMS.map(find_problem)) {
            let trial = format!("{name}/{problem_name}/gradients");
            suite.add(trial, move |device| {
                record_errors(&MAX_ERRORS, check_gradients(&mechanism, &problem, device));
            });
        }
    }
    for mechanism in Mechanism::ALL {
        let config = mechanism.small_for_tests();
        // A software adapter takes seconds to compile each kernel for the wider heads.
        let problems = if opened.software { 1 } else { 2 };
        for problem in aligned_problems(&config).into_iter().take(problems) {
            add_problem_in_half(suite, mechanism.name(), &config, &problem, opened);
        }
    }
    for (name, mechanism, problem) in extra_problems() {
        suite.add_training(format!("{name}/{}", problem.name), move |device| {
            let queries = problem.sample_queries(40);
            let mut inputs = problem.inputs();
            inputs.zero_output_grad_except(&queries, problem.d_value);
            let tensors = Tensors::new(&problem, &inputs, device);
            must(compare_gradients(&mechanism, &problem, tensors, &queries));
        });
    }
    suite.add_table("", TESTS);
}

/// Several tiles and chunks, odd sizes, more keys and more queries, shared heads, padding, a single
/// query, options, and fully masked rows.
const PROBLEMS: [&str; 12] = [
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

/// Problems that the catalogue does not have: bidirectional patterns with shared heads, and more
/// chunks than are summed at once.
fn extra_problems() -> Vec<(&'static str, MechanismConfig, Problem)> {
    let grouped = Problem::new("both-directions", [2, 4, 50, 50, 8]).with_kv_heads(2);
    // Several blocks of columns, in the last of which a part is padding.
    let wide = Problem::new("wide-heads", [1, 4, 70, 100, 100])
        .with_kv_heads(2)
        .with_d_value(70)
        .with_mask(Mask::Causal);
    // Segments of two sizes, of which some are masked.
    let lengths = Problem::new("lengths", [2, 4, 90, 310, 16])
        .with_kv_heads(2)
        .with_d_value(12)
        .with_mask(Mask::KeyLengths(vec![310, 77]));
    let causal_lengths = Problem::new("causal-lengths", [2, 4, 230, 300, 16])
        .with_kv_heads(2)
        .with_softcap(1.5)
        .with_mask(Mask::All(vec![
            Mask::Causal,
            Mask::KeyLengths(vec![300, 250]),
        ]));
    // Blocks with more keys than a gathered tile.
    let long_blocks = Problem::new("long-blocks", [1, 2, 500, 500, 8])
        .with_d_value(12)
        .with_mask(Mask::Causal);
    let moba = |block_size, top_k| Moba { block_size, top_k }.into();
    let native_sparse = |block_size, top_k, window| {
        NativeSparse {
            block_size,
            top_k,
            window,
        }
        .into()
    };
    let nystrom = Nystrom {
        landmarks: 24,
        iterations: 6,
    };
    let nystrom = nystrom.into();
    let linformer = Linformer {
        rank: 20,
        length: 320,
    };
    let linformer = linformer.into();
    let long = Problem::new("groups-of-groups", [1, 1, 2200, 2200, 4]).with_mask(Mask::Causal);
    // Several rows and tiles of gathered queries and keys.
    let options = Problem::new("options", [2, 4, 230, 300, 8])
        .with_kv_heads(2)
        .with_d_value(5)
        .with_alibi()
        .with_bias([1, 4, 230, 300])
        .with_dropout((0.2, 5))
        .with_mask(Mask::All(vec![
            Mask::Causal,
            Mask::KeyLengths(vec![300, 250]),
        ]));
    let dense = Problem::new("dense-mask", [2, 2, 230, 150, 8]).with_mask(Mask::Random {
        masked: 0.3,
        fully_masked_every: 7,
    });
    let strided = |stride| Strided { stride }.into();
    let fixed = |block, summary| {
        Fixed {
            block_size: block,
            summary,
        }
        .into()
    };
    vec![
        ("strided-by-3", strided(Some(3)), options.clone()),
        ("strided-by-70", strided(Some(70)), options.clone()),
        ("fixed-by-70", fixed(Some(70), 30), options.clone()),
        ("fixed-by-7", fixed(Some(7), 4), options),
        ("strided-by-11", strided(Some(11)), dense.clone()),
        ("fixed-by-11", fixed(Some(11), 3), dense),
        ("strided", strided(None), grouped.clone()),
        ("strided-by-16", strided(Some(16)), grouped.clone()),
        ("fixed", fixed(None, 2), grouped.clone()),
        // The last block has none of its summary columns, and one of five.
        ("fixed-by-16", fixed(Some(16), 3), grouped.clone()),
        ("fixed-by-9", fixed(Some(9), 5), grouped.clone()),
        ("linear", Mechanism::Linear.into(), grouped.clone()),
        ("linear", Mechanism::Linear.into(), wide.clone()),
        ("cosformer", Mechanism::Cosformer.into(), grouped.clone()),
        ("moba", moba(10, 3), grouped.clone()),
        // More than 64 queries select a block, others are not selected at all, and the last is short.
        ("moba", moba(40, 2), causal_lengths.clone()),
        ("moba", moba(120, 3), long_blocks.clone()),
        ("native-sparse", native_sparse(10, 3, 12), grouped.clone()),
        ("native-sparse", native_sparse(40, 2, 70), causal_lengths),
        ("native-sparse", native_sparse(120, 3, 0), long_blocks),
        ("native-sparse", native_sparse(16, 2, 20), lengths.clone()),
        ("nystrom", nystrom, grouped.clone()),
        ("nystrom", nystrom, lengths.clone()),
        ("linformer", linformer, grouped.clone()),
        ("linformer", linformer, lengths),
        ("cosformer", Mechanism::Cosformer.into(), wide.clone()),
        ("based", Mechanism::Based.into(), grouped.clone()),
        ("retention", Mechanism::Retention.into(), wide),
        ("linear", Mechanism::Linear.into(), long.clone()),
        ("retention", Mechanism::Retention.into(), long),
    ]
}

/// All mechanisms that differ from full attention at [small sizes](Mechanism::small_for_tests), and
/// some with other options: sizes derived from the length, several summary columns, other features.
pub(crate) fn mechanisms() -> Vec<(&'static str, MechanismConfig)> {
    let fixed = |block, summary| {
        Fixed {
            block_size: block,
            summary,
        }
        .into()
    };
    let bigbird = BigBird {
        block_size: 2,
        neighbours: 1,
        global: 1,
        random: 1,
        seed: 5,
    };
    let features = LinearFeatures::Relu;
    let sink = Sink {
        learned: false,
        window: None,
        first: 1,
    };
    let one_direction = Relative {
        num_buckets: 5,
        max_distance: 2,
        bidirectional: false,
    };
    let variants = [
        ("sink-without-window", sink.into()),
        ("sigmoid-by-length", Sigmoid { length: None }.into()),
        ("relative-in-one-direction", one_direction.into()),
        ("cosformer-by-length", Cosformer { length: None }.into()),
        ("strided-by-length", Strided { stride: None }.into()),
        ("fixed-by-length", fixed(None, 1)),
        ("fixed-with-two-summary-columns", fixed(Some(3), 2)),
        ("bigbird-with-neighbours", bigbird.into()),
        (
            "linear-relu",
            Linear {
                feature_map: features,
            }
            .into(),
        ),
    ];
    (Mechanism::ALL.into_iter())
        .filter(|mechanism| Difference::from(*mechanism) != Difference::None)
        .map(|mechanism| (mechanism.name(), mechanism.small_for_tests()))
        .chain(variants)
        .collect()
}

/// [`mechanisms`] with `standard` and `flash`.
pub(crate) fn with_softmax() -> Vec<(&'static str, MechanismConfig)> {
    let mut all = mechanisms();
    all.push(("standard", Mechanism::Standard.into()));
    all.push(("flash", Mechanism::Flash.into()));
    all
}

/// The problems that the mechanism accepts, with their names.
pub(crate) fn accepted(
    mechanism: &MechanismConfig,
    problems: impl IntoIterator<Item = Problem>,
) -> Vec<(&'static str, Problem)> {
    let problems = problems.into_iter();
    let accepted = problems.filter(|problem| accepts(mechanism, problem));
    accepted.map(|problem| (problem.name, problem)).collect()
}

/// The problem with a number of KV heads that the mechanism accepts; none if it does not accept the
/// problem.
pub(crate) fn with_heads_of(mechanism: &MechanismConfig, problem: Problem) -> Option<Problem> {
    let problems = [4, 2, 1].map(|kv_heads| problem.clone().with_kv_heads(kv_heads));
    problems
        .into_iter()
        .find(|problem| accepts(mechanism, problem))
}

/// Problems with sizes that are multiples of 64, as in real layers, which half-precision kernels
/// need. Other shapes may use other kernels.
pub(crate) fn aligned_problems(mechanism: &MechanismConfig) -> [Problem; 2] {
    let kv_heads = expected_kv_heads(mechanism, SMALL_HEADS).unwrap_or(SMALL_HEADS);
    let problem = |name, mask, [seq, d_head]: [usize; 2]| {
        Problem::new(name, [1, SMALL_HEADS, seq, seq, d_head])
            .with_kv_heads(kv_heads)
            .with_mask(mask)
    };
    let supports = |requirement: Requirement| {
        let reason = requirement.unsupported_reason(mechanism.mechanism());
        reason.is_none()
    };
    let or = |mask: Mask, other: Mask, is_supported: bool| if is_supported { mask } else { other };
    let full = or(
        Mask::Full,
        Mask::Causal,
        supports(Requirement::Bidirectional),
    );
    let causal = or(Mask::Causal, Mask::Full, supports(Requirement::Causal));
    [
        problem("aligned-causal", causal, [128, 64]),
        problem("aligned-full", full, [64, 128]),
    ]
}

const TESTS: &[(&str, Test)] = &[
    ("linear/has-a-kernel-for-inference-and-training", |device| {
        let flash = default_kernel(device);
        let expected = match flash {
            kernel if kernel.is_cpu() => ScanKernel::Cpu,
            FlashKernel::Cube => ScanKernel::Cube,
            _ => ScanKernel::Composite,
        };
        for mechanism in [
            Mechanism::Linear,
            Mechanism::Retention,
            Mechanism::Performer,
            Mechanism::Mamba2,
            Mechanism::GatedDelta,
            Mechanism::Kda,
        ] {
            let config = mechanism.into();
            let problem = Problem::new("kernel", [2, 4, 30, 70, 5]).with_mask(Mask::Causal);
            for device in [device.clone(), device.clone().autodiff()] {
                let tensors = Tensors::from_problem(&problem, &device);
                let [query, key, value] = [&tensors.query, &tensors.key, &tensors.value];
                let kernel = selected_kernel_of(&config, query, key, value, &tensors.options);
                let expected = Some(MechanismKernel::Scan(expected));
                assert_eq!(kernel, expected, "{}, flash: {flash}", mechanism.name());
            }
        }
    }),
    ("linear/heads-in-several-groups", |device| {
        // Three of four KV heads of one example are processed together.
        let problem = Problem::new("large-heads", [2, 8, 1100, 1100, 128])
            .with_kv_heads(4)
            .with_mask(Mask::KeyLengths(vec![1100, 700]));
        let causal = problem
            .clone()
            .with_mask(Mask::All(vec![Mask::Causal, problem.mask.clone()]));
        let queries = problem.sample_queries(24);
        for problem in [problem, causal] {
            let tensors = Tensors::from_problem(&problem, device);
            let linear = Mechanism::Linear.into();
            must(compare_forward(&linear, &problem, &tensors, &queries));
        }
    }),
    ("performer/error-decreases-with-features", |device| {
        let problem = Problem::new("approximated", [1, 2, 24, 40, 16]).with_std(0.4);
        let tensors = Tensors::from_problem(&problem, device);
        let exact = to_vec(tensors.apply(standard).context);
        // The mean squared error over seeds is proportional to 1/features.
        let errors = [32, 128, 512].map(|count| {
            error_over_seeds(0..24, &exact, |seed| {
                let features = FeatureMap::FavorPlus(RandomFeatures::new(count, seed));
                tensors.apply(|query, key, value, options| {
                    linear(query, key, value, features, options)
                })
            })
        });
        // Four times the features halve the error, up to the variance over seeds.
        let is_half = |pair: &[f64]| (1.5..=2.8).contains(&(pair[0] / pair[1]));
        assert!(errors.windows(2).all(is_half), "{errors:?}");
    }),
    ("cosformer/longer-sequences-are-rejected", |device| {
        let problem = Problem::new("longer", [1, 2, 3, 9, 4]);
        let mechanism = Cosformer { length: Some(8) }.into();
        let tensors = Tensors::from_problem(&problem, device);
        let message = "linear attention: a sequence may have up to 8 positions, got 9; help: set \
                       the length of cosine features to that of the longest sequence";
        assert_panics_with(|| tensors.attend(&mechanism), message);
        let mut state = LinearState::from_features(FeatureMap::Cosine(8));
        let rows = |rows: usize| tensors.key.clone().slice_dim(2, 0..rows);
        state.extend(rows(5), rows(5), None);
        assert_panics_containing(
            || state.clone().extend(rows(4), rows(4), None),
            "a sequence may have up to 8 positions, got 9",
        );
        state.extend(rows(3), rows(3), None);
    }),
    ("linformer/longer-sequences-are-rejected", |device| {
        let problem = Problem::new("longer", [1, 2, 3, 9, 4]);
        let mechanism = Linformer { rank: 3, length: 8 }.into();
        let tensors = Tensors::from_problem(&problem, device);
        let message = "Linformer attention: a sequence may have up to 8 positions, got 9; help: set \
                       `length` to that of the longest sequence";
        assert_panics_with(|| tensors.attend(&mechanism), message);
    }),
    ("invalid/sizes-of-zero", |device| {
        let problem = Problem::new("refused", [1, 2, 4, 4, 4]);
        let strided = Strided { stride: Some(0) };
        let (block, summary) = (Some(0), 1);
        let fixed = Fixed {
            block_size: block,
            summary,
        };
        let performer = Performer {
            n_features: 0,
            ..Performer::default()
        };
        let features = "linear attention: the number of random features";
        let nystrom = Nystrom {
            landmarks: 0,
            iterations: 6,
        };
        let moba = |block_size, top_k| Moba { block_size, top_k };
        let native_sparse = |block_size, top_k| NativeSparse {
            block_size,
            top_k,
            window: 1,
        };
        let blocks = "native sparse attention: block_size";
        let invalid: [(MechanismConfig, &str); 10] = [
            (native_sparse(0, 1).into(), blocks),
            (native_sparse(1, 0).into(), "native sparse attention: top_k"),
            (moba(0, 1).into(), "block attention: block_size"),
            (moba(1, 0).into(), "block attention: top_k"),
            (nystrom.into(), "Nyström attention: landmarks"),
            (strided.into(), "strided attention: a stride"),
            (fixed.into(), "fixed attention: a block size"),
            (performer.into(), features),
            (Lsh::new(0, 1, 0).into(), "lsh attention: bucket_size"),
            (Lsh::new(1, 0, 0).into(), "lsh attention: n_hashes"),
        ];
        for (mechanism, size) in invalid {
            let tensors = Tensors::from_problem(&problem, device);
            let message = format!("{size} must be at least 1, got 0");
            assert_panics_with(|| tensors.attend(&mechanism), &message);
        }
    }),
    ("linear/features-that-underflow", |device| {
        // Products of the features of `far` underflow to zero.
        let far = Tensor::<4>::full([1, 1, 2, 1], -60.0, device);
        let near = Tensor::<4>::full([1, 1, 2, 1], -20.0, device);
        let value = Tensor::<4>::ones([1, 1, 2, 3], device);
        for (x, expected) in [(far, 0.0), (near, 1.0)] {
            let options = AttentionOptions::new();
            let got = linear(x.clone(), x, value.clone(), FeatureMap::Elu1, &options);
            let got = to_vec(got);
            let is_close = got.iter().all(|x| (x - expected).abs() < 1e-5);
            assert!(is_close, "{got:?}, expected {expected}");
        }
    }),
    ("linear/masked-keys-have-no-effect", |device| {
        let problem = find_problem("key-padding");
        let is_masked = |example: usize, key: usize| {
            problem.mask_row(example * problem.heads * problem.seq_q)[key]
        };
        for mechanism in [Mechanism::Linear, Mechanism::Performer].map(MechanismConfig::from) {
            let context = |value: f32| {
                let tensors = filled(&mechanism, &problem, is_masked, value, device);
                to_vec(tensors.attend(&mechanism))
            };
            for value in [1e3, f32::NAN] {
                let tolerance = Precision::F32.forward(0.0);
                must(tolerance.compare("context", &context(value), &context(0.0)));
            }
        }
    }),
];

/// The root mean squared error over seeds.
pub(crate) fn error_over_seeds(
    seeds: std::ops::Range<u64>,
    exact: &[f32],
    attend: impl Fn(u64) -> Tensor<4>,
) -> f64 {
    let squared_error = |seed| {
        let pairs = to_vec(attend(seed)).into_iter().zip(exact);
        pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
    };
    let count = seeds.end as usize * exact.len();
    (seeds.map(squared_error).sum::<f64>() / count as f64).sqrt()
}
