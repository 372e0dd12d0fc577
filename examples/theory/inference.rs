//! Layers in training and in inference, within one sequence and from one to another.

use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::{Fixed, LocalM, Performer, SlidingWindow, Strided};
use zoo_attention::{
    AttentionOptions, DecodeCache, Mechanism, MechanismConfig, MultiHeadAttentionConfig, Pattern,
    Positions,
};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference, normal};
use zoo_models::{ModelError, TransformerConfig};

use crate::assert_same;

/// Attention from one sequence to another: as many results as queries, and a memory that is
/// read once.
pub(crate) fn crossing(opened: &Opened) -> Outcome {
    const D_MODEL: usize = 32;
    let device = &opened.device;
    let draw = |places: usize| normal([1, places, D_MODEL], device);
    let layer = MultiHeadAttentionConfig::new(D_MODEL, 4).init(device);
    let x = draw(24);
    println!("memory of    results        one by one, remembered once, differ by");
    for places in [7, 31] {
        let y = draw(places);
        let results = layer.forward(x.clone(), y.clone(), y.clone(), Pattern::Full);
        let memory = layer.remember(y.clone(), y);
        let steps = (0..24).map(|at| {
            let place = x.clone().slice_dim(1, at..at + 1);
            layer.recall(place, &memory, Pattern::Full)
        });
        let steps = Tensor::cat(steps.collect(), 1);
        let differ = difference(&steps, &results);
        let shape = format!("{:?}", results.dims());
        println!("{places:<13}{shape:<15}{differ:.7}");
        assert_eq!(shape, "[1, 24, 32]");
        assert_same(true, differ);
    }

    println!("\nbetween an encoder and a decoder");
    let mut refusing = vec![];
    for mechanism in Mechanism::ALL {
        let config = TransformerConfig::base(100, 100);
        let config = config.with_cross_attention(mechanism.into());
        let answer = match config.check() {
            Ok(()) => "can".to_owned(),
            Err(ModelError::Mechanism { reason, .. }) => {
                refusing.push(mechanism.word());
                format!("cannot: {reason}")
            }
            Err(other) => return Err(other.into()),
        };
        println!("{:18}{answer}", mechanism.word());
    }
    let expected = "sliding-window block strided fixed longformer bigbird lsh retention";
    assert_eq!(refusing.join(" "), expected);
    Ok(())
}

/// Training sees a whole text at once, inference a token at a time; both compute the same.
pub(crate) fn decoding(opened: &Opened) -> Outcome {
    const PLACES: usize = 20;
    const D_MODEL: usize = 16;
    let device = &opened.device;
    let x = normal([1, PLACES, D_MODEL], device);
    // The same text with another last place.
    let earlier = x.clone().slice_dim(1, 0..PLACES - 1);
    let last = x.clone().slice_dim(1, PLACES - 1..PLACES).add_scalar(1.0);
    let other = Tensor::cat(vec![earlier, last], 1);

    println!("what differs, at most:");
    println!("                  step by step         earlier places, when the last is another");
    println!("mechanism         and all at once      causal       full");
    let mechanisms: [MechanismConfig; 4] = [
        Mechanism::Flash.into(),
        MechanismConfig::SlidingWindow(SlidingWindow { window: 5 }),
        Mechanism::Linear.into(),
        Mechanism::Performer.into(),
    ];
    for mechanism in mechanisms {
        let word = mechanism.mechanism().word();
        let layer = MultiHeadAttentionConfig::new(D_MODEL, 2)
            .with_positions(Positions::Rotary { theta: 10_000.0 })
            .with_mechanism(mechanism)
            .init(device);
        let whole = |x: &Tensor<3>, pattern: Pattern| {
            layer.forward(x.clone(), x.clone(), x.clone(), pattern)
        };
        let at_once = whole(&x, Pattern::Causal);
        let mut cache = layer.decode_cache(PLACES)?;
        let steps = (0..PLACES).map(|at| {
            let place = x.clone().slice_dim(1, at..at + 1);
            layer.step(place, &mut cache) // [1, 1, d_model]
        });
        let steps = difference(&Tensor::cat(steps.collect(), 1), &at_once);
        let [causal, full] = [Pattern::Causal, Pattern::Full].map(|pattern| {
            let [a, b] = [&x, &other].map(|x| whole(x, pattern.clone()));
            let [a, b] = [a, b].map(|result| result.slice_dim(1, 0..PLACES - 1));
            difference(&a, &b)
        });
        println!("{word:<16}  {steps:<19.7}  {causal:<11.7}  {full:.7}");
        // Products are summed in another order.
        assert!(steps < 1e-4 && causal < 1e-4 && full > 1e-3);
    }
    Ok(())
}

