//! Permutation equivariance of attention, and position encodings.

use std::error::Error;

use burn::tensor::{Int, Tensor};
use zoo_attention::{
    AttentionInput, AttentionOptions, Mechanism, MultiHeadAttentionConfig, Pattern, Positions,
    Rotary, alibi_slopes, rotate, standard,
};
use zoo_backend::OpenDevice;
use zoo_examples::{Outcome, difference, normal, query_key_value, self_attention};
use zoo_models::{Classifier, ClassifierConfig, PositionEncoding, Tokens};

use crate::assert_same;

const ROTARY: f64 = 10_000.0;

/// Permutation equivariance of layers.
pub(crate) fn permutation_equivariance(opened: &OpenDevice) -> Outcome {
    const SEQ: usize = 24;
    const D_MODEL: usize = 32;
    let device = &opened.device;
    let layer = |positions: Positions| {
        let config = MultiHeadAttentionConfig::new(D_MODEL, 4).with_positions(positions);
        config.init(device)
    };
    let [x, other] = [(); 2].map(|()| normal([1, SEQ, D_MODEL], device));
    // A permutation, because 7 and 24 are coprime.
    let order: Vec<i32> = (0..SEQ as i32).map(|i| i * 7 % SEQ as i32).collect();
    let order = Tensor::<1, Int>::from_ints(order.as_slice(), device);
    let shuffled = |x: &Tensor<3>| x.clone().select(1, order.clone());

    println!("                                  shuffling before or after differs by");
    let rotary = Positions::rotary(ROTARY);
    let window = Pattern::Window { left: 3, right: 3 };
    for (name, positions, pattern) in [
        ("self, no positions", Positions::None, Pattern::Full),
        ("self, rotary positions", rotary, Pattern::Full),
        ("self, ALiBi", Positions::Alibi, Pattern::Full),
        ("self, causal", Positions::None, Pattern::Causal),
        ("self, window", Positions::None, window),
        ("self, blocks", Positions::None, Pattern::Block { size: 6 }),
    ] {
        let layer = layer(positions);
        let before = self_attention(&layer, &shuffled(&x), pattern.clone());
        let after = shuffled(&self_attention(&layer, &x, pattern));
        let differ = difference(&before, &after);
        println!("{name:34}{differ:.7}");
        assert_same(name == "self, no positions", differ);
    }
    // Cross-attention is invariant to the order of its memory.
    let layer = layer(Positions::None);
    let cross = |memory: Tensor<3>| {
        layer
            .forward(AttentionInput::cross_attn(x.clone(), memory))
            .context
    };
    let differ = difference(&cross(other.clone()), &cross(shuffled(&other)));
    println!("{:34}{differ:.7}", "cross, memory shuffled");
    assert_same(true, differ);

    // Rotary scores depend on relative positions only.
    println!("\n                                  scores shifted by 10 differ by");
    let scores = |query: i64, key: i64| {
        let rotated =
            |x: &Tensor<3>, first| rotate(x.clone().unsqueeze_dim(1), first, &Rotary::new(ROTARY));
        let scores = rotated(&x, query).matmul(rotated(&other, key).swap_dims(2, 3));
        scores.squeeze_dim::<3>(1)
    };
    // The largest of these dot products of 32 elements are about 20, and other angles round
    // differently.
    for (name, query, key, expected) in [
        ("query and key", 10, 10, 0.0..1e-3),
        ("key only", 0, 10, 1.0..f32::INFINITY),
    ] {
        let differ = difference(&scores(0, 0), &scores(query, key));
        println!("{name:34}{differ:.7}");
        assert!(expected.contains(&differ));
    }
    Ok(())
}

/// Position encodings, and the mechanisms that support them.
pub(crate) fn position_encodings(opened: &OpenDevice) -> Outcome {
    let device = &opened.device;
    println!("position encoding         logits of a shuffled text differ by");
    let text: Vec<u32> = (0..9).collect();
    let shuffled = text.iter().map(|i| i * 4 % 9).collect();
    for (name, positions) in [
        ("none", PositionEncoding::None),
        ("sinusoidal", PositionEncoding::Sinusoidal),
        ("learned", PositionEncoding::learned(9)),
        ("rotary", PositionEncoding::rotary(ROTARY)),
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
        assert!(match positions {
            PositionEncoding::None => differ < 1e-5,
            _ => differ > 1e-3,
        });
        let longer = Tokens::new(&[[0; 10]], model.limits(), device);
        assert_eq!(longer.is_err(), name == "learned");
        if let Err(error) = longer {
            println!("{:26}longer text: {error}", "");
        }
    }

    alibi_is_a_bias(opened);

    let without_scores = [
        "lsh",
        "moba",
        "native-sparse",
        "nystrom",
        "linformer",
        "linear",
        "performer",
        "cosformer",
        "based",
        "retention",
        "lightning",
        "mamba2",
        "gla",
        "delta",
        "gated-delta",
        "kda",
    ];
    for (name, positions, expected) in [
        ("rotary", Positions::rotary(ROTARY), &[][..]),
        ("ALiBi", Positions::Alibi, &without_scores),
    ] {
        let is_unsupported = |mechanism: &Mechanism| {
            let config = MultiHeadAttentionConfig::new(16, 2)
                .with_mechanism(*mechanism)
                .with_positions(positions);
            config.try_init(device).is_err()
        };
        let unsupported = Mechanism::ALL.into_iter().filter(is_unsupported);
        let names: Vec<&str> = unsupported.map(Mechanism::name).collect();
        println!("{name} is not supported by {names:?}");
        assert_eq!(names, expected);
    }
    Ok(())
}

/// The ALiBi option equals an explicit bias `-m·|i - j|`.
fn alibi_is_a_bias(opened: &OpenDevice) {
    const SEQ: usize = 12;
    let [query, key, value] = query_key_value([1, 4, SEQ, 16], &opened.device);
    let slopes = alibi_slopes(4);
    let bias = slopes.iter().flat_map(|slope| {
        let distances = (0..SEQ * SEQ).map(|i| (i / SEQ).abs_diff(i % SEQ));
        distances.map(move |distance| -slope * distance as f32)
    });
    let bias: Vec<f32> = bias.collect();
    let bias = Tensor::<1>::from_floats(bias.as_slice(), &opened.device);
    let bias = AttentionOptions::new().with_bias(bias.reshape([1, 4, SEQ, SEQ]));
    let alibi = AttentionOptions::new().with_alibi(slopes);
    let [a, b] = [alibi, bias].map(|options| {
        standard(query.clone(), key.clone(), value.clone(), &options).into_weights()
    });
    let differ = difference(&a, &b);
    println!("\nALiBi and -m·|i - j| added to scores differ by {differ:.7}\n");
    assert!(differ < 1e-6);
}
