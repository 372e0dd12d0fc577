//! Validation and serialization of configs.

use serde::Serialize;
use serde::de::DeserializeOwned;
use zoo_attention::mechanisms::LocalM;
use zoo_attention::{Mechanism, MechanismConfig, Positions};

use super::*;

/// Checks that a valid config is rejected after changes. Each case has two lines: the changes as
/// JSON, and the error.
pub(crate) fn assert_rejected<C: Serialize + DeserializeOwned>(
    valid: &C,
    check: fn(&C) -> Result<(), ModelError>,
    cases: &str,
) {
    check(valid).expect("a valid config");
    let lines: Vec<&str> = cases.trim().lines().map(str::trim).collect();
    for case in lines.chunks(2) {
        let [changes, message] = case else {
            panic!("{case:?}: no error is given");
        };
        let mut config = serde_json::to_value(valid).expect("serializable");
        let changed = serde_json::from_str::<serde_json::Map<_, _>>(changes).expect(changes);
        config.as_object_mut().expect("an object").extend(changed);
        let config: C = serde_json::from_value(config).expect(changes);
        let error = check(&config).expect_err(message);
        assert_eq!(error.to_string(), *message);
    }
}

#[test]
fn invalid_gpt_configs_are_rejected() {
    let cases = r#"
        {"vocabulary": 0}
            vocabulary must be at least 1, got 0
        {"layers": 0}
            layers must be at least 1, got 0
        {"d_model": 0}
            d_model must be at least 1, got 0
        {"n_heads": 0}
            n_heads must be at least 1, got 0
        {"n_heads": 3}
            attention: d_model = 8 must be a multiple of n_heads = 3, or d_head must be set
        {"n_heads_kv": 0}
            n_heads_kv must be at least 1, got 0
        {"n_heads_kv": 3}
            attention: n_heads = 2 must be a multiple of n_heads_kv = 3
        {"d_feed_forward": 0}
            d_feed_forward must be at least 1, got 0
        {"dropout": 1.0}
            dropout must be at least 0 and below 1, got 1.0
        {"attention_dropout": -0.5}
            attention_dropout must be at least 0 and below 1, got -0.5
        {"epsilon": 0.0}
            epsilon must be above 0, got 0.0
        {"positions": {"kind": "learned", "max_positions": 0}}
            positions.max_positions must be at least 1, got 0
        {"d_model": 6, "positions": {"kind": "rotary", "theta": 1e4}}
            attention: rotary position embedding needs an even d_head, got 3
        {"positions": {"kind": "rotary", "scaling": {"kind": "linear", "factor": 0.5}}}
            positions.scaling.factor must be at least 1, got 0.5
        {"positions": {"kind": "rotary", "scaling": {"kind": "ntk"}}}
            positions.scaling.factor must be at least 1, got 0.0
        {"positions": {"kind": "rotary", "theta": 1.0, "scaling": {"kind": "yarn", "factor": 2, "original_context": 64}}}
            attention: theta must be above 1 with yarn, got 1
        {"positions": {"kind": "rotary", "fraction": 0.8}}
            attention: fraction must be such that an even number of the d_head = 4 elements is rotated, at least 2; 0.5 rotates 2, got 0.8, which rotates 3
        {"attention": "linformer"}
            attention = linformer cannot be used for causal attention: every projected key is a sum over earlier and later positions
        {"attention": "linear", "positions": {"kind": "alibi"}}
            attention: mechanism linear does not support ALiBi: it computes no scores or weights
        {"attention": "linear", "attention_dropout": 0.1}
            attention: mechanism linear does not support dropout: it computes no scores or weights
        {"attention": "multi-query", "n_heads_kv": 2}
            attention: mechanism multi-query has n_heads_kv = 1, got 2; leave n_heads_kv unset, or use grouped-query
    "#;
    assert_rejected(&GptConfig::new(5, 8, 2, 1), GptConfig::check, cases);
}

/// The GPT test covers the ranges of shared keys.
#[test]
fn invalid_classifier_configs_are_rejected() {
    let cases = r#"
        {"vocabulary": 0}
            vocabulary must be at least 1, got 0
        {"classes": 0}
            classes must be at least 1, got 0
        {"attention": "retention"}
            attention = retention cannot be used for bidirectional attention: it is causal
        {"attention": "nystrom", "causal": true}
            attention = nystrom cannot be used for causal attention: its landmarks are means over earlier and later positions
        {"pooling": "cls", "causal": true}
            pooling must be last, mean or attention with causal = true, got cls
        {"attention": "lsh", "positions": {"kind": "alibi"}}
            attention: mechanism lsh does not support ALiBi: it sorts positions by their hashes
    "#;
    let valid = ClassifierConfig::new(5, 3, 8, 2, 1);
    assert_rejected(&valid, ClassifierConfig::check, cases);
}

fn transformer() -> TransformerConfig {
    TransformerConfig::new(5, 7).with_d_model(8).with_n_heads(2)
}

