//! Attention weights of models: recomputing a model with these weights and its own values gives the
//! same output.

use burn::nn::LayerNorm;
use zoo_models::blocks::FeedForward;
use zoo_models::{ClassifierConfig, Pooling};

use crate::support::*;
use crate::{gpt, transformer};

pub(crate) fn trials(suite: &mut Suite) {
    let all = Mechanism::ALL;
    suite.add_each("attention-weights/gpt/", all, check_gpt);
    suite.add_each("attention-weights/transformer/", all, check_transformer);
    suite.add_table("attention-weights/", TESTS);
}

/// Checks the shape of weights, and that they sum to one if the mechanism's do.
fn check_weights<const D: usize>(mechanism: Mechanism, weights: &Tensor<D>, dims: [usize; D]) {
    assert_eq!(weights.dims(), dims);
    let capabilities = MechanismConfig::from(mechanism).capabilities();
    // Only a distribution has an entropy.
    if capabilities.options.entropy.is_ok() {
        let sums = to_vec(weights.clone().sum_dim(D - 1));
        let total = |sum: &f32| match mechanism {
            // A query without positive elements has no weights.
            Mechanism::Cosformer if *sum == 0.0 => 0.0,
            _ => 1.0,
        };
        assert!(sums.iter().any(|sum| *sum > 0.5), "no query has weights");
        let ones: Vec<f64> = sums.iter().map(total).collect();
        must(Precision::F32.forward(0.0).check("sums", &sums, &ones));
    }
}

fn feed_forward(network: &FeedForward, norm: &LayerNorm, x: Tensor<3>) -> Tensor<3> {
    norm.forward(x.clone() + network.forward(x))
}

/// Two rows of equal length.
fn rows() -> [Vec<u32>; 2] {
    [
        vec![0, 5, 3, 3, 9, 1, 7, 4, 8],
        vec![1, 5, 4, 10, 2, 2, 0, 6, 6],
    ]
}

fn check_gpt(mechanism: Mechanism, device: &Device) {
    let mechanism = mechanism.small_for_tests();
    if let Err(reason) = mechanism.capabilities().causal {
        let error = gpt::config(mechanism, gpt::ROTARY)
            .check()
            .expect_err(reason);
        return assert!(error.to_string().ends_with(reason), "{error}");
    }
    assert_not_full_attention(&mechanism, 4, [9; 2], Mask::Causal, device);
    let config = gpt::config(mechanism, gpt::ROTARY).with_tie_embeddings(false);
    let model = with_random_weights(must(config.try_init(device)), 11);
    let tokens = tokens(&rows(), model.limits(), device);
    let weights = model.attention_weights(&tokens);
    assert_eq!(weights.len(), 2);
    let mut x = model.embedding.forward(tokens.ids());
    for (layer, weights) in model.layers.iter().zip(weights) {
        check_weights(mechanism.mechanism(), &weights, [2, 4, 9, 9]);
        let values = layer.attention_norm.forward(x.clone());
        x = x + apply_weights(&layer.attention, weights, values);
        let inner = layer.feed_forward_norm.forward(x.clone());
        x = x + layer.feed_forward.forward(inner);
    }
    let head = model.head.as_ref().expect("an untied head");
    let logits = head.forward(model.norm.forward(x));
    assert_close(logits, model.forward(&tokens))
}

