//! What is kept between one token and the next, by every mechanism.

use burn::tensor::{Distribution, Tensor};
use zoo_attention::mechanisms::{Fixed, LocalM, SlidingWindow, Strided};
use zoo_attention::{AttentionOptions, DecodeCache, Mechanism, MechanismConfig};
use zoo_backend::Opened;
use zoo_examples::Outcome;

const HEADS: usize = 4;
const D_HEAD: usize = 8;
const WINDOW: usize = 8;

pub(crate) fn run(opened: &Opened) -> Outcome {
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
    let word = mechanism.word();
    let window = format!("{word}, window {WINDOW}");
    match mechanism {
        Mechanism::SlidingWindow => {
            vec![(
                window,
                MechanismConfig::SlidingWindow(SlidingWindow { window: WINDOW }),
            )]
        }
        Mechanism::LocalM => vec![(window, MechanismConfig::LocalM(LocalM { window: WINDOW }))],
        Mechanism::Strided => {
            let stride = Some(WINDOW);
            let own = MechanismConfig::Strided(Strided { stride });
            vec![
                (format!("{word}, stride {WINDOW}"), own),
                (format!("{word}, stride sqrt(n)"), mechanism.into()),
            ]
        }
        Mechanism::Fixed => {
            let (block, summary) = (Some(WINDOW), 1);
            let own = MechanismConfig::Fixed(Fixed { block, summary });
            vec![
                (format!("{word}, block {WINDOW}"), own),
                (format!("{word}, block sqrt(n)"), mechanism.into()),
            ]
        }
        _ => vec![(word.to_owned(), mechanism.into())],
    }
}

/// The numbers a cache has after more and more places.
fn kept(mut cache: DecodeCache, opened: &Opened) -> String {
    let kv_heads = cache.mechanism().kv_heads(HEADS).unwrap_or(HEADS);
    let counts = [32, 32, 64].map(|more| {
        let [key, value] = [(); 2].map(|()| {
            let normal = Distribution::Normal(0.0, 1.0);
            Tensor::random([1, kv_heads, more, D_HEAD], normal, &opened.device)
        });
        cache.extend(key, value, &AttentionOptions::new());
        cache.numbers()
    });
    format!("{:>12}{:>12}{:>13}", counts[0], counts[1], counts[2])
}
