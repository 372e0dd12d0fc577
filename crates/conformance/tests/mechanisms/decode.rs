//! Incremental decoding with all options.

use zoo_attention::decode::KvCache;
use zoo_attention::mechanisms::SlidingWindow;
use zoo_attention::{DecodeCache, alibi_slopes};
use zoo_backend::Dtype;

use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite, opened: &OpenDevice) {
    // A second dtype: NdArray has no half types, and a GPU may have no f64.
    let other = if opened.dtypes.contains(&Dtype::F16) {
        DType::F16
    } else {
        DType::F64
    };
    suite.add_table("decode/", TESTS);
    type Rejected = fn(&Device, DType);
    let rejected: [(&str, Rejected); 2] = [
        ("append", rejected_append_leaves_cache_unchanged),
        ("step", rejected_step_leaves_cache_unchanged),
    ];
    for (call, test) in rejected {
        let name = format!("decode/rejected-{call}-leaves-cache-unchanged");
        suite.add(name, move |device| test(device, other));
    }
}

/// Query, key and value of 2 examples with 2 heads.
fn random_tensors(seq: usize, device: &Device) -> [Tensor<4>; 3] {
    [(); 3].map(|()| random_normal([2, 2, seq, 4], device))
}

fn rows(tensors: &[Tensor<4>; 3], range: std::ops::Range<usize>) -> [Tensor<4>; 3] {
    let slice = |tensor: &Tensor<4>| tensor.clone().slice_dim(2, range.clone());
    tensors.each_ref().map(slice)
}

fn step(
    cache: &mut DecodeCache,
    [query, key, value]: [Tensor<4>; 3],
    options: &AttentionOptions,
) -> Tensor<4> {
    cache.step(query, key, value, options)
}

/// A cache filled with the first `len` positions.
fn filled(
    mechanism: impl Into<MechanismConfig>,
    tensors: &[Tensor<4>; 3],
    len: usize,
    options: &AttentionOptions,
) -> DecodeCache {
    let mut cache = must(DecodeCache::new(mechanism, 2));
    let [_, key, value] = rows(tensors, 0..len);
    cache.extend(key, value, options);
    cache
}

/// Checks that decoding the last position equals full attention.
fn assert_last_step_matches(
    mechanism: MechanismConfig,
    tensors: &[Tensor<4>; 3],
    options: &AttentionOptions,
    full_options: &AttentionOptions,
) {
    let [_, heads, seq, _] = tensors[0].dims();
    let device = &tensors[0].device();
    assert_not_full_attention(&mechanism, heads, [seq; 2], Mask::Causal, device);
    let last = seq - 1..seq;
    let mut cache = filled(mechanism, tensors, seq - 1, options);
    let got = step(&mut cache, rows(tensors, last.clone()), options);
    let [query, key, value] = tensors.clone();
    let all = attend(mechanism, query, key, value, full_options);
    assert_close_as(&format!("{mechanism:?}"), got, all.slice_dim(2, last));
}

/// The first three positions of the first example are padding.
fn padding(seq: usize, device: &Device) -> AttentionOptions {
    let mask = (0..2 * seq).map(|i| i < 3.min(seq)).collect();
    let mask = Pattern::KeyPadding(tensor_of(mask, [2, seq], device));
    AttentionOptions::new().with_pattern(mask)
}

fn causal() -> AttentionOptions {
    AttentionOptions::new().with_pattern(Pattern::Causal)
}

const TESTS: &[(&str, Test)] = &[
    ("left-padding-is-masked", |device| {
        let tensors = random_tensors(6, device);
        let step = padding(6, device);
        let full = causal().with_pattern(Pattern::Causal.and(step.pattern.clone()));
        for mechanism in [
            Mechanism::Flash.into(),
            Mechanism::Standard.into(),
            // The window of the last query has padding and other keys.
            SlidingWindow { window: 4 }.into(),
            Mechanism::Additive.into(),
        ] {
            assert_last_step_matches(mechanism, &tensors, &step, &full);
        }
    }),
    ("bias", |device| {
        let tensors = random_tensors(5, device);
        let bias = random_normal([1, 2, 5, 5], device);
        let step = causal().with_bias(bias.clone().slice_dim(2, 4..5));
        let full = causal().with_bias(bias);
        for mechanism in [Mechanism::Flash, Mechanism::SlidingWindow] {
            assert_last_step_matches(mechanism.small_for_tests(), &tensors, &step, &full);
        }
    }),
    ("cloned-caches-are-independent", |device| {
        let tensors = random_tensors(4, device);
        for mechanism in [
            Mechanism::Flash,
            Mechanism::SlidingWindow,
            Mechanism::Linear,
        ] {
            let small = mechanism.small_for_tests();
            assert_not_full_attention(&small, 2, [4; 2], Mask::Causal, device);
            let mut cache = filled(small, &tensors, 3, &causal());
            let mut clone = cache.clone();
            let [query, key, value] = rows(&tensors, 3..4);
            let different = [query, key.mul_scalar(-3.0), value.mul_scalar(-3.0)];
            step(&mut clone, different, &causal());
            let got = step(&mut cache, rows(&tensors, 3..4), &causal());
            let [query, key, value] = tensors.clone();
            let all = attend(small, query, key, value, &causal());
            assert_close_as(mechanism.name(), got, all.slice_dim(2, 3..4));
        }
    }),
    ("alibi-after-a-ring-buffer-is-rejected", |device| {
        let tensors = random_tensors(3, device);
        let options = AttentionOptions::new();
        let mut cache = filled(Mechanism::SlidingWindow, &tensors, 2, &options);
        let alibi = options.clone().with_alibi(alibi_slopes(2));
        assert_panics_with(
            || step(&mut cache.clone(), rows(&tensors, 2..3), &alibi),
            "decoding step: this cache was created without ALiBi, bias or pattern, so that it retains the window in no particular order and cannot support them now",
        );
        // The cache is unchanged.
        step(&mut cache, rows(&tensors, 2..3), &options);
        assert_eq!(cache.len(), 3);
    }),
    ("score-options-of-linear-attention-are-rejected", |device| {
        let step = |options: &AttentionOptions| {
            let mut cache = must(DecodeCache::new(Mechanism::Linear, 1));
            step(&mut cache, random_tensors(1, device), options)
        };
        assert_panics_with(
            || step(&AttentionOptions::new().with_alibi(alibi_slopes(2))),
            "decoding step: ALiBi is not supported, since it computes no scores or weights",
        );
        assert_panics_with(
            || step(&padding(1, device)),
            "decoding step: a recurrent state supports the patterns full and causal only, got key \
             padding",
        );
    }),
    ("keys-without-values-are-rejected", |device| {
        let [_, key, value] = random_tensors(3, device);
        assert_panics_with(
            || KvCache::new(4).append(key, value.slice_dim(2, 0..2)),
            "KV cache: value must be [batch = 2, kv_heads = 2, new = 3, d_value] like the key, got \
             [2, 2, 2, 4]",
        );
    }),
    ("step-with-d-context-is-rejected", |device| {
        let config = MultiHeadAttentionConfig::new(8, 2)
            .with_d_context(4)
            .with_d_value_input(8);
        let attention = config.init(device);
        let mut cache = must(attention.decode_cache(1));
        assert_panics_with(
            || attention.step(Tensor::zeros([1, 1, 8], device), &mut cache),
            "multi-head attention: decoding is self-attention, so d_context and d_value_input must \
             be d_model = 8, got [4, 8]",
        );
    }),
];

