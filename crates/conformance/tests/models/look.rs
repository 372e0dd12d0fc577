//! Where models say they look is where they look: a model that is put together again from these
//! weights and its own values says what the model says.

use burn::nn::LayerNorm;
use burn::tensor::{Device, Tensor};
use zoo_attention::{Mechanism, MechanismConfig, MultiHeadAttention};
use zoo_models::blocks::FeedForward;
use zoo_models::{
    ClassifierConfig, GptConfig, Pooling, PositionEncoding, TransformerConfig, Tying,
};
use zoo_oracle::{Mask, Precision, small_for_tests};

use crate::support::*;
use crate::transformer::wherever_it_can_be;

pub(crate) fn trials(suite: &mut Suite) {
    for mechanism in Mechanism::ALL {
        suite.add(format!("look/gpt/{mechanism}"), move |device| {
            a_gpt_looks_there(small_for_tests(mechanism), device);
        });
        suite.add(format!("look/transformer/{mechanism}"), move |device| {
            a_transformer_looks_there(small_for_tests(mechanism), device);
        });
    }
    suite.add_table("look/", TESTS);
}

/// What a layer's attention gives for these weights, `[batch, heads, seq_q, seq_k]`.
fn attended(attention: &MultiHeadAttention, weights: Tensor<4>, values: Tensor<3>) -> Tensor<3> {
    let [batch, heads, seq_q, seq_k] = weights.dims();
    let values = attention.value.forward(values); // [batch, seq_k, kv_heads * d_head]
    let d_head = attention.output.weight.dims()[0] / heads;
    let kv_heads = values.dims()[2] / d_head;
    let values = values
        .reshape([batch, seq_k, kv_heads, d_head])
        .swap_dims(1, 2);
    let context = weights
        .reshape([batch, kv_heads, heads / kv_heads * seq_q, seq_k])
        .matmul(values)
        .reshape([batch, heads, seq_q, d_head])
        .swap_dims(1, 2)
        .reshape([batch, seq_q, heads * d_head]);
    attention.output.forward(context)
}

/// Checks the shape of weights, and that those of every place are shares of a whole, where the
/// mechanism's are.
fn whole<const D: usize>(mechanism: Mechanism, weights: &Tensor<D>, dims: [usize; D]) {
    assert_eq!(weights.dims(), dims);
    if !matches!(mechanism, Mechanism::Retention | Mechanism::LocalP) {
        let sums = numbers(weights.clone().sum_dim(D - 1));
        let ones = vec![1.0; sums.len()];
        must(Precision::F32.forward(0.0).check("sums", &sums, &ones));
    }
}

fn network(network: &FeedForward, norm: &LayerNorm, places: Tensor<3>) -> Tensor<3> {
    norm.forward(places.clone() + network.forward(places))
}

/// Two rows of one length.
fn rows() -> [Vec<u32>; 2] {
    [
        vec![0, 5, 3, 3, 9, 1, 7, 4, 8],
        vec![1, 5, 4, 10, 2, 2, 0, 6, 6],
    ]
}

fn a_gpt_looks_there(mechanism: MechanismConfig, device: &Device) {
    differs_from_full(&mechanism, 4, [9; 2], Mask::Causal, device);
    let config = GptConfig::new(11, 16, 4, 2)
        .with_d_feed_forward(Some(24))
        .with_dropout(0.0)
        .with_tied(false)
        .with_positions(PositionEncoding::rotary(1e4))
        .with_attention(mechanism);
    let model = drawn(must(config.try_init(device)), 11);
    let tokens = tokens(&rows(), model.limits(), device);
    let looked = model.look(&tokens);
    assert_eq!(looked.len(), 2);
    let mut places = model.embedding.forward(tokens.ids());
    for (layer, weights) in model.layers.iter().zip(looked) {
        whole(mechanism.mechanism(), &weights, [2, 4, 9, 9]);
        let values = layer.attention_norm.forward(places.clone());
        places = places + attended(&layer.attention, weights, values);
        let inner = layer.feed_forward_norm.forward(places.clone());
        places = places + layer.feed_forward.forward(inner);
    }
    let head = model.head.as_ref().expect("it has a head of its own");
    let logits = head.forward(model.norm.forward(places));
    same(logits, model.forward(&tokens))
}

