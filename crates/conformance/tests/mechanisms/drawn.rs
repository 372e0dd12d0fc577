//! Problems that nobody thought of: sizes, patterns and options drawn at random for every
//! mechanism, each compared with the oracle. A failure is made as small as it can be, and told
//! in full.

use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use zoo_attention::mechanisms::{
    BigBird, Block, Fixed, GroupedQuery, Hard, Linear, LocalM, LocalP, Longformer, Lsh, Performer,
    SlidingWindow, Strided,
};
use zoo_attention::{LinearFeatures, Mechanism, MechanismConfig};
use zoo_backend::Opened;
use zoo_conformance::{Tensors, check_forward, check_gradients, given};
use zoo_oracle::{Difference, Input, Mask, Problem, solve};

/// Enough that every pattern meets every option a few times.
const CASES: u32 = 96;
/// The mechanisms that are not full attention are computed by it, or have fewer paths.
const CASES_OF_OTHERS: u32 = 24;
/// A software adapter compiles kernels for each new shape, a second or two long.
const CASES_ON_SOFTWARE: u32 = 12;
const CASES_OF_OTHERS_ON_SOFTWARE: u32 = 1;

pub(crate) fn trial(mechanism: Mechanism, opened: &Opened) -> Trial {
    let device = opened.device.clone();
    let is_full = Difference::of(mechanism) == Difference::None;
    let cases = match (is_full, opened.software) {
        (true, false) => CASES,
        (true, true) => CASES_ON_SOFTWARE,
        (false, false) => CASES_OF_OTHERS,
        (false, true) => CASES_OF_OTHERS_ON_SOFTWARE,
    };
    Trial::test(format!("{mechanism}/drawn"), move || {
        let config = Config {
            cases,
            failure_persistence: None,
            // The same on every machine: what fails here fails there.
            rng_seed: RngSeed::Fixed(mechanism as u64 + 1),
            ..Config::default()
        };
        let drawn = (sizes(mechanism), problem(Accepts::of(mechanism)));
        TestRunner::new(config)
            .run(&drawn, |(mechanism, problem)| {
                let (mechanism, problem) = fitted(mechanism, problem);
                if chooses(mechanism.mechanism()) {
                    let tensors = Tensors::new(&problem, &problem.inputs(), &device);
                    let answer = solve(&given(&mechanism, &problem, &tensors), &tensors.inputs());
                    // Closer than this, `f32` may choose another key, and be right.
                    prop_assume!(answer.margin > 1e-4);
                }
                // What is differentiated is computed forward, too; without gradients, there may
                // be other ways.
                if cases > CASES_OF_OTHERS_ON_SOFTWARE {
                    check_forward(&mechanism, &problem, &device)
                        .map_err(|mismatch| TestCaseError::fail(mismatch.to_string()))?;
                }
                check_gradients(&mechanism, &problem, &device)
                    .map(|_| ())
                    .map_err(|mismatch| TestCaseError::fail(mismatch.to_string()))
            })
            .map_err(|failure| Failed::from(failure.to_string()))
    })
}

/// Whether a rounding error can make it see other keys.
fn chooses(mechanism: Mechanism) -> bool {
    matches!(mechanism, Mechanism::Hard | Mechanism::LocalP)
}

/// What a mechanism can be given.
#[derive(Debug, Clone, Copy)]
struct Accepts {
    softcap: bool,
    alibi: bool,
    bias: bool,
    dropout: bool,
    /// Any mask, or key lengths and key padding alone, causal or not.
    any_mask: bool,
    not_causal: bool,
    other_length: bool,
    shared_heads: bool,
}

impl Accepts {
    fn of(mechanism: Mechanism) -> Self {
        let accepts = |input: Input| input.refused_by(mechanism).is_none();
        Self {
            softcap: accepts(Input::Softcap),
            alibi: accepts(Input::Alibi),
            bias: accepts(Input::Bias),
            dropout: accepts(Input::Dropout),
            any_mask: accepts(Input::DenseMask),
            not_causal: accepts(Input::NotCausal),
            other_length: accepts(Input::OtherLength),
            shared_heads: accepts(Input::SharedHeads),
        }
    }
}