/// After rejected appends, a valid append returns the same rows as without them.
fn rejected_append_leaves_cache_unchanged(device: &Device, other: DType) {
    let tensors = random_tensors(5, device);
    let append = |cache: &mut KvCache, range| {
        let [_, key, value] = rows(&tensors, range);
        cache.append(key, value).map(to_vec)
    };
    let (f32, valid) = (DType::F32, [2, 2, 1, 4]);
    let sizes = "new rows must be [batch = 2, kv_heads = 2, new, 4] like those in the cache, got";
    let keys = "like the key, got";
    let types = "must be F32 on";
    let invalid = [
        ("wide value", [(valid, f32), ([2, 2, 1, 5], f32)], sizes),
        ("wide key", [([2, 2, 1, 5], f32), (valid, f32)], sizes),
        ("other batch", [([1, 2, 1, 4], f32); 2], sizes),
        ("other heads", [([2, 1, 1, 4], f32); 2], sizes),
        ("more keys", [([2, 2, 2, 4], f32), (valid, f32)], keys),
        ("dtype of key", [(valid, other), (valid, f32)], types),
        ("dtype of value", [(valid, f32), (valid, other)], types),
    ];
    // A growing cache that is full after three rows, and a ring buffer of four.
    for (name, mut cache) in [("growing", KvCache::new(3)), ("ring", KvCache::ring(4))] {
        let mut reference = cache.clone();
        append(&mut cache, 0..3);
        append(&mut reference, 0..3);
        for (case, rows, expected) in invalid {
            let zeros = |(dims, dtype)| Tensor::<4>::zeros(dims, device).cast(dtype);
            let [key, value] = rows.map(zeros);
            let message = panic_message(|| cache.append(key, value));
            assert!(message.contains(expected), "{name}: {case}: {message}");
        }
        assert_eq!(cache.len(), 3, "{name}");
        let got = append(&mut cache, 3..5);
        assert_eq!(got, append(&mut reference, 3..5), "{name}");
        let has_zeros = got.iter().flatten().any(|value| *value == 0.0);
        assert!(!has_zeros, "{name}: rejected zeros were stored");
    }
}

/// After rejected steps, a valid step returns the same result as without them.
fn rejected_step_leaves_cache_unchanged(device: &Device, other: DType) {
    let tensors = random_tensors(4, device);
    let options = AttentionOptions::new();
    let mechanisms: [MechanismConfig; 4] = [
        Mechanism::Flash.into(),
        SlidingWindow { window: 1 }.into(),
        Mechanism::Linear.into(),
        Mechanism::Retention.into(),
    ];
    for mechanism in mechanisms {
        let mut cache = filled(mechanism, &tensors, 3, &options);
        let mut reference = cache.clone();
        let zeros = |dims: [usize; 4]| Tensor::<4>::zeros(dims, device);
        let valid = || zeros([2, 2, 1, 4]);
        for invalid in [
            [zeros([2, 3, 1, 4]), valid(), valid()],
            [zeros([2, 2, 1, 5]), valid(), valid()],
            [valid().cast(other), valid(), valid()],
            [valid(), valid(), zeros([2, 2, 1, 5])],
            [zeros([2, 2, 1, 5]), zeros([2, 2, 1, 5]), valid()],
        ] {
            panic_message(|| step(&mut cache, invalid, &options));
        }
        let [got, want] = [&mut cache, &mut reference]
            .map(|cache| to_vec(step(cache, rows(&tensors, 3..4), &options)));
        assert_eq!((got, cache.len()), (want, 4), "{mechanism:?}");
    }
}
