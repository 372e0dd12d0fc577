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
        let shape = format!("{:?}", results.dims());
        println!("{places:<13}{shape:<15}{:.7}", difference(&steps, &results));
    }

    println!("\nbetween an encoder and a decoder");
    for mechanism in Mechanism::ALL {
        let config = TransformerConfig::base(100, 100);
        let config = config.with_cross_attention(mechanism.into());
        let answer = match config.check() {
            Ok(()) => "can".to_owned(),
            Err(ModelError::Mechanism { reason, .. }) => format!("cannot: {reason}"),
            Err(other) => return Err(other.into()),
        };
        println!("{:18}{answer}", mechanism.word());
    }
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
    }
    Ok(())
}

/// What is kept between one token and the next, by every mechanism.
pub(crate) fn caches(opened: &Opened) -> Outcome {
    println!("                                 numbers kept of");
    println!("mechanism                        32 places   64 places   128 places");
    for mechanism in Mechanism::ALL {
        for (name, config) in sizes(mechanism) {
            print!("{name:30}");
            match DecodeCache::new(config, 128) {
                Ok(cache) => println!("{}", kept(cache, opened)),
                Err(error) => println!("   {error}"),
            }
        }
    }
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
fn kept(mut cache: DecodeCache, opened: &Opened) -> String {
    let kv_heads = cache.mechanism().kv_heads(4).unwrap_or(4);
    let counts = [32, 32, 64].map(|more| {
        let [key, value] = [(); 2].map(|()| normal([1, kv_heads, more, 8], &opened.device));
        cache.extend(key, value, &AttentionOptions::new());
        cache.numbers()
    });
    format!("{:>12}{:>12}{:>13}", counts[0], counts[1], counts[2])
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
