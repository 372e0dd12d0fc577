//! What each config can be, and how it is written.

use serde::Serialize;
use serde::de::DeserializeOwned;
use zoo_attention::mechanisms::LocalM;
use zoo_attention::{Mechanism, MechanismConfig};

use super::*;

/// A config that is fine is refused with changes: of two lines each, the first has the changes as
/// JSON, the second the error.
pub(crate) fn refused<C: Serialize + DeserializeOwned>(
    fine: &C,
    check: fn(&C) -> Result<(), ModelError>,
    cases: &str,
) {
    assert_eq!(check(fine), Ok(()));
    let lines: Vec<&str> = cases.trim().lines().map(str::trim).collect();
    for case in lines.chunks(2) {
        let [changes, message] = case else {
            panic!("{case:?}: a change without an error");
        };
        let mut config = serde_json::to_value(fine).expect("plain data");
        let changed = serde_json::from_str::<serde_json::Map<_, _>>(changes).expect(changes);
        config.as_object_mut().expect("keys").extend(changed);
        let config: C = serde_json::from_value(config).expect(changes);
        let error = check(&config).expect_err(message);
        assert_eq!(error.to_string(), *message);
    }
}

#[test]
fn what_does_not_fit_a_gpt_is_named() {
    let cases = r#"
        {"vocabulary": 0}
            vocabulary must be at least 1, got 0
        {"layers": 0}
            layers must be at least 1, got 0
        {"d_model": 0}
            d_model must be at least 1, got 0
        {"heads": 0}
            heads must be at least 1, got 0
        {"heads": 3}
            attention: d_model = 8 must be a multiple of heads = 3, or d_head must be given
        {"kv_heads": 0}
            kv_heads must be at least 1, got 0
        {"kv_heads": 3}
            attention: heads = 2 must be a multiple of kv_heads = 3
        {"d_feed_forward": 0}
            d_feed_forward must be at least 1, got 0
        {"dropout": 1.0}
            dropout must be at least 0 and below 1, got 1.0
        {"attention_dropout": -0.5}
            attention_dropout must be at least 0 and below 1, got -0.5
        {"epsilon": 0.0}
            epsilon must be above 0, got 0.0
        {"positions": {"kind": "learned", "longest": 0}}
            positions.longest must be at least 1, got 0
        {"d_model": 6, "positions": {"kind": "rotary", "theta": 1e4}}
            attention: rotary positions turn pairs of numbers: d_head = 3 must be even
        {"attention": "linear", "positions": {"kind": "alibi"}}
            attention: mechanism linear does not support ALiBi: it computes no scores or weights
        {"attention": "linear", "attention_dropout": 0.1}
            attention: mechanism linear does not support dropout: it computes no scores or weights
        {"attention": "multi-query", "kv_heads": 2}
            attention: kv_heads = 2 was given to mechanism multi-query, which has 1 of them
    "#;
    refused(&GptConfig::new(5, 8, 2, 1), GptConfig::check, cases);
}

/// The ranges of the keys that it has in common with a GPT are tested there.
#[test]
fn what_does_not_fit_a_classifier_is_named() {
    let cases = r#"
        {"vocabulary": 0}
            vocabulary must be at least 1, got 0
        {"classes": 0}
            classes must be at least 1, got 0
        {"heads": 3}
            attention: d_model = 8 must be a multiple of heads = 3, or d_head must be given
        {"dropout": 1.5}
            dropout must be at least 0 and below 1, got 1.5
        {"attention": "retention"}
            attention = retention cannot be used for bidirectional attention: it is causal
        {"attention": "lsh", "positions": {"kind": "alibi"}}
            attention: mechanism lsh does not support ALiBi: it sorts positions by their hashes
    "#;
    let fine = ClassifierConfig::new(5, 3, 8, 2, 1);
    refused(&fine, ClassifierConfig::check, cases);
}

fn transformer() -> TransformerConfig {
    TransformerConfig::new(5, 7).with_d_model(8).with_heads(2)
}