fn check_transformer(mechanism: Mechanism, device: &Device) {
    let mechanism = mechanism.small_for_tests();
    let config = transformer::shared_vocabulary([mechanism; 3])
        .with_encoder_layers(Some(2))
        .with_scale_embeddings(false)
        .with_tie_embeddings(Tying::None);
    let config = transformer::with_supported_mechanisms(config);
    let encoder = config.spec.encoder_attention.clone();
    let cross = config.spec.cross_attention;
    assert_not_full_attention(encoder.of_layer(0), 4, [9; 2], Mask::Full, device);
    let decoder = *config.spec.decoder_attention.of_layer(0);
    assert_not_full_attention(&decoder, 4, [9; 2], Mask::Causal, device);
    let model = with_random_weights(must(config.try_init(device)), 3);
    let source = tokens(&rows(), model.source_limits(), device);
    let targets = rows().map(|row| row.into_iter().rev().collect::<Vec<u32>>());
    let target = tokens(&targets, model.target_limits(), device);
    let weights = model.attention_weights(&source, &target);
    assert_eq!([weights.encoder.len(), weights.decoder.len()], [2, 2]);

    let embedding = model.source_embedding.as_ref();
    let embedding = embedding.expect("an untied embedding");
    let mut x = embedding.forward(source.ids());
    x = model.source_positions.forward(x, 0);
    for (layer, weights) in model.encoder.layers.iter().zip(weights.encoder) {
        check_weights(encoder.of_layer(0).mechanism(), &weights, [2, 4, 9, 9]);
        let attended = apply_weights(&layer.attention, weights, x.clone());
        x = layer.attention_norm.forward(x + attended);
        x = feed_forward(&layer.feed_forward, &layer.feed_forward_norm, x);
    }
    let encoded = match &model.encoder.norm {
        Some(norm) => norm.forward(x),
        None => x,
    };
    assert_close(encoded.clone(), model.encode(&source).hidden);

    let mut x = model.target_embedding.forward(target.ids());
    x = model.target_positions.forward(x, 0);
    let layers = model.decoder.layers.iter();
    for ((layer, weights), cross_weights) in layers.zip(weights.decoder).zip(weights.cross) {
        check_weights(decoder.mechanism(), &weights, [2, 4, 9, 9]);
        check_weights(cross.mechanism(), &cross_weights, [2, 4, 9, 9]);
        let attended = apply_weights(&layer.attention, weights, x.clone());
        x = layer.attention_norm.forward(x + attended);
        let cross_attention = layer.cross_attention.as_ref().expect("a decoder layer");
        let attended = apply_weights(cross_attention, cross_weights, encoded.clone());
        let norm = layer.cross_attention_norm.as_ref();
        x = norm.expect("a decoder layer").forward(x + attended);
        x = feed_forward(&layer.feed_forward, &layer.feed_forward_norm, x);
    }
    if let Some(norm) = &model.decoder.norm {
        x = norm.forward(x);
    }
    let head = model.head.as_ref().expect("an untied head");
    assert_close(head.forward(x), model.forward(&source, &target))
}

const TESTS: &[(&str, Test)] = &[
    ("classifier", |device| {
        for (pooling, seq) in [
            (Pooling::Cls, 10),
            (Pooling::Mean, 9),
            (Pooling::Attention, 9),
        ] {
            let config = ClassifierConfig::new(11, 3, 16, 4, 2)
                .with_d_feed_forward(Some(24))
                .with_dropout(0.0)
                .with_pooling(pooling);
            let model = with_random_weights(must(config.try_init(device)), 7);
            let tokens = tokens(&rows(), model.limits(), device);
            let output = model.attention_weights(&tokens);
            assert_eq!(output.layers.len(), 2);
            for weights in output.layers {
                check_weights(Mechanism::Flash, &weights, [2, 4, seq, seq]);
            }
            assert_eq!(output.pooling.is_some(), pooling == Pooling::Attention);
            if let Some(weights) = output.pooling {
                check_weights(Mechanism::Flash, &weights, [2, 9]);
            }
            assert_close(output.logits, model.forward(&tokens));
        }
    }),
    ("rows-of-different-lengths-are-rejected", |device| {
        let model = GptConfig::new(11, 8, 2, 1).init(device);
        let rows = [vec![1, 2], vec![3]];
        let tokens = tokens(&rows, model.limits(), device);
        assert_panics_containing(
            || model.attention_weights(&tokens),
            "GPT: attention weights need sequences of equal, non-zero length, got [2, 1]",
        );
    }),
];
