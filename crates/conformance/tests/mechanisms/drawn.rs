//! Problems that nobody thought of: sizes, patterns and options drawn at random for every
//! mechanism, each compared with the oracle. A failure is made as small as it can be, and told
//! in full.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use zoo_attention::mechanisms::{
    BigBird, Block, Fixed, GroupedQuery, Hard, Linear, LocalM, LocalP, Longformer, Lsh, Performer,
    SlidingWindow, Strided,
};
use zoo_attention::{LinearFeatures, Mechanism, MechanismConfig};
use zoo_conformance::*;
use zoo_oracle::{Difference, Input, Mask, Problem, solve};

/// Enough that every pattern meets every option a few times.
const CASES: u32 = 96;
/// The mechanisms that are not full attention are computed by it, or have fewer paths.
const CASES_OF_OTHERS: u32 = 24;
/// A software adapter compiles kernels for each new shape, a second or two long.
const CASES_ON_SOFTWARE: u32 = 12;
const CASES_OF_OTHERS_ON_SOFTWARE: u32 = 1;

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite, is_software: bool) {
    let is_full = Difference::of(mechanism) == Difference::None;
    let cases = match (is_full, is_software) {
        (true, false) => CASES,
        (true, true) => CASES_ON_SOFTWARE,
        (false, false) => CASES_OF_OTHERS,
        (false, true) => CASES_OF_OTHERS_ON_SOFTWARE,
    };
    suite.add(format!("{mechanism}/drawn"), move |device| {
        let config = Config {
            cases,
            failure_persistence: None,
            // The same on every machine: what fails here fails there.
            rng_seed: RngSeed::Fixed(mechanism as u64 + 1),
            ..Config::default()
        };
        let drawn = (sizes(mechanism), problem(mechanism));
        must(TestRunner::new(config).run(&drawn, |(mechanism, problem)| {
            let (mechanism, problem) = fitted(mechanism, problem);
            if chooses(mechanism.mechanism()) {
                let tensors = Tensors::of(&problem, device);
                let answer = solve(&given(&mechanism, &problem, &tensors), &tensors.inputs());
                // Closer than this, `f32` may choose another key, and be right.
                prop_assume!(answer.margin > 1e-4);
            }
            // What is differentiated is computed forward, too; without gradients, there may
            // be other ways.
            if cases > CASES_OF_OTHERS_ON_SOFTWARE {
                check_forward(&mechanism, &problem, device)?;
            }
            check_gradients(&mechanism, &problem, device)?;
            Ok(())
        }));
    });
}

/// Whether a rounding error can make it see other keys.
fn chooses(mechanism: Mechanism) -> bool {
    matches!(mechanism, Mechanism::Hard | Mechanism::LocalP)
}

fn accepts(mechanism: Mechanism, input: Input) -> bool {
    input.refused_by(mechanism).is_none()
}

/// A mechanism of values that are drawn.
fn of<S: Strategy + 'static>(
    values: S,
    config: fn(S::Value) -> MechanismConfig,
) -> BoxedStrategy<MechanismConfig> {
    values.prop_map(config).boxed()
}

