//! The module one place after the other, and what it remembers.

use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::{LocalM, LocalP};
use zoo_attention::{
    CannotDecode, Mechanism, MechanismConfig, MultiHeadAttention, MultiHeadAttentionConfig,
    MultiHeadError, Pattern, Positions,
};
use zoo_conformance::*;
use zoo_oracle::{Mask, SMALL_HEADS, SMALL_SEQUENCE, small_for_tests};

use super::{by_steps, shared, to_itself};

/// One place after the other gives what all at once give, or says that it cannot.
pub(super) fn decodes(mechanism: Mechanism, device: &Device) {
    let mechanism = small_for_tests(mechanism);
    let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
        .with_kv_heads(shared(&mechanism))
        .with_d_head(Some(4))
        .with_mechanism(mechanism);
    let supported = mechanism.capabilities().options;
    for (positions, temperature, softcap, support) in [
        (Positions::Rotary { theta: 1e4 }, 1.0, None, Ok(())),
        (Positions::Alibi, 1.5, None, supported.alibi),
        (Positions::None, 1.0, Some(0.5), supported.softcap),
    ] {
        let config = config
            .clone()
            .with_positions(positions)
            .with_temperature(temperature)
            .with_softcap(softcap);
        match config.try_init(device) {
            Ok(attention) => decodes_as(&attention, &mechanism, device),
            Err(MultiHeadError::Unsupported { .. }) if support.is_err() => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn decodes_as(attention: &MultiHeadAttention, mechanism: &MechanismConfig, device: &Device) {
    use Mechanism as M;
    let name = mechanism.mechanism();
    let mut cache = match attention.decode_cache(2) {
        Err(error) if matches!(name, M::BigBird | M::LocalP | M::Lsh) => {
            return cannot(&error, mechanism);
        }
        cache => must(cache),
    };
    differs_from_full(mechanism, SMALL_HEADS, [7; 2], Mask::Causal, device);
    let x = normal([2, 7, 8], device);
    let at_once = to_itself(attention, &x, Pattern::Causal);
    same(by_steps(attention, &x, &mut cache), at_once.clone());

    // The first ones at once, then one by one; and once more the last.
    let mut cache = must(attention.decode_cache(1));
    let first = attention.prefill(x.clone().slice_dim(1, 0..5), &mut cache);
    let rest = by_steps(attention, &x, &mut cache);
    same(Tensor::cat(vec![first, rest], 1), at_once.clone());
    let evicts = matches!(
        name,
        M::SlidingWindow | M::LocalM | M::Linear | M::Performer | M::Retention
    );
    match cache.rewind(6) {
        // A window or a state has lost what there was.
        Err(error) if evicts => {
            let message = format!("a cache of {name} cannot go back to 6 of 7 places");
            assert!(error.to_string().starts_with(&message), "{error}");
            assert_eq!(cache.len(), 7);
        }
        rewound => {
            must(rewound);
            same(
                by_steps(attention, &x, &mut cache),
                at_once.slice_dim(1, 6..7),
            );
        }
    }
}

fn cannot(error: &CannotDecode, mechanism: &MechanismConfig) {
    let name = mechanism.mechanism();
    let reason = mechanism
        .capabilities()
        .decoding
        .expect_err("declared to decode");
    let message = format!("mechanism {name} cannot decode token by token: {reason}");
    assert_eq!(error.to_string(), message);
}

pub(super) const TESTS: &[(&str, Test)] = &[
    ("memory-is-projected-once", |device| {
        let query = normal([2, 5, 12], device);
        let memory = normal([2, SMALL_SEQUENCE, 12], device);
        let padded = Pattern::key_lengths(vec![SMALL_SEQUENCE, 4]);
        for mechanism in Mechanism::ALL {
            // One looks back, and there is no back here; one has no keys but its queries.
            if matches!(mechanism, Mechanism::Retention | Mechanism::Lsh) {
                continue;
            }
            let small = small_for_tests(mechanism);
            let sizes = [5, SMALL_SEQUENCE];
            differs_from_full(&small, SMALL_HEADS, sizes, Mask::Full, device);
            let attention = MultiHeadAttentionConfig::new(12, SMALL_HEADS)
                .with_mechanism(small)
                .init(device);
            let kept = attention.remember(memory.clone(), memory.clone());
            for pattern in [Pattern::Full, padded.clone()] {
                let (key, value) = (memory.clone(), memory.clone());
                let want = attention.forward(query.clone(), key, value, pattern.clone());
                let got = attention.recall(query.clone(), &kept, pattern.clone());
                same_as(mechanism.word(), got, want);
            }
        }
    }),
    ("memory-is-recalled-from-any-place-on", |device| {
        let memory = normal([2, 5, 12], device);
        // More queries than keys: the last are beyond every window.
        let query = normal([2, 9, 12], device);
        let mechanisms: [MechanismConfig; 9] = [
            LocalM { window: 1 }.into(),
            LocalM { window: 0 }.into(),
            Mechanism::Flash.into(),
            LocalP { window: 1 }.into(),
            Mechanism::Linear.into(),
            Mechanism::Performer.into(),
            Mechanism::Additive.into(),
            Mechanism::Hard.into(),
            Mechanism::Multiplicative.into(),
        ];
        for mechanism in mechanisms {
            let attention = MultiHeadAttentionConfig::new(12, 3)
                .with_mechanism(mechanism)
                .init(device);
            let kept = attention.remember(memory.clone(), memory.clone());
            for pattern in [Pattern::Full, Pattern::key_lengths(vec![5, 2])] {
                let (key, value) = (memory.clone(), memory.clone());
                let want = attention.forward(query.clone(), key, value, pattern.clone());
                let mut first = 0;
                let parts = [1, 2, 1, 1, 3, 1].map(|new| {
                    let part = query.clone().slice_dim(1, first..first + new);
                    let part = attention.recall_from(first, part, &kept, pattern.clone());
                    first += new;
                    part
                });
                let case = format!("{mechanism:?}, {pattern:?}");
                same_as(&case, Tensor::cat(parts.to_vec(), 1), want);
            }
        }
    }),
    ("a-cache-is-filled-from-the-first-place-on", |device| {
        let attention = MultiHeadAttentionConfig::new(8, 2).init(device);
        let mut cache = must(attention.decode_cache(4));
        attention.step(Tensor::zeros([1, 1, 8], device), &mut cache);
        is_refused(
            || attention.prefill(Tensor::zeros([1, 2, 8], device), &mut cache),
            "multi-head attention: a cache is filled from the first place on, this one has 1",
        );
    }),
    ("a-cache-of-another-mechanism-is-refused", |device| {
        let of = |mechanism: Mechanism| {
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism.into());
            config.init(device)
        };
        let mut cache = must(of(Mechanism::Linear).decode_cache(1));
        is_refused(
            || of(Mechanism::Flash).step(Tensor::zeros([1, 1, 8], device), &mut cache),
            "multi-head attention: a cache of linear was given to flash",
        );
    }),
    ("sizes-that-follow-the-length-cannot-decode", |device| {
        for mechanism in [Mechanism::Strided, Mechanism::Fixed] {
            let mechanism = MechanismConfig::from(mechanism);
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism);
            let decoded = config.init(device).decode_cache(1);
            cannot(&decoded.expect_err("the length changes"), &mechanism);
        }
    }),
];
