//! The module one place after the other, and what it remembers.

use burn::tensor::{Device, Distribution, Tensor};
use libtest_mimic::Failed;
use zoo_attention::mechanisms::{LocalM, LocalP};
use zoo_attention::{
    CannotDecode, Mechanism, MechanismConfig, MultiHeadAttention, MultiHeadAttentionConfig,
    MultiHeadError, Pattern, Positions,
};

use zoo_conformance::{Test, differs_from_full, is_refused, same};
use zoo_oracle::{Mask, SMALL_HEADS, SMALL_SEQUENCE, small_for_tests};

use super::shared;

/// One place after the other gives what all at once give, or says that it cannot.
pub(super) fn decodes(mechanism: Mechanism, device: &Device) -> Result<(), Failed> {
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
            Ok(attention) => decodes_as(&attention, &mechanism, device)?,
            Err(MultiHeadError::Unsupported { .. }) if support.is_err() => {}
            Err(error) => return Err(error.to_string().into()),
        }
    }
    Ok(())
}

fn decodes_as(
    attention: &MultiHeadAttention,
    mechanism: &MechanismConfig,
    device: &Device,
) -> Result<(), Failed> {
    let mut cache = match attention.decode_cache(2) {
        Ok(cache) => cache,
        Err(error)
            if matches!(
                mechanism.mechanism(),
                Mechanism::BigBird | Mechanism::LocalP | Mechanism::Lsh
            ) =>
        {
            return cannot(&error, mechanism);
        }
        Err(error) => return Err(error.to_string().into()),
    };
    differs_from_full(mechanism, SMALL_HEADS, [7; 2], Mask::Causal, device)?;
    let x = Tensor::<3>::random([2, 7, 8], Distribution::Normal(0.0, 1.0), device);
    let places = (0..7).map(|at| {
        let place = x.clone().slice_dim(1, at..at + 1);
        attention.step(place, &mut cache)
    });
    let by_step = Tensor::cat(places.collect(), 1);
    let at_once = attention.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal);
    same(by_step, at_once.clone())?;

    // The first ones at once, then one by one; and once more the last.
    let mut cache = attention
        .decode_cache(1)
        .map_err(|error| error.to_string())?;
    let mut parts = vec![attention.prefill(x.clone().slice_dim(1, 0..5), &mut cache)];
    for at in 5..7 {
        parts.push(attention.step(x.clone().slice_dim(1, at..at + 1), &mut cache));
    }
    same(Tensor::cat(parts, 1), at_once.clone())?;
    let last = at_once.slice_dim(1, 6..7);
    match cache.rewind(6) {
        Ok(()) => same(attention.step(x.slice_dim(1, 6..7), &mut cache), last),
        // A window or a state has forgotten what there was.
        Err(error) if forgets(mechanism) => {
            let message = format!(
                "a cache of {} cannot go back to 6 of 7 places",
                mechanism.mechanism()
            );
            match error.to_string().starts_with(&message) && cache.len() == 7 {
                true => Ok(()),
                false => Err(error.to_string().into()),
            }
        }
        Err(error) => Err(error.to_string().into()),
    }
}

fn forgets(mechanism: &MechanismConfig) -> bool {
    matches!(
        mechanism.mechanism(),
        Mechanism::SlidingWindow
            | Mechanism::LocalM
            | Mechanism::Linear
            | Mechanism::Performer
            | Mechanism::Retention
    )
}

/// Whether an error says of a mechanism that it cannot decode.
fn cannot(error: &CannotDecode, mechanism: &MechanismConfig) -> Result<(), Failed> {
    let name = mechanism.mechanism();
    let Err(reason) = mechanism.capabilities().decoding else {
        return Err(format!("{name} is declared to decode, and does not: {error}").into());
    };
    let message = format!("mechanism {name} cannot decode token by token: {reason}");
    match error.to_string() == message {
        true => Ok(()),
        false => Err(error.to_string().into()),
    }
}

pub(super) const TESTS: &[(&str, Test)] = &[
    ("memory-is-projected-once", |device| {
        let draw =
            |seq: usize| Tensor::<3>::random([2, seq, 12], Distribution::Normal(0.0, 1.0), device);
        let (query, memory) = (draw(5), draw(SMALL_SEQUENCE));
        let padded = Pattern::key_lengths(vec![SMALL_SEQUENCE, 4]);
        for mechanism in Mechanism::ALL {
            // One looks back, and there is no back here; one has no keys but its queries.
            if matches!(mechanism, Mechanism::Retention | Mechanism::Lsh) {
                continue;
            }
            let small = small_for_tests(mechanism);
            let sizes = [5, SMALL_SEQUENCE];
            differs_from_full(&small, SMALL_HEADS, sizes, Mask::Full, device)?;
            let attention = MultiHeadAttentionConfig::new(12, SMALL_HEADS)
                .with_mechanism(small)
                .init(device);
            let kept = attention.remember(memory.clone(), memory.clone());
            for pattern in [Pattern::Full, padded.clone()] {
                let (key, value) = (memory.clone(), memory.clone());
                let want = attention.forward(query.clone(), key, value, pattern.clone());
                same(
                    attention.recall(query.clone(), &kept, pattern.clone()),
                    want,
                )
                .map_err(|error| format!("{mechanism}: {error:?}"))?;
            }
        }
        Ok(())
    }),
    ("memory-is-recalled-from-any-place-on", |device| {
        let draw =
            |seq: usize| Tensor::<3>::random([2, seq, 12], Distribution::Normal(0.0, 1.0), device);
        let memory = draw(5);
        // More queries than keys: the last are beyond every window.
        let query = draw(9);
        let mechanisms = [
            MechanismConfig::LocalM(LocalM { window: 1 }),
            MechanismConfig::LocalM(LocalM { window: 0 }),
            MechanismConfig::from(Mechanism::Flash),
            MechanismConfig::LocalP(LocalP { window: 1 }),
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
                same(Tensor::cat(parts.to_vec(), 1), want)
                    .map_err(|error| format!("{mechanism:?}, {pattern:?}: {error:?}"))?;
            }
        }
        Ok(())
    }),
    ("a-cache-is-filled-from-the-first-place-on", |device| {
        let attention = MultiHeadAttentionConfig::new(8, 2).init(device);
        let mut cache = attention.decode_cache(4).map_err(|e| e.to_string())?;
        attention.step(Tensor::zeros([1, 1, 8], device), &mut cache);
        is_refused(
            || attention.prefill(Tensor::zeros([1, 2, 8], device), &mut cache.clone()),
            "multi-head attention: a cache is filled from the first place on, this one has 1",
        )
    }),
    ("a-cache-of-another-mechanism-is-refused", |device| {
        let of = |mechanism: Mechanism| {
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism.into());
            config.init(device)
        };
        let cache = of(Mechanism::Linear).decode_cache(1);
        let cache = cache.map_err(|error| error.to_string())?;
        let (flash, place) = (of(Mechanism::Flash), Tensor::<3>::zeros([1, 1, 8], device));
        is_refused(
            || flash.step(place.clone(), &mut cache.clone()),
            "multi-head attention: a cache of linear was given to flash",
        )
    }),
    ("sizes-that-follow-the-length-cannot-decode", |device| {
        for mechanism in [Mechanism::Strided, Mechanism::Fixed] {
            let mechanism = MechanismConfig::from(mechanism);
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism);
            match config.init(device).decode_cache(1) {
                Ok(_) => return Err(format!("{mechanism:?} decodes").into()),
                Err(error) => cannot(&error, &mechanism)?,
            }
        }
        Ok(())
    }),
];