/// The ranges of the keys that it has in common with a GPT are tested there.
#[test]
fn what_does_not_fit_a_transformer_is_named() {
    let cases = r#"
        {"source_vocabulary": 0}
            source_vocabulary must be at least 1, got 0
        {"target_vocabulary": 0}
            target_vocabulary must be at least 1, got 0
        {"encoder_layers": 0}
            encoder_layers must be at least 1, got 0
        {"decoder_layers": 0}
            decoder_layers must be at least 1, got 0
        {"heads": 3}
            encoder_attention: d_model = 8 must be a multiple of heads = 3, or d_head must be given
        {"tying": "all"}
            tying must be none or decoder where source_vocabulary = 5 and target_vocabulary = 7 differ, got all
        {"decoder_attention": "linear"}
            decoder_attention: mechanism linear does not support ALiBi: it computes no scores or weights
        {"attention_dropout": 0.1}
            cross_attention: mechanism linear does not support dropout: it computes no scores or weights
        {"encoder_attention": "retention"}
            encoder_attention = retention cannot be used for bidirectional attention: it is causal
    "#;
    // Positions are self-attention's alone: across, a linear one does not mind.
    let across = transformer()
        .with_cross_attention(Mechanism::Linear.into())
        .with_positions(PositionEncoding::Alibi);
    refused(&across, TransformerConfig::check, cases);
}

#[test]
fn mechanisms_that_go_by_places_cannot_look_across() {
    let refused = [
        Mechanism::SlidingWindow,
        Mechanism::Block,
        Mechanism::Strided,
        Mechanism::Fixed,
        Mechanism::Longformer,
        Mechanism::BigBird,
        Mechanism::Lsh,
        Mechanism::Retention,
    ];
    for mechanism in Mechanism::ALL {
        let checked = transformer().with_cross_attention(mechanism.into()).check();
        match checked {
            Ok(()) => assert!(!refused.contains(&mechanism), "{mechanism}"),
            Err(ModelError::Mechanism {
                field, mechanism, ..
            }) => {
                assert_eq!(field, "cross_attention");
                assert!(refused.contains(&mechanism), "{mechanism}");
            }
            Err(other) => panic!("{mechanism}: {other}"),
        }
    }
}

#[test]
fn what_does_not_fit_other_models_is_named() {
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
        {"tying": "all"}
            tying must be none or decoder where source_vocabulary = 5 and target_vocabulary = 7 differ, got all
        {"tying": "decoder"}
            tying must be none where d_embedding = 128 and d_hidden = 256 differ, got decoder
    "#;
    refused(&Seq2SeqConfig::new(5, 7), Seq2SeqConfig::check, cases);
    let cases = r#"
        {"vocabulary": 0}
            vocabulary must be at least 1, got 0
        {"d_word": 0}
            d_word must be at least 1, got 0
        {"dropout": -0.5}
            dropout must be at least 0 and below 1, got -0.5
    "#;
    refused(&HanConfig::new(10, 2), HanConfig::check, cases);
    let cases = r#"
        {"layers": 0}
            layers must be at least 1, got 0
        {"d_model": 9}
            mechanism: d_model = 9 must be a multiple of heads = 2, or d_head must be given
        {"positions": {"kind": "sinusoidal"}}
            positions must be none, rotary or alibi where places are vectors already, got Sinusoidal
        {"feed_forward_dropout": 1.0}
            feed_forward_dropout must be at least 0 and below 1, got 1.0
    "#;
    let fine = TransformerEncoderConfig::new(8, 16, 2, 1);
    refused(&fine, TransformerEncoderConfig::check, cases);
}

#[test]
fn what_is_written_reads_back() {
    fn reads_back<C: Serialize + DeserializeOwned>(config: C, contains: &[&str]) {
        let text = serde_json::to_string(&config).expect("plain data");
        for part in contains {
            assert!(text.contains(part), "{text}");
        }
        let read: C = serde_json::from_str(&text).expect("what was written");
        assert_eq!(serde_json::to_string(&read).expect("plain data"), text);
    }
    let gpt = GptConfig::new(5, 8, 2, 1)
        .with_attention(Mechanism::Longformer.into())
        .with_positions(PositionEncoding::rotary(1e4))
        .with_activation(Activation::Swiglu);
    reads_back(gpt, &[]);
    let classifier = ClassifierConfig::new(5, 3, 8, 2, 1).with_pooling(Pooling::Cls);
    reads_back(classifier, &[r#""pooling":"cls""#]);
    let transformer = transformer()
        .with_norm(Norm::Pre)
        .with_tying(Tying::None)
        .with_cross_attention(MechanismConfig::LocalM(LocalM { window: 3 }));
    reads_back(transformer, &[r#""norm":"pre""#, r#""tying":"none""#]);
}
