//! Incremental decoding of the module, and projected memory of cross-attention.

use burn::tensor::{activation, s};
use zoo_attention::mechanisms::native_sparse::native_sparse;
use zoo_attention::mechanisms::{LocalM, LocalP, NativeSparse};
use zoo_attention::{
    AttentionError, DecodeCache, PairLayout, ProjectedMemory, Rotary, RotaryScaling,
};

use super::{decode_all, self_attention, test_kv_heads, three_heads};
use crate::prelude::*;

/// Incremental decoding matches the forward pass, or returns an error.
pub(super) fn check_decoding(mechanism: Mechanism, device: &Device) {
    let mechanism = mechanism.small_for_tests();
    let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
        .with_n_heads_kv(test_kv_heads(&mechanism))
        .with_d_head(4)
        .with_mechanism(mechanism);
    let supported = mechanism.capabilities().options;
    let scaled = Rotary::new(1e4)
        .with_fraction(0.5)
        .with_layout(PairLayout::Halves)
        .with_scaling(RotaryScaling::yarn(4.0, 16));
    for (positions, temperature, softcap, support) in [
        (Positions::rotary(1e4), 1.0, None, Ok(())),
        (scaled.into(), 1.0, None, Ok(())),
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
    let cache = attention.decode_cache(2);
    if matches!(
        name,
        M::BigBird | M::LocalP | M::Lsh | M::Nystrom | M::Linformer
    ) {
        return assert_cannot_decode(cache, mechanism);
    }
    let mut cache = must(cache);
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
        M::SlidingWindow
            | M::LocalM
            | M::Sink
            | M::Linear
            | M::Performer
            | M::Cosformer
            | M::Based
            | M::Retention
            | M::Lightning
            | M::Mamba2
            | M::Gla
            | M::Delta
            | M::GatedDelta
            | M::Kda
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

fn assert_cannot_decode(cache: Result<DecodeCache, AttentionError>, mechanism: &MechanismConfig) {
    let name = mechanism.mechanism();
    let reason = mechanism.capabilities().decoding.expect_err("a reason");
    let message = format!("mechanism {name} cannot decode token by token: {reason}");
    assert_error(cache, &message);
}

/// Checks cross-attention to projected memory without and with padding in the second example.
fn check_cross_attention(
    attention: &MultiHeadAttention,
    [query, memory]: [&Tensor<3>; 2],
    second_length: usize,
    cross_attend: impl Fn(&ProjectedMemory, &Pattern) -> Tensor<3>,
) {
    let projected = attention.project_memory(memory.clone(), memory.clone());
    let lengths = vec![memory.dims()[1], second_length];
    for pattern in [Pattern::Full, Pattern::key_lengths(lengths)] {
        let input = AttentionInput::cross_attn(query.clone(), memory.clone());
        let want = attention.forward(input.pattern(pattern.clone())).context;
        let case = format!("{:?}, {pattern:?}", attention.mechanism());
        assert_close_as(&case, cross_attend(&projected, &pattern), want);
    }
}

pub(super) const TESTS: &[(&str, Test)] = &[
    ("memory-is-projected-once", |device| {
        let query = random_normal([2, 5, 16], device);
        let memory = random_normal([2, SMALL_SEQUENCE, 16], device);
        for mechanism in Mechanism::ALL {
            // The keys of `lsh` are its queries.
            let is_causal = Requirement::Bidirectional.unsupported_reason(mechanism);
            if is_causal.is_some() || mechanism == Mechanism::Lsh {
                continue;
            }
            let small = mechanism.small_for_tests();
            let sizes = [5, SMALL_SEQUENCE];
            assert_not_full_attention(&small, SMALL_HEADS, sizes, Mask::Full, device);
            let attention = MultiHeadAttentionConfig::new(16, SMALL_HEADS)
                .with_mechanism(small)
                .init(device);
            check_cross_attention(&attention, [&query, &memory], 4, |projected, pattern| {
                attention.cross_attend(query.clone(), projected, pattern.clone())
            });
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
            check_cross_attention(&attention, [&query, &memory], 2, |projected, pattern| {
                let parts = [0..1, 1..3, 3..4, 4..5, 5..8, 8..9].map(|part| {
                    let first = part.start;
                    let part = query.clone().slice_dim(1, part);
                    attention.cross_attend_from(first, part, projected, pattern.clone())
                });
                Tensor::cat(parts.to_vec(), 1)
            });
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
    // The gates of a layer are those of its input, also after a prompt, beams and truncation.
    ("gates-of-native-sparse-attention", |device| {
        let mechanism = NativeSparse {
            block_size: 8,
            top_k: 3,
            window: 5,
        };
        let layer = MultiHeadAttentionConfig::new(12, 3)
            .with_mechanism(mechanism)
            .init(device);
        let x = random_normal([2, 60, 12], device);
        let [query, key, value] = three_heads(&layer, &x);
        let branches = layer.params.branches.as_ref().expect("a projection");
        let gates = split_heads(activation::sigmoid(branches.forward(x.clone())), 3);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        let context = |gates: Tensor<4>| {
            let [query, key, value] = [query.clone(), key.clone(), value.clone()];
            let context = native_sparse(query, key, value, gates, &mechanism, &options);
            layer.output.forward(merge_heads(context))
        };
        let want = context(gates.clone());
        assert_close(self_attention(&layer, &x, Pattern::Causal), want.clone());
        // Every branch has an effect.
        for branch in 0..3 {
            let without = gates
                .clone()
                .slice_fill([s![..], s![..], s![..], s![branch]], 0.0);
            assert!(!is_close(context(without), want.clone()), "branch {branch}");
        }
        let mut cache = must(layer.decode_cache(1));
        layer.prefill(x.clone().slice_dim(1, 0..50), &mut cache);
        let mut swapped = cache.select(&[1, 0]);
        let last = |x: &Tensor<3>| x.clone().slice_dim(1, 50..60);
        assert_close(decode_all(&layer, &x, &mut cache), last(&want));
        must(cache.truncate(55));
        let again = decode_all(&layer, &x, &mut cache);
        assert_close(again, want.clone().slice_dim(1, 55..60));
        let got = decode_all(&layer, &x.flip([0]), &mut swapped);
        assert_close(got, last(&want.flip([0])));
    }),
    ("sizes-derived-from-the-length-cannot-decode", |device| {
        for mechanism in [Mechanism::Strided, Mechanism::Fixed] {
            let mechanism = MechanismConfig::from(mechanism);
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism);
            assert_cannot_decode(config.init(device).decode_cache(1), &mechanism);
        }
    }),
];
