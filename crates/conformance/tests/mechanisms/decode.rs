//! Mechanisms one place after the other, with all that options may say.

use burn::tensor::{Bool, DType, Device, Distribution, Tensor};
use libtest_mimic::Failed;
use zoo_attention::mechanisms::SlidingWindow;
use zoo_attention::{
    AttentionOptions, DecodeCache, KvCache, Mechanism, MechanismConfig, MultiHeadAttentionConfig,
    Pattern, alibi_slopes, attend,
};
use zoo_backend::{Dtype, Opened};
use zoo_conformance::{Suite, Test, differs_from_full, is_refused, is_refused_with, numbers, same};
use zoo_oracle::{Mask, small_for_tests};

pub(crate) fn trials(suite: &mut Suite, opened: &Opened) {
    // A second dtype: NdArray has no half types, and a GPU may have no f64.
    let other = match opened.dtypes.contains(&Dtype::F16) {
        true => DType::F16,
        false => DType::F64,
    };
    suite.add_table("decode/", TESTS);
    suite.add("decode/a-refused-append-changes-nothing", move |device| {
        a_refused_append_changes_nothing(device, other)
    });
    suite.add("decode/a-refused-step-changes-nothing", move |device| {
        a_refused_step_changes_nothing(device, other)
    });
}

/// Query, key and value of 2 examples with 2 heads.
fn drawn(places: usize, device: &Device) -> [Tensor<4>; 3] {
    [(); 3].map(|()| Tensor::random([2, 2, places, 4], Distribution::Normal(0.0, 1.0), device))
}

fn at(tensors: &[Tensor<4>; 3], place: usize) -> [Tensor<4>; 3] {
    tensors
        .each_ref()
        .map(|tensor| tensor.clone().slice_dim(2, place..place + 1))
}

fn cache(mechanism: impl Into<MechanismConfig>) -> Result<DecodeCache, Failed> {
    DecodeCache::new(mechanism.into(), 2).map_err(|error| error.to_string().into())
}

/// The cache after the first `places`, taken in at once.
fn filled(
    mechanism: impl Into<MechanismConfig>,
    tensors: &[Tensor<4>; 3],
    places: usize,
    options: &AttentionOptions,
) -> Result<DecodeCache, Failed> {
    let mut cache = cache(mechanism)?;
    let [_, key, value] = tensors
        .each_ref()
        .map(|tensor| tensor.clone().slice_dim(2, 0..places));
    cache.extend(key, value, options);
    Ok(cache)
}

/// What the last place gets, by a step after all others and by `attend` from all at once.
fn last_is_the_same(
    mechanism: &MechanismConfig,
    tensors: &[Tensor<4>; 3],
    step: &AttentionOptions,
    at_once: &AttentionOptions,
) -> Result<(), Failed> {
    let [_, heads, places, _] = tensors[0].dims();
    let device = &tensors[0].device();
    differs_from_full(mechanism, heads, [places; 2], Mask::Causal, device)?;
    let mut cache = filled(*mechanism, tensors, places - 1, step)?;
    let [query, key, value] = at(tensors, places - 1);
    let got = cache.step(query, key, value, step);
    let [query, key, value] = tensors.clone();
    let all = attend(*mechanism, query, key, value, at_once);
    same(got, all.slice_dim(2, places - 1..places))
}

/// In the first example the first three places are padding before a prompt.
fn padding(places: usize, device: &Device) -> Pattern {
    let hidden = |example: usize| (0..places).map(move |place| example == 0 && place < 3);
    let hidden: Vec<bool> = (0..2).flat_map(hidden).collect();
    let hidden = burn::tensor::TensorData::new(hidden, [2, places]);
    Pattern::KeyPadding(Tensor::<2, Bool>::from_data(hidden, device))
}

