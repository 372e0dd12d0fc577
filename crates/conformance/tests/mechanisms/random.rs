//! Random sizes, patterns and options for every mechanism, compared with the oracle. Failures are
//! minimised.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use zoo_spec::SplitMix64;
use zoo_spec::keys::{Key, MAX_STEPS, Presence, Values};

use crate::all_mechanisms::supports;
use crate::prelude::*;

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite, is_software: bool) {
    let is_full = Difference::from(mechanism) == Difference::None;
    let cases = match (is_full, is_software) {
        // Enough to combine every pattern with every option a few times.
        (true, false) => 96,
        // The other mechanisms use flash attention or have fewer code paths.
        (false, false) => 24,
        // A software adapter compiles kernels for each new shape, for a second or two.
        (true, true) => 12,
        (false, true) => 1,
    };
    suite.add(format!("{mechanism}/random"), move |device| {
        let config = Config {
            cases,
            failure_persistence: None,
            // Reproducible on every machine.
            rng_seed: RngSeed::Fixed(seed(mechanism)),
            ..Config::default()
        };
        let strategy = (config_strategy(mechanism), problem(mechanism));
        let result = TestRunner::new(config).run(&strategy, |(mechanism, problem)| {
            let (mechanism, problem) = with_matching_sizes(mechanism, problem);
            if selects_keys(mechanism.mechanism()) {
                let tensors = Tensors::from_problem(&problem, device);
                let reference = reference_problem(&mechanism, &problem, &tensors);
                let solution = solve(&reference, &tensors.inputs());
                // With a smaller margin, `f32` may select another key and be correct.
                prop_assume!(solution.margin > 1e-4);
            }
            // `check_gradients` includes a forward pass, but inference may use other kernels.
            if cases > 1 {
                check_forward(&mechanism, &problem, device)?;
            }
            check_gradients(&mechanism, &problem, device)?;
            Ok(())
        });
        must(result);
    });
}

/// A seed that does not change when mechanisms are added.
fn seed(mechanism: Mechanism) -> u64 {
    SplitMix64::named(mechanism.name()).next()
}

/// Whether a rounding error can change the visible keys.
fn selects_keys(mechanism: Mechanism) -> bool {
    matches!(
        mechanism,
        Mechanism::Hard | Mechanism::LocalP | Mechanism::Moba | Mechanism::NativeSparse
    )
}

/// The mechanism with random values of its config keys, from the smallest sizes to some beyond the
/// longest sequence.
fn config_strategy(mechanism: Mechanism) -> BoxedStrategy<MechanismConfig> {
    let mut table = Just(toml::Table::new()).boxed();
    for key in mechanism.keys() {
        table = (table, values(key))
            .prop_map(|(mut table, value)| {
                table.extend(value.map(|value| (key.name.to_owned(), value)));
                table
            })
            .boxed();
    }
    let config = move |mut table: toml::Table| {
        table.insert("kind".to_owned(), mechanism.name().into());
        must(toml::Value::Table(table).try_into())
    };
    table.prop_map(config).boxed()
}

/// Random values of a config key; `None` omits it.
fn values(key: &'static Key) -> BoxedStrategy<Option<toml::Value>> {
    let value = match &key.values {
        // In training steps, which do not affect a single pass.
        Values::Count { max, .. } if *max == MAX_STEPS => return Just(None).boxed(),
        Values::Count { min, max: i64::MAX } => (*min..i64::MAX).prop_map_into().boxed(),
        Values::Count { min, max } => prop_oneof![*min..8.min(*max), *min..150.min(*max)]
            .prop_map_into()
            .boxed(),
        Values::Number(range) => (0.3..3.0_f64)
            .prop_filter("out of range", |value| range.contains(*value))
            .prop_map_into()
            .boxed(),
        Values::Bool => any::<bool>().prop_map_into().boxed(),
        Values::Names(variants) => (0..variants.len())
            .prop_map(|i| variants[i].name.into())
            .boxed(),
        Values::Text
        | Values::Path
        | Values::Paths
        | Values::Choice(_)
        | Values::Choices(_)
        | Values::Backend
        | Values::Devices => panic!("no random values for the type of key {}", key.name),
    };
    match key.presence {
        Presence::Optional(_) => proptest::option::of(value).boxed(),
        Presence::Default | Presence::Required => value.prop_map(Some).boxed(),
    }
}