fn a_transformer_looks_there(mechanism: MechanismConfig, device: &Device) {
    let config = TransformerConfig::base(11, 11)
        .with_d_model(16)
        .with_heads(4)
        .with_layers(2)
        .with_d_feed_forward(Some(24))
        .with_dropout(0.0)
        .with_scale_embeddings(false)
        .with_tying(Tying::None)
        .with_encoder_attention(mechanism)
        .with_decoder_attention(mechanism)
        .with_cross_attention(mechanism);
    let config = wherever_it_can_be(config);
    let (encoder, cross) = (config.spec.encoder_attention, config.spec.cross_attention);
    differs_from_full(&encoder, 4, [9; 2], Mask::Full, device);
    differs_from_full(&mechanism, 4, [9; 2], Mask::Causal, device);
    let model = drawn(must(config.try_init(device)), 3);
    let source = tokens(&rows(), model.source_limits(), device);
    let targets = [
        vec![2, 7, 1, 8, 3, 5, 5, 9, 1],
        vec![10, 4, 4, 6, 0, 3, 8, 2, 7],
    ];
    let target = tokens(&targets, model.target_limits(), device);
    let look = model.look(&source, &target);
    assert_eq!([look.encoder.len(), look.decoder.len()], [2, 2]);

    let vectors = model.source_embedding.as_ref();
    let vectors = vectors.expect("the source has its own");
    let mut places = vectors.forward(source.ids());
    places = model.source_positions.forward(places, 0);
    for (layer, weights) in model.encoder.layers.iter().zip(look.encoder) {
        whole(encoder.mechanism(), &weights, [2, 4, 9, 9]);
        let seen = attended(&layer.attention, weights, places.clone());
        places = layer.attention_norm.forward(places + seen);
        places = network(&layer.feed_forward, &layer.feed_forward_norm, places);
    }
    let encoded = match &model.encoder.norm {
        Some(norm) => norm.forward(places),
        None => places,
    };
    same(encoded.clone(), model.encode(&source).places);

    let mut places = model.target_embedding.forward(target.ids());
    places = model.target_positions.forward(places, 0);
    let layers = model.decoder.layers.iter();
    for ((layer, weights), across) in layers.zip(look.decoder).zip(look.cross) {
        whole(mechanism.mechanism(), &weights, [2, 4, 9, 9]);
        whole(cross.mechanism(), &across, [2, 4, 9, 9]);
        let seen = attended(&layer.attention, weights, places.clone());
        places = layer.attention_norm.forward(places + seen);
        let seen = attended(&layer.cross_attention, across, encoded.clone());
        places = layer.cross_attention_norm.forward(places + seen);
        places = network(&layer.feed_forward, &layer.feed_forward_norm, places);
    }
    if let Some(norm) = &model.decoder.norm {
        places = norm.forward(places);
    }
    let head = model.head.as_ref().expect("it has a head of its own");
    same(head.forward(places), model.forward(&source, &target))
}

const TESTS: &[(&str, Test)] = &[
    ("classifier", |device| {
        for (pooling, places) in [
            (Pooling::Cls, 10),
            (Pooling::Mean, 9),
            (Pooling::Attention, 9),
        ] {
            let config = ClassifierConfig::new(11, 3, 16, 4, 2)
                .with_d_feed_forward(Some(24))
                .with_dropout(0.0)
                .with_pooling(pooling);
            let model = drawn(must(config.try_init(device)), 7);
            let tokens = tokens(&rows(), model.limits(), device);
            let look = model.look(&tokens);
            assert_eq!(look.layers.len(), 2);
            for weights in look.layers {
                whole(Mechanism::Flash, &weights, [2, 4, places, places]);
            }
            assert_eq!(look.pooling.is_some(), pooling == Pooling::Attention);
            if let Some(shares) = look.pooling {
                whole(Mechanism::Flash, &shares, [2, 9]);
            }
            same(look.logits, model.forward(&tokens));
        }
    }),
    ("rows-of-several-lengths-are-refused", |device| {
        let model = GptConfig::new(11, 8, 2, 1).init(device);
        let rows = [vec![1, 2], vec![3]];
        let tokens = tokens(&rows, model.limits(), device);
        is_refused(
            || model.look(&tokens),
            "GPT: rows must be of one length, at least 1, got [2, 1]",
        );
    }),
];
