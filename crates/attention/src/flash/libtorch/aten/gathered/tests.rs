use std::sync::Arc;

use super::super::reference;
use super::*;
use crate::AttentionShape;
use crate::pattern::Pattern;
use crate::pattern::gather::{GatherPlan, Group, Pass};
use crate::pattern::rule::Rule;

fn check(settings: &TiledSettings) {
    assert!(is_supported(settings));
    let (tensors, d_context) = reference::random_tensors(&settings.shape);
    let [context, log_sum_exp] = forward(&tensors, settings);
    let results = BackwardInputs {
        context: &context,
        log_sum_exp: &log_sum_exp,
        d_context: &d_context,
    };
    let [d_query, d_key, d_value] = backward(&tensors, &results, settings);
    let actual = [&context, &log_sum_exp, &d_query, &d_key, &d_value];
    reference::assert_dense(&tensors, &d_context, settings, actual);
}

fn shape([seq_q, seq_k]: [usize; 2], kv_heads: usize) -> AttentionShape {
    AttentionShape {
        heads: 4,
        kv_heads,
        d_head: 8,
        d_value: 4,
        ..AttentionShape::single_head(2, seq_q, seq_k)
    }
}

fn alibi(shape: &AttentionShape) -> Option<Arc<[f32]>> {
    Some((1..=shape.heads).map(|head| head as f32 * 0.1).collect())
}

/// The rule of a pattern for two examples with `seq` keys, each in one of its variants.
fn patterns(seq: usize) -> Vec<Pattern> {
    let lengths = || Pattern::key_lengths([seq, seq / 3]);
    let documents = [
        vec![0; seq / 2],
        vec![1; seq / 4],
        vec![0; seq - seq / 2 - seq / 4],
    ]
    .concat();
    let blocks = Pattern::Blocks {
        size: 20,
        visible: (0..seq.div_ceil(20))
            .map(|block| vec![0, block, block / 2])
            .collect(),
    };
    let columns = Pattern::SummaryColumns {
        block: 16,
        summary: 2,
    };
    vec![
        Pattern::Full,
        Pattern::Causal,
        Pattern::window(9),
        Pattern::Block { size: 30 },
        blocks.clone(),
        blocks.and(Pattern::Causal),
        Pattern::Strided { stride: 7 },
        columns.clone(),
        columns.and(Pattern::Causal),
        Pattern::Monotonic { window: 5 },
        Pattern::longformer(6, [0, 3, 90]),
        Pattern::longformer(6, [0, 3, 90]).and(Pattern::Causal),
        Pattern::documents([documents, vec![7; seq]]),
        lengths(),
        // The second example has no keys.
        Pattern::key_lengths([seq, 0]),
        lengths().and(Pattern::longformer(4, [1])),
        Pattern::prefix([3, 60]),
        Pattern::from_fn(|query, key| (query + key) % 3 == 0),
        Pattern::sparse_transformer(12),
        Pattern::fixed(16, 2).and(Pattern::Causal),
    ]
}

#[test]
fn gathered_keys_match_masked_attention() {
    tch::manual_seed(7);
    for (seq, kv_heads) in [([130, 130], 4), ([70, 150], 2), ([150, 70], 1)] {
        let shape = shape(seq, kv_heads);
        for pattern in patterns(seq[1]) {
            check(&TiledSettings::from_rule(shape, pattern.rule()));
        }
    }
    for pattern in [Pattern::Causal, Pattern::longformer(6, [0, 3])] {
        for (seq, kv_heads) in [([70, 70], 4), ([70, 100], 2)] {
            let shape = shape(seq, kv_heads);
            let lengths = Pattern::key_lengths([seq[1], 40]);
            for pattern in [pattern.clone(), pattern.clone().and(lengths)] {
                check(&TiledSettings {
                    alibi: alibi(&shape),
                    ..TiledSettings::from_rule(shape, pattern.rule())
                });
            }
        }
    }
}

/// Two passes, in which each query is in a row with other queries.
#[test]
fn passes_are_merged() {
    tch::manual_seed(8);
    let seq = 150;
    for (kv_heads, is_causal) in [(4, true), (2, false)] {
        let shape = shape([seq, seq], kv_heads);
        let rule = if is_causal { Rule::Causal } else { Rule::Full };
        let near = Rule::Window { left: 6, right: 6 };
        let by_remainder = |remainder: u32| Group {
            queries: (remainder..seq as u32).step_by(7).collect(),
            keys: (remainder..seq as u32).step_by(7).collect(),
        };
        let passes = [
            Pass {
                groups: (0..seq as u32)
                    .step_by(50)
                    .map(|first| Group {
                        queries: (first..first + 50).collect(),
                        keys: (0..seq as u32).collect(),
                    })
                    .collect(),
                rule: rule.clone().and(near),
                excludes_own_position: false,
            },
            Pass {
                groups: (0..7).map(by_remainder).collect(),
                rule: rule.clone(),
                excludes_own_position: true,
            },
        ];
        let plan = GatherPlan::from_passes(&shape, &passes);
        let strided = Pattern::window(6).or(Pattern::Strided { stride: 7 });
        check(&TiledSettings {
            gather: Some(Arc::new(plan)),
            alibi: alibi(&shape),
            ..TiledSettings::from_rule(shape, rule.and(strided.rule()))
        });
    }
}

/// Rows with many keys are split.
#[test]
fn long_rows_are_split() {
    tch::manual_seed(9);
    for (seq, kv_heads) in [([600, 600], 4), ([100, 800], 2)] {
        let shape = shape(seq, kv_heads);
        for pattern in [
            Pattern::longformer(8, [0, 99]),
            Pattern::longformer(8, [0, 99]).and(Pattern::key_lengths([seq[1], 300])),
        ] {
            check(&TiledSettings::from_rule(shape, pattern.rule()));
        }
    }
}

/// The gradients with dropout, which the kernel reproduces by its seed, along random directions.
#[test]
fn dropout_is_reproduced_in_backward() {
    tch::manual_seed(10);
    let shape = shape([150, 150], 2);
    let rule = Pattern::longformer(5, [0, 70]).rule();
    let settings = TiledSettings {
        dropout: Some(crate::Dropout::new(0.3, 4)),
        ..TiledSettings::from_rule(shape, rule)
    };
    reference::assert_differentiable(
        &settings,
        |tensors| forward(tensors, &settings),
        |tensors, results| backward(tensors, results, &settings),
    );
}

/// The first rows of causal patterns have few keys, and few rows are not worth a call.
#[test]
fn rows_with_few_keys_are_padded() {
    let seq = 2048;
    let shape = AttentionShape::single_head(1, seq, seq);
    for (pattern, max_calls) in [
        (Pattern::window(100).and(Pattern::Causal), 1),
        (Pattern::longformer(100, [0]).and(Pattern::Causal), 2),
        (
            Pattern::big_bird(&zoo_spec::BigBird::default(), seq).and(Pattern::Causal),
            3,
        ),
    ] {
        let settings = TiledSettings::from_rule(shape, pattern.rule());
        let plan = DevicePlan::cached(&settings, tch::Device::Cpu);
        let calls: Vec<_> = plan
            .calls
            .iter()
            .map(|call| [call.rows, call.num_keys])
            .collect();
        assert!(calls.len() <= max_calls, "{pattern:?}: {calls:?}");
    }
}