/// A mechanism at sizes from the smallest to some beyond the longest sequence.
fn sizes(mechanism: Mechanism) -> BoxedStrategy<MechanismConfig> {
    let size = || prop_oneof![1..8usize, 1..150usize];
    match mechanism {
        Mechanism::Standard
        | Mechanism::Flash
        | Mechanism::MultiQuery
        | Mechanism::GroupedQuery
        | Mechanism::Dot
        | Mechanism::Multiplicative
        | Mechanism::Additive
        | Mechanism::Retention => Just(mechanism.into()).boxed(),
        Mechanism::Hard => (0.3..3.0, any::<u64>())
            .prop_map(|(temperature, seed)| MechanismConfig::Hard(Hard { temperature, seed }))
            .boxed(),
        Mechanism::SlidingWindow => size()
            .prop_map(|window| MechanismConfig::SlidingWindow(SlidingWindow { window: window - 1 }))
            .boxed(),
        Mechanism::LocalM => size()
            .prop_map(|window| MechanismConfig::LocalM(LocalM { window: window - 1 }))
            .boxed(),
        Mechanism::LocalP => size()
            .prop_map(|window| MechanismConfig::LocalP(LocalP { window }))
            .boxed(),
        Mechanism::Block => size()
            .prop_map(|size| MechanismConfig::Block(Block { size }))
            .boxed(),
        Mechanism::Strided => proptest::option::of(size())
            .prop_map(|stride| MechanismConfig::Strided(Strided { stride }))
            .boxed(),
        Mechanism::Fixed => (proptest::option::of(size()), 0..6usize)
            .prop_map(|(block, summary)| MechanismConfig::Fixed(Fixed { block, summary }))
            .boxed(),
        Mechanism::Longformer => (size(), 0..4usize)
            .prop_map(|(window, global)| MechanismConfig::Longformer(Longformer { window, global }))
            .boxed(),
        Mechanism::BigBird => (1..30usize, 0..3usize, 0..3usize, 0..4usize, any::<u64>())
            .prop_map(|(block, neighbours, global, random, seed)| {
                MechanismConfig::BigBird(BigBird {
                    block,
                    neighbours,
                    global,
                    random,
                    seed,
                })
            })
            .boxed(),
        Mechanism::Lsh => (size(), 1..4usize, any::<u64>())
            .prop_map(|(bucket, rounds, seed)| {
                MechanismConfig::Lsh(Lsh {
                    bucket,
                    rounds,
                    seed,
                })
            })
            .boxed(),
        Mechanism::Linear => prop_oneof![Just(LinearFeatures::Elu1), Just(LinearFeatures::Relu)]
            .prop_map(|features| MechanismConfig::Linear(Linear { features }))
            .boxed(),
        Mechanism::Performer => (1..40usize, any::<u64>())
            .prop_map(|(features, seed)| {
                MechanismConfig::Performer(Performer {
                    features,
                    seed,
                    redraw: None,
                })
            })
            .boxed(),
    }
}

/// The two with the same number of key and value heads.
fn fitted(mechanism: MechanismConfig, problem: Problem) -> (MechanismConfig, Problem) {
    let kv_heads = Some(problem.kv_heads);
    match mechanism {
        MechanismConfig::MultiQuery(_) => (
            mechanism,
            Problem {
                kv_heads: 1,
                ..problem
            },
        ),
        MechanismConfig::GroupedQuery(_) => (
            MechanismConfig::GroupedQuery(GroupedQuery { kv_heads }),
            problem,
        ),
        _ => (mechanism, problem),
    }
}

