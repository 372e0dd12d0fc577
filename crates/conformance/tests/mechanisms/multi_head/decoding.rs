//! Incremental decoding of the module, and projected memory of cross-attention.

use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::{LocalM, LocalP};
use zoo_attention::{
    AttentionError, AttentionInput, Mechanism, MechanismConfig, MultiHeadAttention,
    MultiHeadAttentionConfig, Pattern, Positions,
};
use zoo_conformance::*;
use zoo_oracle::{Mask, SMALL_HEADS, SMALL_SEQUENCE};

use super::{decode_all, self_attention, test_kv_heads};

/// Incremental decoding matches the forward pass, or returns an error.
pub(super) fn check_decoding(mechanism: Mechanism, device: &Device) {
    let mechanism = mechanism.small_for_tests();
    let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
        .with_n_heads_kv(test_kv_heads(&mechanism))
        .with_d_head(4)
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
            Ok(attention) => check_layer(&attention, &mechanism, device),
            Err(AttentionError::Unsupported { .. }) if support.is_err() => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn check_layer(attention: &MultiHeadAttention, mechanism: &MechanismConfig, device: &Device) {
    use Mechanism as M;
    let name = mechanism.mechanism();
    let mut cache = match attention.decode_cache(2) {
        Err(error) if matches!(name, M::BigBird | M::LocalP | M::Lsh) => {
            return check_error(&error, mechanism);
        }
        cache => must(cache),
    };
    assert_not_full_attention(mechanism, SMALL_HEADS, [7; 2], Mask::Causal, device);
    let x = random_normal([2, 7, 8], device);
    let full = self_attention(attention, &x, Pattern::Causal);
    assert_close(decode_all(attention, &x, &mut cache), full.clone());

    // Prefill, decode the rest, and decode the last position again.
    let mut cache = must(attention.decode_cache(1));
    let first = attention.prefill(x.clone().slice_dim(1, 0..5), &mut cache);
    let rest = decode_all(attention, &x, &mut cache);
    assert_close(Tensor::cat(vec![first, rest], 1), full.clone());
    let evicts = matches!(
        name,
        M::SlidingWindow | M::LocalM | M::Linear | M::Performer | M::Retention
    );
    match cache.truncate(6) {
        // A window or state has overwritten earlier positions.
        Err(error) if evicts => {
            let message = format!("cannot truncate a cache of {name} from 7 to 6 positions");
            assert!(error.to_string().starts_with(&message), "{error}");
            assert_eq!(cache.len(), 7);
        }
        result => {
            must(result);
            let last = decode_all(attention, &x, &mut cache);
            assert_close(last, full.slice_dim(1, 6..7));
        }
    }
}

fn check_error(error: &AttentionError, mechanism: &MechanismConfig) {
    let name = mechanism.mechanism();
    let reason = mechanism.capabilities().decoding.expect_err("a reason");
    let message = format!("mechanism {name} cannot decode token by token: {reason}");
    assert_eq!(error.to_string(), message);
}

pub(super) const TESTS: &[(&str, Test)] = &[
    ("memory-is-projected-once", |device| {
        let query = random_normal([2, 5, 12], device);
        let memory = random_normal([2, SMALL_SEQUENCE, 12], device);
        let padded = Pattern::key_lengths(vec![SMALL_SEQUENCE, 4]);
        for mechanism in Mechanism::ALL {
            // `retention` is causal-only, and the keys of `lsh` are its queries.
            if matches!(mechanism, Mechanism::Retention | Mechanism::Lsh) {
                continue;
            }
            let small = mechanism.small_for_tests();
            let sizes = [5, SMALL_SEQUENCE];
            assert_not_full_attention(&small, SMALL_HEADS, sizes, Mask::Full, device);
            let attention = MultiHeadAttentionConfig::new(12, SMALL_HEADS)
                .with_mechanism(small)
                .init(device);
            let projected = attention.project_memory(memory.clone(), memory.clone());
            for pattern in [Pattern::Full, padded.clone()] {
                let (key, value) = (memory.clone(), memory.clone());
                let want = attention
                    .forward(
                        AttentionInput::new(query.clone(), key, value).pattern(pattern.clone()),
                    )
                    .context;
                let got = attention.cross_attend(query.clone(), &projected, pattern.clone());
                assert_close_as(mechanism.name(), got, want);
            }
        }
    }),
    ("cross-attention-from-any-position", |device| {
        let memory = random_normal([2, 5, 12], device);
        // More queries than keys: no keys are in the window of the last.
        let query = random_normal([2, 9, 12], device);
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
            let projected = attention.project_memory(memory.clone(), memory.clone());
            for pattern in [Pattern::Full, Pattern::key_lengths(vec![5, 2])] {
                let (key, value) = (memory.clone(), memory.clone());
                let want = attention
                    .forward(
                        AttentionInput::new(query.clone(), key, value).pattern(pattern.clone()),
                    )
                    .context;
                let mut first = 0;
                let parts = [1, 2, 1, 1, 3, 1].map(|new| {
                    let part = query.clone().slice_dim(1, first..first + new);
                    let part =
                        attention.cross_attend_from(first, part, &projected, pattern.clone());
                    first += new;
                    part
                });
                let case = format!("{mechanism:?}, {pattern:?}");
                assert_close_as(&case, Tensor::cat(parts.to_vec(), 1), want);
            }
        }
    }),
    ("prefill-of-a-used-cache-is-rejected", |device| {
        let attention = MultiHeadAttentionConfig::new(8, 2).init(device);
        let mut cache = must(attention.decode_cache(4));
        attention.step(Tensor::zeros([1, 1, 8], device), &mut cache);
        assert_panics_with(
            || attention.prefill(Tensor::zeros([1, 2, 8], device), &mut cache),
            "multi-head attention: prefill needs an empty cache, this one has 1 positions",
        );
    }),
    ("cache-of-another-mechanism-is-rejected", |device| {
        let layer = |mechanism: Mechanism| {
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism);
            config.init(device)
        };
        let mut cache = must(layer(Mechanism::Linear).decode_cache(1));
        assert_panics_with(
            || layer(Mechanism::Flash).step(Tensor::zeros([1, 1, 8], device), &mut cache),
            "multi-head attention: this layer is flash, but the cache belongs to linear",
        );
    }),
    ("sizes-derived-from-the-length-cannot-decode", |device| {
        for mechanism in [Mechanism::Strided, Mechanism::Fixed] {
            let mechanism = MechanismConfig::from(mechanism);
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism);
            let decoded = config.init(device).decode_cache(1);
            check_error(&decoded.expect_err("the length changes"), &mechanism);
        }
    }),
];
