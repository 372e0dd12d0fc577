//! Mechanisms one place after the other, with all that options may say.

use burn::tensor::{Bool, DType, Device, Tensor, TensorData};
use zoo_attention::mechanisms::SlidingWindow;
use zoo_attention::{
    AttentionOptions, DecodeCache, KvCache, Mechanism, MechanismConfig, MultiHeadAttentionConfig,
    Pattern, alibi_slopes, attend,
};
use zoo_backend::{Dtype, Opened};
use zoo_conformance::*;
use zoo_oracle::{Mask, small_for_tests};

pub(crate) fn trials(suite: &mut Suite, opened: &Opened) {
    // A second dtype: NdArray has no half types, and a GPU may have no f64.
    let other = match opened.dtypes.contains(&Dtype::F16) {
        true => DType::F16,
        false => DType::F64,
    };
    suite.add_table("decode/", TESTS);
    suite.add("decode/a-refused-append-changes-nothing", move |device| {
        a_refused_append_changes_nothing(device, other);
    });
    suite.add("decode/a-refused-step-changes-nothing", move |device| {
        a_refused_step_changes_nothing(device, other);
    });
}

/// Query, key and value of 2 examples with 2 heads.
fn drawn(places: usize, device: &Device) -> [Tensor<4>; 3] {
    [(); 3].map(|()| normal([2, 2, places, 4], device))
}

fn rows(tensors: &[Tensor<4>; 3], places: std::ops::Range<usize>) -> [Tensor<4>; 3] {
    let part = |tensor: &Tensor<4>| tensor.clone().slice_dim(2, places.clone());
    tensors.each_ref().map(part)
}

fn step(
    cache: &mut DecodeCache,
    [query, key, value]: [Tensor<4>; 3],
    options: &AttentionOptions,
) -> Tensor<4> {
    cache.step(query, key, value, options)
}

/// The cache after the first `places`, taken in at once.
fn filled(
    mechanism: impl Into<MechanismConfig>,
    tensors: &[Tensor<4>; 3],
    places: usize,
    options: &AttentionOptions,
) -> DecodeCache {
    let mut cache = must(DecodeCache::new(mechanism.into(), 2));
    let [_, key, value] = rows(tensors, 0..places);
    cache.extend(key, value, options);
    cache
}

/// What the last place gets, by a step after all others and by `attend` from all at once.
fn last_is_the_same(
    mechanism: MechanismConfig,
    tensors: &[Tensor<4>; 3],
    options: &AttentionOptions,
    at_once: &AttentionOptions,
) {
    let [_, heads, places, _] = tensors[0].dims();
    let device = &tensors[0].device();
    differs_from_full(&mechanism, heads, [places; 2], Mask::Causal, device);
    let last = places - 1..places;
    let mut cache = filled(mechanism, tensors, places - 1, options);
    let got = step(&mut cache, rows(tensors, last.clone()), options);
    let [query, key, value] = tensors.clone();
    let all = attend(mechanism, query, key, value, at_once);
    same_as(&format!("{mechanism:?}"), got, all.slice_dim(2, last));
}

/// In the first example the first three places are padding before a prompt.
fn padding(places: usize, device: &Device) -> AttentionOptions {
    let hidden: Vec<bool> = (0..2 * places).map(|at| at < 3.min(places)).collect();
    let hidden = TensorData::new(hidden, [2, places]);
    let hidden = Tensor::<2, Bool>::from_data(hidden, device);
    AttentionOptions::new().with_pattern(Pattern::KeyPadding(hidden))
}

fn causal() -> AttentionOptions {
    AttentionOptions::new().with_pattern(Pattern::Causal)
}