prop_compose! {
    fn problem(accepts: Accepts)(
        batch in 1..3usize,
        kv_heads in 1..3usize,
        group in 1..3usize,
        // Up to three tiles of queries and two of keys on the CPU.
        seq_q in prop_oneof![1..12usize, 60..70usize, 1..130usize],
        seq_k in prop_oneof![1..12usize, 94..98usize, 1..130usize],
        d_head in 1..20usize,
        d_value in 1..20usize,
    )(
        mask in mask(batch, seq_k, accepts),
        scale in proptest::option::weighted(0.3, 0.1..2.0),
        softcap in proptest::option::weighted(0.3, 0.5..10.0),
        alibi in any::<bool>(),
        bias in proptest::option::weighted(0.4, [any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()]),
        dropout in proptest::option::weighted(0.3, (0.0..0.9, any::<u64>())),
        batch in Just(batch),
        kv_heads in Just(if accepts.shared_heads { kv_heads } else { kv_heads * group }),
        heads in Just(kv_heads * group),
        seq_q in Just(if accepts.other_length { seq_q } else { seq_k }),
        seq_k in Just(seq_k),
        d_head in Just(d_head),
        d_value in Just(d_value),
    ) -> Problem {
        Problem {
            kv_heads,
            d_value,
            scale,
            softcap: softcap.filter(|_| accepts.softcap),
            alibi: alibi && accepts.alibi,
            bias: bias.filter(|_| accepts.bias).map(|shared| {
                let full = [batch, heads, seq_q, seq_k];
                std::array::from_fn(|dim| if shared[dim] { 1 } else { full[dim] })
            }),
            dropout: dropout.filter(|_| accepts.dropout),
            mask,
            ..Problem::new("drawn", [batch, heads, seq_q, seq_k, d_head])
        }
    }
}

fn mask(batch: usize, seq_k: usize, accepts: Accepts) -> BoxedStrategy<Mask> {
    let mask = match accepts.any_mask {
        true => any_mask(batch, seq_k).boxed(),
        false => prop_oneof![
            2 => Just(Mask::Full),
            2 => Just(Mask::Causal),
            1 => keys_mask(batch, seq_k),
            2 => keys_mask(batch, seq_k).prop_map(|keys| Mask::All(vec![Mask::Causal, keys])),
        ]
        .boxed(),
    };
    match accepts.not_causal {
        true => mask,
        false => mask
            .prop_map(|mask| Mask::All(vec![Mask::Causal, mask]))
            .boxed(),
    }
}

/// What can be said of keys alone.
fn keys_mask(batch: usize, seq_k: usize) -> impl Strategy<Value = Mask> {
    prop_oneof![
        proptest::collection::vec(0..=seq_k, batch).prop_map(Mask::KeyLengths),
        proptest::collection::vec(proptest::collection::vec(any::<bool>(), seq_k), batch)
            .prop_map(Mask::KeyPadding),
    ]
}

fn any_mask(batch: usize, seq_k: usize) -> impl Strategy<Value = Mask> {
    let places = move || proptest::collection::vec(0..seq_k, 0..4);
    let leaf = prop_oneof![
        2 => Just(Mask::Full),
        2 => Just(Mask::Causal),
        2 => (0..40usize, 0..40usize).prop_map(|(left, right)| Mask::Window { left, right }),
        1 => (1..40usize).prop_map(Mask::Block),
        1 => (1..40usize).prop_flat_map(move |size| {
            let blocks = seq_k.div_ceil(size);
            let seen = proptest::collection::vec(0..blocks, 0..3);
            proptest::collection::vec(seen, blocks)
                .prop_map(move |seen| Mask::Blocks { size, seen })
        }),
        1 => (1..20usize).prop_map(Mask::Strided),
        1 => (1..40usize, 0..6usize)
            .prop_map(|(block, summary)| Mask::Summaries { block, summary }),
        1 => (0..40usize).prop_map(Mask::Monotonic),
        1 => Just(Mask::PowersOfTwo),
        1 => places().prop_map(Mask::Global),
        1 => proptest::collection::vec(proptest::collection::vec(0..3usize, seq_k), batch)
            .prop_map(Mask::Documents),
        2 => keys_mask(batch, seq_k),
        1 => (0.0..1.0, 1..5usize)
            .prop_map(|(hidden, blind_every)| Mask::Scattered { hidden, blind_every }),
    ];
    leaf.prop_recursive(2, 4, 2, |part| {
        let parts = || proptest::collection::vec(part.clone(), 2);
        prop_oneof![parts().prop_map(Mask::All), parts().prop_map(Mask::Any)]
    })
}