const TESTS: &[(&str, Test)] = &[
    ("padding-before-a-prompt-is-not-seen", |device| {
        let tensors = drawn(6, device);
        let step = AttentionOptions::new().with_pattern(padding(6, device));
        let at_once = AttentionOptions::new().with_pattern(Pattern::Causal.and(padding(6, device)));
        for mechanism in [
            MechanismConfig::from(Mechanism::Flash),
            MechanismConfig::from(Mechanism::Standard),
            // The last query sees padding in its window, and a key before it.
            MechanismConfig::SlidingWindow(SlidingWindow { window: 4 }),
            MechanismConfig::from(Mechanism::Additive),
        ] {
            last_is_the_same(&mechanism, &tensors, &step, &at_once)
                .map_err(|error| format!("{mechanism:?}: {error:?}"))?;
        }
        Ok(())
    }),
    ("a-bias-is-added", |device| {
        let tensors = drawn(5, device);
        let bias = Tensor::<4>::random([1, 2, 5, 5], Distribution::Normal(0.0, 1.0), device);
        let with = |bias: Tensor<4>| AttentionOptions {
            bias: Some(bias),
            ..AttentionOptions::new().with_pattern(Pattern::Causal)
        };
        let step = with(bias.clone().slice_dim(2, 4..5));
        for mechanism in [Mechanism::Flash, Mechanism::SlidingWindow] {
            let small = small_for_tests(mechanism);
            last_is_the_same(&small, &tensors, &step, &with(bias.clone()))
                .map_err(|error| format!("{mechanism}: {error:?}"))?;
        }
        Ok(())
    }),
    ("a-clone-goes-its-own-way", |device| {
        let tensors = drawn(4, device);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        for mechanism in [
            Mechanism::Flash,
            Mechanism::SlidingWindow,
            Mechanism::Linear,
        ] {
            let small = small_for_tests(mechanism);
            differs_from_full(&small, 2, [4; 2], Mask::Causal, device)?;
            let mut one = filled(small, &tensors, 3, &options)?;
            let mut other = one.clone();
            let [query, key, value] = at(&tensors, 3);
            let elsewhere = [&key, &value].map(|tensor| tensor.clone().mul_scalar(-3.0));
            let [other_key, other_value] = elsewhere;
            other.step(query.clone(), other_key, other_value, &options);
            let got = one.step(query, key, value, &options);
            let [query, key, value] = tensors.clone();
            let all = attend(small, query, key, value, &options);
            same(got, all.slice_dim(2, 3..4)).map_err(|error| format!("{mechanism}: {error:?}"))?;
        }
        Ok(())
    }),
    ("distances-in-a-ring-are-refused", |device| {
        let tensors = drawn(3, device);
        let options = AttentionOptions::new();
        let mut cache = filled(Mechanism::SlidingWindow, &tensors, 2, &options)?;
        let falling = AttentionOptions {
            alibi: Some(alibi_slopes(2)),
            ..options
        };
        let refused = is_refused(
            || {
                let [query, key, value] = at(&tensors, 2);
                cache.clone().step(query, key, value, &falling);
            },
            "a step of decoding: the first options had no ALiBi, bias or pattern, so that the \
             last keys alone were kept, in no order; these have",
        );
        // Nothing was taken in.
        let [query, key, value] = at(&tensors, 2);
        cache.step(query, key, value, &AttentionOptions::new());
        match cache.len() {
            3 => refused,
            other => Err(format!("{other} places").into()),
        }
    }),
    ("scores-of-a-state-are-refused", |device| {
        let tensors = drawn(1, device);
        let step = |options: AttentionOptions| {
            let cache = DecodeCache::new(Mechanism::Linear.into(), 1);
            let [query, key, value] = tensors.clone();
            if let Ok(mut cache) = cache {
                cache.step(query, key, value, &options);
            }
        };
        let falling = AttentionOptions {
            alibi: Some(alibi_slopes(2)),
            ..AttentionOptions::new()
        };
        is_refused(
            || step(falling.clone()),
            "a step of decoding: ALiBi is not supported, since it computes no scores or weights",
        )?;
        let padded = AttentionOptions::new().with_pattern(padding(1, device));
        is_refused(
            || step(padded.clone()),
            "a step of decoding: a state has seen all keys there were: the pattern must be full \
             or causal, got key padding",
        )
    }),
    ("keys-without-values-are-refused", |device| {
        let [_, key, value] = drawn(3, device);
        is_refused(
            || {
                KvCache::new(4).append(key.clone(), value.clone().slice_dim(2, 0..2));
            },
            "a cache: value must be [batch = 2, kv_heads = 2, new = 3, d_value] like the keys, \
             got [2, 2, 2, 4]",
        )
    }),
    ("places-of-several-sizes-are-refused", |device| {
        let attention = MultiHeadAttentionConfig::new(8, 2)
            .with_kdim(Some(4))
            .init(device);
        let cache = attention.decode_cache(1).map_err(|e| e.to_string())?;
        is_refused(
            || attention.step(Tensor::zeros([1, 1, 8], device), &mut cache.clone()),
            "multi-head attention: a place is query, key and value: kdim and vdim must be \
             d_model = 8, got [4, 8]",
        )
    }),
];