const TESTS: &[(&str, Test)] = &[
    ("padding-before-a-prompt-is-not-seen", |device| {
        let tensors = drawn(6, device);
        let step = padding(6, device);
        let at_once = causal().with_pattern(Pattern::Causal.and(step.pattern.clone()));
        for mechanism in [
            Mechanism::Flash.into(),
            Mechanism::Standard.into(),
            // The last query sees padding in its window, and a key before it.
            SlidingWindow { window: 4 }.into(),
            Mechanism::Additive.into(),
        ] {
            last_is_the_same(mechanism, &tensors, &step, &at_once);
        }
    }),
    ("a-bias-is-added", |device| {
        let tensors = drawn(5, device);
        let bias = normal([1, 2, 5, 5], device);
        let step = causal().with_bias(bias.clone().slice_dim(2, 4..5));
        let at_once = causal().with_bias(bias);
        for mechanism in [Mechanism::Flash, Mechanism::SlidingWindow] {
            last_is_the_same(small_for_tests(mechanism), &tensors, &step, &at_once);
        }
    }),
    ("a-clone-goes-its-own-way", |device| {
        let tensors = drawn(4, device);
        for mechanism in [
            Mechanism::Flash,
            Mechanism::SlidingWindow,
            Mechanism::Linear,
        ] {
            let small = small_for_tests(mechanism);
            differs_from_full(&small, 2, [4; 2], Mask::Causal, device);
            let mut one = filled(small, &tensors, 3, &causal());
            let mut other = one.clone();
            let [query, key, value] = rows(&tensors, 3..4);
            let elsewhere = [query, key.mul_scalar(-3.0), value.mul_scalar(-3.0)];
            step(&mut other, elsewhere, &causal());
            let got = step(&mut one, rows(&tensors, 3..4), &causal());
            let [query, key, value] = tensors.clone();
            let all = attend(small, query, key, value, &causal());
            same_as(mechanism.word(), got, all.slice_dim(2, 3..4));
        }
    }),
    ("distances-in-a-ring-are-refused", |device| {
        let tensors = drawn(3, device);
        let options = AttentionOptions::new();
        let mut cache = filled(Mechanism::SlidingWindow, &tensors, 2, &options);
        let falling = options.clone().with_alibi(alibi_slopes(2));
        is_refused(
            || step(&mut cache.clone(), rows(&tensors, 2..3), &falling),
            "a step of decoding: the first options had no ALiBi, bias or pattern, so that the \
             last keys alone were kept, in no order; these have",
        );
        // Nothing was taken in.
        step(&mut cache, rows(&tensors, 2..3), &options);
        assert_eq!(cache.len(), 3);
    }),
    ("scores-of-a-state-are-refused", |device| {
        let step = |options: &AttentionOptions| {
            let mut cache = must(DecodeCache::new(Mechanism::Linear.into(), 1));
            step(&mut cache, drawn(1, device), options)
        };
        is_refused(
            || step(&AttentionOptions::new().with_alibi(alibi_slopes(2))),
            "a step of decoding: ALiBi is not supported, since it computes no scores or weights",
        );
        is_refused(
            || step(&padding(1, device)),
            "a step of decoding: a state has seen all keys there were: the pattern must be full \
             or causal, got key padding",
        );
    }),
    ("keys-without-values-are-refused", |device| {
        let [_, key, value] = drawn(3, device);
        is_refused(
            || KvCache::new(4).append(key, value.slice_dim(2, 0..2)),
            "a cache: value must be [batch = 2, kv_heads = 2, new = 3, d_value] like the keys, \
             got [2, 2, 2, 4]",
        );
    }),
    ("places-of-several-sizes-are-refused", |device| {
        let config = MultiHeadAttentionConfig::new(8, 2).with_kdim(Some(4));
        let attention = config.init(device);
        let mut cache = must(attention.decode_cache(1));
        is_refused(
            || attention.step(Tensor::zeros([1, 1, 8], device), &mut cache),
            "multi-head attention: a place is query, key and value: kdim and vdim must be \
             d_model = 8, got [4, 8]",
        );
    }),
];

/// Appends what does not fit, after which a correct append must give the rows there would have
/// been without it.
fn a_refused_append_changes_nothing(device: &Device, other: DType) {
    let tensors = drawn(5, device);
    let append = |cache: &mut KvCache, places| {
        let [_, key, value] = rows(&tensors, places);
        cache.append(key, value).map(numbers)
    };
    let (f32, fitting) = (DType::F32, [2, 2, 1, 4]);
    let sizes = "new rows must be [batch = 2, kv_heads = 2, new, 4] like the first, got";
    let keys = "like the keys, got";
    let types = "must be F32 on";
    let refused = [
        ("wide value", [(fitting, f32), ([2, 2, 1, 5], f32)], sizes),
        ("wide key", [([2, 2, 1, 5], f32), (fitting, f32)], sizes),
        ("other batch", [([1, 2, 1, 4], f32); 2], sizes),
        ("other heads", [([2, 1, 1, 4], f32); 2], sizes),
        ("more keys", [([2, 2, 2, 4], f32), (fitting, f32)], keys),
        ("dtype of key", [(fitting, other), (fitting, f32)], types),
        ("dtype of value", [(fitting, f32), (fitting, other)], types),
    ];
    // All rows, with no memory left for more after the first three; and a ring of the last four.
    for (name, mut cache) in [("all", KvCache::new(3)), ("ring", KvCache::ring(4))] {
        let mut untouched = cache.clone();
        append(&mut cache, 0..3);
        append(&mut untouched, 0..3);
        for (what, rows, message) in refused {
            let zeros = |(dims, dtype)| Tensor::<4>::zeros(dims, device).cast(dtype);
            let [key, value] = rows.map(zeros);
            let said = refusal(|| cache.append(key, value));
            assert!(said.contains(message), "{name}: {what}: {said}");
        }
        assert_eq!(cache.len(), 3, "{name}");
        let got = append(&mut cache, 3..5);
        assert_eq!(got, append(&mut untouched, 3..5), "{name}");
        let has_zeros = got.iter().flatten().any(|number| *number == 0.0);
        assert!(!has_zeros, "{name}: zeros among rows of which none is");
    }
}

/// The same for a step of a mechanism that keeps keys, a window of them, or a state.
fn a_refused_step_changes_nothing(device: &Device, other: DType) {
    let tensors = drawn(4, device);
    let options = AttentionOptions::new();
    let mechanisms: [MechanismConfig; 4] = [
        Mechanism::Flash.into(),
        SlidingWindow { window: 1 }.into(),
        Mechanism::Linear.into(),
        Mechanism::Retention.into(),
    ];
    for mechanism in mechanisms {
        let mut cache = filled(mechanism, &tensors, 3, &options);
        let mut untouched = cache.clone();
        let zeros = |dims: [usize; 4]| Tensor::<4>::zeros(dims, device);
        let fitting = || zeros([2, 2, 1, 4]);
        for refused in [
            [zeros([2, 3, 1, 4]), fitting(), fitting()],
            [zeros([2, 2, 1, 5]), fitting(), fitting()],
            [fitting().cast(other), fitting(), fitting()],
            [fitting(), fitting(), zeros([2, 2, 1, 5])],
            [zeros([2, 2, 1, 5]), zeros([2, 2, 1, 5]), fitting()],
        ] {
            refusal(|| step(&mut cache, refused, &options));
        }
        let [got, want] = [&mut cache, &mut untouched]
            .map(|cache| numbers(step(cache, rows(&tensors, 3..4), &options)));
        assert_eq!((got, cache.len()), (want, 4), "{mechanism:?}");
    }
}
