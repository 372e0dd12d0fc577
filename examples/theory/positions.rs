//! Attention does not know the order of things, unless it is told.

use std::error::Error;

use burn::tensor::{Int, Tensor};
use zoo_attention::{
    AttentionOptions, Mechanism, MultiHeadAttention, MultiHeadAttentionConfig, Pattern, Positions,
    alibi_slopes, rotate, standard,
};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference, normal, query_key_value};
use zoo_models::{Classifier, ClassifierConfig, PositionEncoding, Tokens};

use crate::assert_same;

const ROTARY: f64 = 10_000.0;

/// Which layers see a shuffled order.
pub(crate) fn order(opened: &Opened) -> Outcome {
    const PLACES: usize = 24;
    const D_MODEL: usize = 32;
    let device = &opened.device;
    let layer = |positions: Positions| {
        let config = MultiHeadAttentionConfig::new(D_MODEL, 4).with_positions(positions);
        config.init(device)
    };
    let [x, other] = [(); 2].map(|()| normal([1, PLACES, D_MODEL], device));
    // 7 and 24 have no common divisor: every place is met once.
    let order: Vec<i32> = (0..PLACES as i32)
        .map(|at| at * 7 % PLACES as i32)
        .collect();
    let order = Tensor::<1, Int>::from_ints(order.as_slice(), device);
    let shuffled = |x: &Tensor<3>| x.clone().select(1, order.clone());

    println!("                                  shuffled before and after differ by");
    let rotary = Positions::Rotary { theta: ROTARY };
    let window = Pattern::Window { left: 3, right: 3 };
    for (name, positions, pattern) in [
        ("self, no positions", Positions::None, Pattern::Full),
        ("self, rotary positions", rotary, Pattern::Full),
        ("self, ALiBi", Positions::Alibi, Pattern::Full),
        ("self, causal", Positions::None, Pattern::Causal),
        ("self, a window", Positions::None, window),
        ("self, blocks", Positions::None, Pattern::Block { size: 6 }),
    ] {
        let layer = layer(positions);
        let before = myself(&layer, shuffled(&x), &pattern);
        let after = shuffled(&myself(&layer, x.clone(), &pattern));
        let differ = difference(&before, &after);
        println!("{name:34}{differ:.7}");
        assert_same(name == "self, no positions", differ);
    }
    // Of what is attended to elsewhere, the order is not even seen in the result.
    let layer = layer(Positions::None);
    let cross = |memory: Tensor<3>| layer.forward(x.clone(), memory.clone(), memory, Pattern::Full);
    let differ = difference(&cross(other.clone()), &cross(shuffled(&other)));
    println!("{:34}{differ:.7}", "cross, its memory shuffled");
    assert_same(true, differ);

    // Rotary scores of a query and a key that stand further on.
    println!("\n                                  scores 10 places on differ by");
    let scores = |query: i64, key: i64| {
        let turned = |x: &Tensor<3>, first| rotate(x.clone().unsqueeze_dim(1), first, ROTARY);
        let products = turned(&x, query).matmul(turned(&other, key).swap_dims(2, 3));
        products.squeeze_dim::<3>(1)
    };
    // Products of 32 numbers, of which the largest are about 20: rotated by other angles, they are
    // rounded otherwise.
    for (name, query, key, expected) in [
        ("query and key", 10, 10, 0.0..1e-3),
        ("the key alone", 0, 10, 1.0..f32::INFINITY),
    ] {
        let differ = difference(&scores(0, 0), &scores(query, key));
        println!("{name:34}{differ:.7}");
        assert!(expected.contains(&differ));
    }
    Ok(())
}

fn myself(layer: &MultiHeadAttention, x: Tensor<3>, pattern: &Pattern) -> Tensor<3> {
    layer.forward(x.clone(), x.clone(), x, pattern.clone())
}

/// The ways to tell a model what stands where, and who can be told how.
pub(crate) fn encodings(opened: &Opened) -> Outcome {
    let device = &opened.device;
    println!("a classifier told by      differs when the text is shuffled by");
    let text: Vec<u32> = (0..9).collect();
    let shuffled = text.iter().map(|at| at * 4 % 9).collect();
    for (name, positions) in [
        ("nothing", PositionEncoding::None),
        ("waves", PositionEncoding::Sinusoidal),
        ("learned places", PositionEncoding::learned(9)),
        ("turned queries and keys", PositionEncoding::rotary(ROTARY)),
        ("ALiBi", PositionEncoding::Alibi),
    ] {
        let config = ClassifierConfig::new(9, 3, 16, 2, 1).with_positions(positions);
        let model: Classifier = config.init(device);
        let logits = |ids: &Vec<u32>| {
            let tokens = Tokens::new(&[ids], model.limits(), device)?;
            Ok::<Tensor<2>, Box<dyn Error>>(model.forward(&tokens))
        };
        let differ = difference(&logits(&text)?, &logits(&shuffled)?);
        println!("{name:26}{differ:.7}");
        let is_told = name != "nothing";
        assert!(if is_told {
            differ > 1e-3
        } else {
            differ < 1e-5
        });
        let longer = Tokens::new(&[[0; 10]], model.limits(), device);
        assert_eq!(longer.is_err(), name == "learned places");
        if let Err(error) = longer {
            println!("{:26}refuses a longer text: {error}", "");
        }
    }

    alibi_is_a_bias(opened);

    let by_order = ["lsh", "linear", "performer", "retention"];
    for (name, positions, expected) in [
        ("rotary", Positions::Rotary { theta: ROTARY }, &[][..]),
        ("ALiBi", Positions::Alibi, &by_order),
    ] {
        let refuses = |mechanism: &Mechanism| {
            let config = MultiHeadAttentionConfig::new(16, 2)
                .with_mechanism((*mechanism).into())
                .with_positions(positions);
            config.try_init(device).is_err()
        };
        let refusing = Mechanism::ALL.into_iter().filter(refuses);
        let words: Vec<&str> = refusing.map(Mechanism::word).collect();
        println!("{name} is refused by {words:?}");
        assert_eq!(words, expected);
    }
    Ok(())
}

/// `s - m·|i - j|`, once by the option and once written out.
fn alibi_is_a_bias(opened: &Opened) {
    const PLACES: usize = 12;
    let [query, key, value] = query_key_value([1, 4, PLACES, 16], &opened.device);
    let slopes = alibi_slopes(4);
    let written = slopes.iter().flat_map(|slope| {
        let pairs = (0..PLACES * PLACES).map(|at| (at / PLACES).abs_diff(at % PLACES));
        pairs.map(move |distance| -slope * distance as f32)
    });
    let written: Vec<f32> = written.collect();
    let bias = Tensor::<1>::from_floats(written.as_slice(), &opened.device);
    let bias = AttentionOptions::new().with_bias(bias.reshape([1, 4, PLACES, PLACES]));
    let alibi = AttentionOptions::new().with_alibi(slopes);
    let [a, b] = [alibi, bias]
        .map(|options| standard(query.clone(), key.clone(), value.clone(), &options).weights);
    let differ = difference(&a, &b);
    println!("\nALiBi and -m·|i - j| added to scores differ by {differ:.7}\n");
    assert!(differ < 1e-6);
}