/// Gives mechanism and problem the same number of key and value heads, and the mechanism a length of
/// at least that of the problem.
fn with_matching_sizes(
    mut mechanism: MechanismConfig,
    mut problem: Problem,
) -> (MechanismConfig, Problem) {
    match &mut mechanism {
        MechanismConfig::MultiQuery(_) | MechanismConfig::Mla(_) => problem.kv_heads = 1,
        MechanismConfig::GroupedQuery(grouped) => grouped.n_heads_kv = Some(problem.kv_heads),
        MechanismConfig::Cosformer(cosformer) => {
            let longest = problem.seq_q.max(problem.seq_k);
            cosformer.length = cosformer.length.map(|length| length.max(longest));
        }
        MechanismConfig::Linformer(linformer) => {
            linformer.length = linformer.length.max(problem.seq_k);
        }
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
        kv_heads in Just(if supports(mechanism, Requirement::SharedHeads) { kv_heads } else { kv_heads * group }),
        heads in Just(kv_heads * group),
        seq_q in Just(if supports(mechanism, Requirement::DifferentLengths) { seq_q } else { seq_k }),
        seq_k in Just(seq_k),
        d_head in Just(if supports(mechanism, Requirement::OddHead) { d_head } else { 2 * d_head }),
        d_value in Just(d_value),
    ) -> Problem {
        Problem {
            kv_heads,
            d_value,
            scale,
            softcap: softcap.filter(|_| supports(mechanism, Requirement::Softcap)),
            alibi: alibi && supports(mechanism, Requirement::Alibi),
            bias: bias.filter(|_| supports(mechanism, Requirement::Bias)).map(|shared| {
                let full = [batch, heads, seq_q, seq_k];
                std::array::from_fn(|dim| if shared[dim] { 1 } else { full[dim] })
            }),
            dropout: dropout.filter(|_| supports(mechanism, Requirement::Dropout)),
            mask,
            ..Problem::new("drawn", [batch, heads, seq_q, seq_k, d_head])
        }
    }
}

fn mask(batch: usize, seq_k: usize, mechanism: Mechanism) -> BoxedStrategy<Mask> {
    let mask = if !supports(mechanism, Requirement::Causal) {
        prop_oneof![Just(Mask::Full), key_mask(batch, seq_k)].boxed()
    } else if supports(mechanism, Requirement::DenseMask) {
        any_mask(batch, seq_k).boxed()
    } else {
        prop_oneof![
            2 => Just(Mask::Full),
            2 => Just(Mask::Causal),
            1 => key_mask(batch, seq_k),
            2 => key_mask(batch, seq_k).prop_map(|keys| Mask::All(vec![Mask::Causal, keys])),
        ]
        .boxed()
    };
    if supports(mechanism, Requirement::Bidirectional) {
        mask
    } else {
        mask.prop_map(|mask| Mask::All(vec![Mask::Causal, mask]))
            .boxed()
    }
}

/// Masks that depend on keys only.
fn key_mask(batch: usize, seq_k: usize) -> impl Strategy<Value = Mask> {
    prop_oneof![
        proptest::collection::vec(0..=seq_k, batch).prop_map(Mask::KeyLengths),
        proptest::collection::vec(proptest::collection::vec(any::<bool>(), seq_k), batch)
            .prop_map(Mask::KeyPadding),
    ]
}

fn any_mask(batch: usize, seq_k: usize) -> impl Strategy<Value = Mask> {
    let positions = move || proptest::collection::vec(0..seq_k, 0..4);
    let leaf = prop_oneof![
        2 => Just(Mask::Full),
        2 => Just(Mask::Causal),
        2 => (0..40usize, 0..40usize).prop_map(|(left, right)| Mask::Window { left, right }),
        1 => (1..40usize).prop_map(Mask::Block),
        1 => (1..40usize).prop_flat_map(move |size| {
            let blocks = seq_k.div_ceil(size);
            let visible = proptest::collection::vec(0..blocks, 0..3);
            proptest::collection::vec(visible, blocks)
                .prop_map(move |visible| Mask::BlockSparse { size, visible })
        }),
        1 => (1..20usize).prop_map(Mask::Strided),
        1 => (1..40usize, 0..6usize)
            .prop_map(|(block, summary)| Mask::SummaryColumns { block, summary }),
        1 => (0..40usize).prop_map(Mask::Monotonic),
        1 => Just(Mask::PowersOfTwo),
        1 => positions().prop_map(Mask::Global),
        1 => proptest::collection::vec(proptest::collection::vec(0..3usize, seq_k), batch)
            .prop_map(Mask::Documents),
        2 => key_mask(batch, seq_k),
        1 => (0.0..1.0, 1..5usize)
            .prop_map(|(masked, fully_masked_every)| Mask::Random { masked, fully_masked_every }),
    ];
    leaf.prop_recursive(2, 4, 2, |part| {
        let parts = || proptest::collection::vec(part.clone(), 2);
        prop_oneof![parts().prop_map(Mask::All), parts().prop_map(Mask::Any)]
    })
}
