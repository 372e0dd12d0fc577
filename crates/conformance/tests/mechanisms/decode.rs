//! Mechanisms one place after the other, with all that options may say.

use burn::tensor::{Bool, Device, Distribution, Tensor};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{
    AttentionOptions, DecodeCache, KvCache, Mechanism, MechanismConfig, MultiHeadAttentionConfig,
    Pattern, alibi_slopes, attend,
};
use zoo_conformance::numbers;
use zoo_testkit::Precision;

use crate::misuses::is_refused;

type Test = fn(&Device) -> Result<(), Failed>;

pub(crate) fn trials(device: &Device) -> Vec<Trial> {
    let trial = |&(name, test): &(&str, Test)| {
        let device = device.clone();
        Trial::test(format!("decode/{name}"), move || test(&device))
    };
    TESTS.iter().map(trial).collect()
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
    mechanism: Mechanism,
    tensors: &[Tensor<4>; 3],
    step: &AttentionOptions,
    at_once: &AttentionOptions,
) -> Result<(), Failed> {
    let [_, _, places, _] = tensors[0].dims();
    let mut cache = filled(mechanism, tensors, places - 1, step)?;
    let [query, key, value] = at(tensors, places - 1);
    let got = cache.step(query, key, value, step);
    let [query, key, value] = tensors.clone();
    let all = attend(mechanism, query, key, value, at_once);
    same(got, all.slice_dim(2, places - 1..places))
}

fn same(got: Tensor<4>, want: Tensor<4>) -> Result<(), Failed> {
    let want: Vec<f64> = numbers(want).into_iter().map(f64::from).collect();
    // Both sides are rounded.
    Precision::F32
        .backward(0.0)
        .check("result", &numbers(got), &want)?;
    Ok(())
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
            Mechanism::Flash,
            Mechanism::Standard,
            Mechanism::SlidingWindow,
            Mechanism::Additive,
        ] {
            last_is_the_same(mechanism, &tensors, &step, &at_once)
                .map_err(|error| format!("{mechanism}: {error:?}"))?;
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
            last_is_the_same(mechanism, &tensors, &step, &with(bias.clone()))
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
            let mut one = filled(mechanism, &tensors, 3, &options)?;
            let mut other = one.clone();
            let [query, key, value] = at(&tensors, 3);
            let elsewhere = [&key, &value].map(|tensor| tensor.clone().mul_scalar(-3.0));
            let [other_key, other_value] = elsewhere;
            other.step(query.clone(), other_key, other_value, &options);
            let got = one.step(query, key, value, &options);
            let [query, key, value] = tensors.clone();
            let all = attend(mechanism, query, key, value, &options);
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
            "a step of decoding: there are no scores or weights for a ALiBi to change",
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
            || {
                attention.step(Tensor::zeros([1, 1, 8], device), &mut cache.clone());
            },
            "multi-head attention: a place is query, key and value: kdim and vdim must be \
             d_model = 8, got [4, 8]",
        )
    }),
];
