//! Problems that nobody thought of: sizes, patterns and options drawn at random, each
//! compared with the oracle. A failure is made as small as it can be, and told in full.

use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use zoo_attention::Mechanism;
use zoo_backend::Opened;
use zoo_conformance::{check_forward, check_gradients};
use zoo_testkit::{Mask, Problem};

/// Enough that every pattern meets every option a few times.
const CASES: u32 = 96;
/// A software adapter compiles kernels for each new shape, a second or two long.
const CASES_ON_SOFTWARE: u32 = 12;

pub(crate) fn trial(mechanism: Mechanism, opened: &Opened) -> Trial {
    let device = opened.device.clone();
    let cases = if opened.software {
        CASES_ON_SOFTWARE
    } else {
        CASES
    };
    Trial::test(format!("{mechanism}/drawn"), move || {
        let config = Config {
            cases,
            failure_persistence: None,
            // The same on every machine: what fails here fails there.
            rng_seed: RngSeed::Fixed(mechanism as u64 + 1),
            ..Config::default()
        };
        TestRunner::new(config)
            .run(&problem(), |problem| {
                let judged = check_forward(&mechanism.into(), &problem, &device)
                    .and_then(|_| check_gradients(&mechanism.into(), &problem, &device));
                judged
                    .map(|_| ())
                    .map_err(|mismatch| TestCaseError::fail(mismatch.to_string()))
            })
            .map_err(|failure| Failed::from(failure.to_string()))
    })
}

prop_compose! {
    fn problem()(
        batch in 1..3usize,
        kv_heads in 1..3usize,
        group in 1..3usize,
        // Up to three tiles of queries and two of keys on the CPU.
        seq_q in prop_oneof![1..12usize, 60..70usize, 1..130usize],
        seq_k in prop_oneof![1..12usize, 94..98usize, 1..130usize],
        d_head in 1..20usize,
        d_value in 1..20usize,
    )(
        mask in mask(batch, seq_k),
        scale in proptest::option::weighted(0.3, 0.1..2.0),
        softcap in proptest::option::weighted(0.3, 0.5..10.0),
        alibi in any::<bool>(),
        bias in proptest::option::weighted(0.4, [any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()]),
        dropout in proptest::option::weighted(0.3, (0.0..0.9, any::<u64>())),
        batch in Just(batch),
        kv_heads in Just(kv_heads),
        heads in Just(kv_heads * group),
        seq_q in Just(seq_q),
        seq_k in Just(seq_k),
        d_head in Just(d_head),
        d_value in Just(d_value),
    ) -> Problem {
        Problem {
            kv_heads,
            d_value,
            scale,
            softcap,
            alibi,
            bias: bias.map(|shared| {
                let full = [batch, heads, seq_q, seq_k];
                std::array::from_fn(|dim| if shared[dim] { 1 } else { full[dim] })
            }),
            dropout,
            mask,
            ..Problem::new("drawn", [batch, heads, seq_q, seq_k, d_head])
        }
    }
}

fn mask(batch: usize, seq_k: usize) -> impl Strategy<Value = Mask> {
    let places = move || proptest::collection::vec(0..seq_k, 0..4);
    let each = move |item| proptest::collection::vec(item, batch);
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
        1 => each((0..=seq_k).boxed()).prop_map(Mask::KeyLengths),
        1 => proptest::collection::vec(proptest::collection::vec(any::<bool>(), seq_k), batch)
            .prop_map(Mask::KeyPadding),
        1 => (0.0..1.0, 1..5usize)
            .prop_map(|(hidden, blind_every)| Mask::Scattered { hidden, blind_every }),
    ];
    leaf.prop_recursive(2, 4, 2, |part| {
        let parts = || proptest::collection::vec(part.clone(), 2);
        prop_oneof![parts().prop_map(Mask::All), parts().prop_map(Mask::Any)]
    })
}