/// What is kept between one token and the next, by every mechanism.
pub(crate) fn caches(opened: &Opened) -> Outcome {
    println!("                                 numbers kept of");
    println!("mechanism                        32 places   64 places   128 places");
    let mut refusing = vec![];
    for mechanism in Mechanism::ALL {
        for (name, config) in sizes(mechanism) {
            match DecodeCache::new(config, 128) {
                Ok(cache) => {
                    let [first, second, third] = kept(cache, opened);
                    println!("{name:30}{first:>12}{second:>12}{third:>13}");
                    check_kept(mechanism, [first, second, third]);
                }
                Err(error) => {
                    println!("{name:30}   {error}");
                    assert!(error.to_string().contains("cannot decode"));
                    refusing.push(name);
                }
            }
        }
    }
    refusing.sort();
    let expected = "bigbird/fixed, block sqrt(n)/local-p/lsh/strided, stride sqrt(n)";
    assert_eq!(refusing.join("/"), expected);
    Ok(())
}

/// A mechanism with sizes that show: what it keeps may depend on them.
fn sizes(mechanism: Mechanism) -> Vec<(String, MechanismConfig)> {
    const SIZE: usize = 8;
    let (stride, block, summary) = (Some(SIZE), Some(SIZE), 1);
    let (key, own): (&str, MechanismConfig) = match mechanism {
        Mechanism::SlidingWindow => ("window", SlidingWindow { window: SIZE }.into()),
        Mechanism::LocalM => ("window", LocalM { window: SIZE }.into()),
        Mechanism::Strided => ("stride", Strided { stride }.into()),
        Mechanism::Fixed => ("block", Fixed { block, summary }.into()),
        _ => return vec![(mechanism.to_string(), mechanism.into())],
    };
    let mut sizes = vec![(format!("{mechanism}, {key} {SIZE}"), own)];
    if key != "window" {
        sizes.push((format!("{mechanism}, {key} sqrt(n)"), mechanism.into()));
    }
    sizes
}

/// The numbers a cache has after more and more places.
fn kept(mut cache: DecodeCache, opened: &Opened) -> [usize; 3] {
    let kv_heads = cache.mechanism().kv_heads(4).unwrap_or(4);
    [32, 32, 64].map(|more| {
        let [key, value] = [(); 2].map(|()| normal([1, kv_heads, more, 8], &opened.device));
        cache.extend(key, value, &AttentionOptions::new());
        cache.numbers()
    })
}

/// They are as many as the page says.
fn check_kept(mechanism: Mechanism, kept: [usize; 3]) {
    let both = 2 * 8; // a key and a value of 8 numbers
    let state = |features: usize| {
        // One matrix of features or numbers of a key by those of a value, and no more than a
        // column and a number besides.
        let state = 4 * features * 8..=4 * (features * 9 + 1);
        assert!(kept == [kept[0]; 3] && state.contains(&kept[0]), "{kept:?}");
    };
    let all = |heads: usize| assert_eq!(kept, [32, 64, 128].map(|n| heads * both * n));
    match mechanism {
        Mechanism::SlidingWindow | Mechanism::LocalM => assert_eq!(kept, [4 * both * (8 + 1); 3]),
        Mechanism::Linear | Mechanism::Retention => state(8),
        Mechanism::Performer => state(256),
        Mechanism::MultiQuery | Mechanism::GroupedQuery => all(1),
        _ => all(4),
    }
}

/// What is drawn while a layer learns is drawn nowhere else.
pub(crate) fn training(opened: &Opened) -> Outcome {
    let plain = &opened.device;
    let learning = &plain.clone().autodiff();
    let config = MultiHeadAttentionConfig::new(32, 4);
    let redrawn = MechanismConfig::Performer(Performer {
        features: 32,
        seed: 0,
        redraw: Some(1),
    });

    println!("                              two passes differ by, on a device");
    println!("                              that takes gradients    that does not");
    let with = |mechanism: MechanismConfig| config.clone().with_mechanism(mechanism);
    for (name, config) in [
        ("no dropout", config.clone()),
        ("dropout", config.clone().with_dropout(0.5)),
        ("hard", with(Mechanism::Hard.into())),
        ("performer, features redrawn", with(redrawn)),
    ] {
        let [drawn, fixed] = [learning, plain].map(|device| twice(&config, device));
        println!("{name:30}{drawn:<24.7}{fixed:.7}");
        assert_eq!(drawn > 1e-3, name != "no dropout");
        assert!(fixed < 1e-6);
    }
    Ok(())
}

/// How far two passes of one layer over one text are apart.
fn twice(config: &MultiHeadAttentionConfig, device: &Device) -> f32 {
    let layer = config.init(device);
    let x = normal([1, 16, 32], device);
    let pass = || layer.forward(x.clone(), x.clone(), x.clone(), Pattern::Full);
    difference(&pass(), &pass())
}