/// A mechanism at sizes from the smallest to some beyond the longest sequence.
fn sizes(mechanism: Mechanism) -> BoxedStrategy<MechanismConfig> {
    use proptest::option::of as optional;
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
        Mechanism::Hard => of((0.3..3.0_f64, any::<u64>()), |(temperature, seed)| {
            Hard { temperature, seed }.into()
        }),
        Mechanism::SlidingWindow => of(size(), |size| SlidingWindow { window: size - 1 }.into()),
        Mechanism::LocalM => of(size(), |size| LocalM { window: size - 1 }.into()),
        Mechanism::LocalP => of(size(), |window| LocalP { window }.into()),
        Mechanism::Block => of(size(), |size| Block { size }.into()),
        Mechanism::Strided => of(optional(size()), |stride| Strided { stride }.into()),
        Mechanism::Fixed => of((optional(size()), 0..6usize), |(block, summary)| {
            Fixed { block, summary }.into()
        }),
        Mechanism::Longformer => of((size(), 0..4usize), |(window, global)| {
            Longformer { window, global }.into()
        }),
        Mechanism::BigBird => of(
            (1..30usize, 0..3usize, 0..3usize, 0..4usize, any::<u64>()),
            |(block, neighbours, global, random, seed)| {
                let bigbird = BigBird {
                    block,
                    neighbours,
                    global,
                    random,
                    seed,
                };
                bigbird.into()
            },
        ),
        Mechanism::Lsh => of(
            (size(), 1..4usize, any::<u64>()),
            |(bucket, rounds, seed)| Lsh::new(bucket, rounds, seed).into(),
        ),
        Mechanism::Linear => of(
            prop_oneof![Just(LinearFeatures::Elu1), Just(LinearFeatures::Relu)],
            |features| Linear { features }.into(),
        ),
        Mechanism::Performer => of((1..40usize, any::<u64>()), |(features, seed)| {
            let performer = Performer {
                features,
                seed,
                redraw: None,
            };
            performer.into()
        }),
    }
}

/// The two with the same number of key and value heads.
fn fitted(mechanism: MechanismConfig, mut problem: Problem) -> (MechanismConfig, Problem) {
    let kv_heads = Some(problem.kv_heads);
    match mechanism {
        MechanismConfig::MultiQuery(_) => problem.kv_heads = 1,
        MechanismConfig::GroupedQuery(_) => return (GroupedQuery { kv_heads }.into(), problem),
        _ => {}
    }
    (mechanism, problem)
}

prop_compose! {
    fn problem(mechanism: Mechanism)(
        batch in 1..3usize,
        kv_heads in 1..3usize,
        group in 1..3usize,
        // Up to three tiles of queries and two of keys on the CPU.
        seq_q in prop_oneof![1..12usize, 60..70usize, 1..130usize],
        seq_k in prop_oneof![1..12usize, 94..98usize, 1..130usize],
        d_head in 1..20usize,
        d_value in 1..20usize,
    )(
        mask in mask(batch, seq_k, mechanism),
        scale in proptest::option::weighted(0.3, 0.1..2.0),
        softcap in proptest::option::weighted(0.3, 0.5..10.0),
        alibi in any::<bool>(),
        bias in proptest::option::weighted(0.4, [any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()]),
        dropout in proptest::option::weighted(0.3, (0.0..0.9, any::<u64>())),
        batch in Just(batch),
        kv_heads in Just(if accepts(mechanism, Input::SharedHeads) { kv_heads } else { kv_heads * group }),
        heads in Just(kv_heads * group),
        seq_q in Just(if accepts(mechanism, Input::OtherLength) { seq_q } else { seq_k }),
        seq_k in Just(seq_k),
        d_head in Just(d_head),
        d_value in Just(d_value),
    ) -> Problem {
        Problem {
            kv_heads,
            d_value,
            scale,
            softcap: softcap.filter(|_| accepts(mechanism, Input::Softcap)),
            alibi: alibi && accepts(mechanism, Input::Alibi),
            bias: bias.filter(|_| accepts(mechanism, Input::Bias)).map(|shared| {
                let full = [batch, heads, seq_q, seq_k];
                std::array::from_fn(|dim| if shared[dim] { 1 } else { full[dim] })
            }),
            dropout: dropout.filter(|_| accepts(mechanism, Input::Dropout)),
            mask,
            ..Problem::new("drawn", [batch, heads, seq_q, seq_k, d_head])
        }
    }
}

fn mask(batch: usize, seq_k: usize, mechanism: Mechanism) -> BoxedStrategy<Mask> {
    let mask = match accepts(mechanism, Input::DenseMask) {
        true => any_mask(batch, seq_k).boxed(),
        false => prop_oneof![
            2 => Just(Mask::Full),
            2 => Just(Mask::Causal),
            1 => keys_mask(batch, seq_k),
            2 => keys_mask(batch, seq_k).prop_map(|keys| Mask::All(vec![Mask::Causal, keys])),
        ]
        .boxed(),
    };
    match accepts(mechanism, Input::NotCausal) {
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