/// The GPT test covers the ranges of shared keys.
#[test]
fn invalid_transformer_configs_are_rejected() {
    let cases = r#"
        {"source_vocabulary": 0}
            source_vocabulary must be at least 1, got 0
        {"target_vocabulary": 0}
            target_vocabulary must be at least 1, got 0
        {"encoder_layers": 0}
            encoder_layers must be at least 1, got 0
        {"decoder_layers": 0}
            decoder_layers must be at least 1, got 0
        {"n_heads": 3}
            encoder_attention: d_model = 8 must be a multiple of n_heads = 3, or d_head must be set
        {"tie_embeddings": "all"}
            tie_embeddings must be none or decoder where source_vocabulary = 5 and target_vocabulary = 7 differ, got all
        {"decoder_attention": "linear"}
            decoder_attention: mechanism linear does not support ALiBi: it computes no scores or weights
        {"attention_dropout": 0.1}
            cross_attention: mechanism linear does not support dropout: it computes no scores or weights
        {"encoder_attention": "retention"}
            encoder_attention = retention cannot be used for bidirectional attention: it is causal
        {"cross_attention": "longformer"}
            cross_attention = longformer cannot be used for cross-attention: its pattern is defined on a single sequence, and cross-attention has two
    "#;
    // Positions apply to self-attention only, so linear cross-attention is valid with ALiBi.
    let valid = transformer()
        .with_cross_attention(Mechanism::Linear)
        .with_positions(PositionEncoding::Alibi);
    assert_rejected(&valid, TransformerConfig::check, cases);
}

#[test]
fn other_invalid_configs_are_rejected() {
    let cases = r#"
        {"source_vocabulary": 0}
            source_vocabulary must be at least 1, got 0
        {"target_vocabulary": 0}
            target_vocabulary must be at least 1, got 0
        {"d_embedding": 0}
            d_embedding must be at least 1, got 0
        {"d_hidden": 0}
            d_hidden must be at least 2, got 0
        {"d_hidden": 9}
            d_hidden must be even, half for each direction of the encoder, got 9
        {"encoder_layers": 0}
            encoder_layers must be at least 1, got 0
        {"decoder_layers": 0}
            decoder_layers must be at least 1, got 0
        {"attention": {"kind": "local-p", "window": 0}}
            attention.window must be at least 1, got 0
        {"dropout": 1.0}
            dropout must be at least 0 and below 1, got 1.0
        {"tie_embeddings": "all"}
            tie_embeddings must be none or decoder where source_vocabulary = 5 and target_vocabulary = 7 differ, got all
        {"tie_embeddings": "decoder"}
            tie_embeddings must be none where d_embedding = 128 and d_hidden = 256 differ, got decoder
    "#;
    assert_rejected(&Seq2SeqConfig::new(5, 7), Seq2SeqConfig::check, cases);
    let cases = r#"
        {"vocabulary": 0}
            vocabulary must be at least 1, got 0
        {"d_word": 0}
            d_word must be at least 1, got 0
        {"dropout": -0.5}
            dropout must be at least 0 and below 1, got -0.5
    "#;
    assert_rejected(&HanConfig::new(10, 2), HanConfig::check, cases);
    let cases = r#"
        {"layers": 0}
            layers must be at least 1, got 0
        {"d_model": 9}
            mechanism: d_model = 9 must be a multiple of n_heads = 2, or d_head must be set
        {"positions": {"kind": "sinusoidal"}}
            positions must be none, rotary or alibi for embedded inputs, got Sinusoidal
        {"feed_forward_dropout": 1.0}
            feed_forward_dropout must be at least 0 and below 1, got 1.0
    "#;
    let valid = TransformerEncoderConfig::new(8, 16, 2, 1);
    assert_rejected(&valid, TransformerEncoderConfig::check, cases);
}

#[test]
fn configs_round_trip_through_json() {
    fn assert_round_trip<C: Serialize + DeserializeOwned>(config: C, contains: &[&str]) {
        let text = serde_json::to_string(&config).expect("serializable");
        for part in contains {
            assert!(text.contains(part), "{text}");
        }
        let read: C = serde_json::from_str(&text).expect("valid JSON");
        assert_eq!(serde_json::to_string(&read).expect("serializable"), text);
    }
    let gpt = GptConfig::new(5, 8, 2, 1)
        .with_attention(Mechanism::Longformer)
        .with_positions(PositionEncoding::rotary(1e4))
        .with_activation(Activation::Swiglu);
    assert_round_trip(gpt, &[]);
    let rotary = Rotary::new(5e5)
        .with_fraction(0.5)
        .with_layout(PairLayout::Halves)
        .with_scaling(RotaryScaling::yarn(4.0, 4096));
    let gpt = GptConfig::new(5, 8, 2, 1).with_positions(rotary);
    let scaling = r#""scaling":{"kind":"yarn","factor":4.0,"original_context":4096"#;
    assert_round_trip(gpt, &[r#""layout":"halves""#, scaling]);
    let classifier = ClassifierConfig::new(5, 3, 8, 2, 1).with_pooling(Pooling::Cls);
    assert_round_trip(classifier, &[r#""pooling":"cls""#, r#""causal":false"#]);
    let transformer = transformer()
        .with_norm(Norm::Pre)
        .with_tie_embeddings(Tying::None)
        .with_cross_attention(MechanismConfig::LocalM(LocalM { window: 3 }));
    assert_round_trip(
        transformer,
        &[r#""norm":"pre""#, r#""tie_embeddings":"none""#],
    );
}

/// Rotary positions had only a base.
#[test]
fn rotary_positions_of_older_configs_load() {
    let model = r#"{"kind":"rotary","theta":500000.0}"#;
    let model: PositionEncoding = serde_json::from_str(model).expect("valid JSON");
    assert_eq!(model, PositionEncoding::rotary(5e5));
    let layer: Positions = serde_json::from_str(r#"{"rotary":{"theta":500000.0}}"#).expect("valid");
    assert_eq!(layer, Positions::rotary(5e5));
}