fn rows_of(tensor: &Tensor<4>, rows: std::ops::Range<usize>) -> Tensor<4> {
    tensor.clone().slice_dim(2, rows)
}

/// Appends what does not fit, after which a correct append must give the rows there would have
/// been without it.
fn a_refused_append_changes_nothing(device: &Device, other: DType) -> Result<(), Failed> {
    let [_, key, value] = drawn(5, device);
    let (f32, fitting) = (DType::F32, [2, 2, 1, 4]);
    let message = "new rows must be [batch = 2, kv_heads = 2, new, 4] like the first, got";
    let types = "must be F32 on";
    let refused = [
        ("wide value", [(fitting, f32), ([2, 2, 1, 5], f32)], message),
        ("wide key", [([2, 2, 1, 5], f32), (fitting, f32)], message),
        ("other batch", [([1, 2, 1, 4], f32); 2], message),
        ("other heads", [([2, 1, 1, 4], f32); 2], message),
        (
            "more keys",
            [([2, 2, 2, 4], f32), (fitting, f32)],
            "like the keys, got",
        ),
        (
            "key of another dtype",
            [(fitting, other), (fitting, f32)],
            types,
        ),
        (
            "value of another dtype",
            [(fitting, f32), (fitting, other)],
            types,
        ),
    ];
    // All rows, with no memory left for more after the first three; and a ring of the last four.
    for (name, mut cache) in [("all", KvCache::new(3)), ("ring", KvCache::ring(4))] {
        let mut untouched = cache.clone();
        for cache in [&mut cache, &mut untouched] {
            cache.append(rows_of(&key, 0..3), rows_of(&value, 0..3));
        }
        for (what, rows, message) in refused {
            let zeros = |(dims, dtype)| Tensor::<4>::zeros(dims, device).cast(dtype);
            let [key, value] = rows.map(zeros);
            is_refused_with(|| cache.append(key, value), message)
                .map_err(|error| format!("{name}: {what}: {error:?}"))?;
        }
        assert!(
            cache.len() == 3,
            "{name}: {} positions instead of 3",
            cache.len()
        );
        let appended = |cache: &mut KvCache| {
            let rows = cache.append(rows_of(&key, 3..5), rows_of(&value, 3..5));
            rows.map(numbers)
        };
        let (got, expected) = (appended(&mut cache), appended(&mut untouched));
        assert!(got == expected, "{name}: {got:?} instead of {expected:?}");
        let has_zeros = got.iter().flatten().any(|number| *number == 0.0);
        assert!(!has_zeros, "{name}: zeros among rows of which none is");
    }
    Ok(())
}

/// The same for a step of a mechanism that keeps keys, a window of them, or a state.
fn a_refused_step_changes_nothing(device: &Device, other: DType) -> Result<(), Failed> {
    let tensors = drawn(4, device);
    let window = MechanismConfig::SlidingWindow(SlidingWindow { window: 1 });
    let mechanisms: [MechanismConfig; 4] = [
        Mechanism::Flash.into(),
        window,
        Mechanism::Linear.into(),
        Mechanism::Retention.into(),
    ];
    for mechanism in mechanisms {
        let options = AttentionOptions::new();
        let step = |cache: &mut DecodeCache, [query, key, value]: [Tensor<4>; 3]| {
            cache.step(query, key, value, &options)
        };
        let mut cache = filled(mechanism, &tensors, 3, &options)?;
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
            is_refused_with(|| step(&mut cache, refused), "")
                .map_err(|error| format!("{mechanism:?}: {error:?}"))?;
        }
        let got = numbers(step(&mut cache, at(&tensors, 3)));
        let expected = numbers(step(&mut untouched, at(&tensors, 3)));
        assert!(
            got == expected && cache.len() == 4,
            "{mechanism:?}: {got:?} instead of {expected:?}"
        );
    }
    Ok(())
}
