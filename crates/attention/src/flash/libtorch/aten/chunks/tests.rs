use super::super::reference;
use super::*;

thread_local! {
    /// Use the flash kernel in `f32`, too.
    pub(super) static FORCE_FLASH: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn check(shape: AttentionShape, pattern: ChunkPattern, rule: Rule, alibi: bool, is_flash: bool) {
    let alibi = alibi.then(|| (1..=shape.heads).map(|head| head as f32 * 0.1).collect());
    let settings = TiledSettings {
        alibi,
        ..TiledSettings::from_rule(shape, rule)
    };
    let (tensors, d_context) = reference::random_tensors(&shape);
    FORCE_FLASH.set(is_flash);
    let [context, log_sum_exp] = forward(&tensors, pattern, &settings);
    let results = BackwardInputs {
        context: &context,
        log_sum_exp: &log_sum_exp,
        d_context: &d_context,
    };
    let [d_query, d_key, d_value] = backward(&tensors, &results, pattern, &settings);
    FORCE_FLASH.set(false);
    let actual = [&context, &log_sum_exp, &d_query, &d_key, &d_value];
    reference::assert_dense(&tensors, &d_context, &settings, actual);
}

fn shape(seq: usize, kv_heads: usize) -> AttentionShape {
    AttentionShape {
        heads: 4,
        kv_heads,
        d_head: 8,
        d_value: 4,
        ..AttentionShape::single_head(2, seq, seq)
    }
}

#[test]
fn chunks_match_windowed_attention() {
    tch::manual_seed(5);
    for (seq, window, kv_heads, alibi) in [
        (700, [70, 33], 4, false),
        (641, [64, 0], 4, true),
        (520, [0, 90], 4, false),
        (600, [40, 40], 2, true),
        (600, [40, 40], 1, false),
        (512, [1, 1], 4, false),
    ] {
        let shape = shape(seq, kv_heads);
        let pattern = ChunkPattern::window(window, &shape).expect("the sequence is long enough");
        assert!(pattern.parts(seq).len() <= 8);
        let [left, right] = window;
        check(shape, pattern, Rule::Window { left, right }, alibi, false);
    }
}

#[test]
fn blocks_match_masked_attention() {
    tch::manual_seed(6);
    for (seq, size, kv_heads, is_causal, alibi) in [
        (128, 32, 4, true, false),
        (128, 32, 4, false, false),
        (130, 64, 4, true, false),
        (97, 32, 2, true, false),
        (97, 32, 1, false, true),
        (75, 20, 2, true, true),
        (40, 39, 4, false, false),
    ] {
        let shape = shape(seq, kv_heads);
        let block = Rule::Block { size };
        let rule = if is_causal {
            block.and(Rule::Causal)
        } else {
            block
        };
        let pattern = ChunkPattern::blocks(&rule, &shape).expect("several blocks");
        assert_eq!(pattern, ChunkPattern::Block { size, is_causal });
        assert!(pattern.parts(seq).len() <= 2);
        check(shape, pattern, rule.clone(), alibi, false);
        if !alibi {
            check(shape, pattern, rule, alibi, true);
        }
    }
    let other = |rule: Rule| ChunkPattern::blocks(&rule, &shape(64, 1));
    assert_eq!(other(Rule::Block { size: 64 }), None);
    assert_eq!(other(Rule::Block { size: 1 }), None);
    assert_eq!(other(Rule::Strided { stride: 4 }), None);
}

/// The gradients with dropout, which the kernel reproduces by its seed, along random directions.
#[test]
fn dropout_is_reproduced_in_backward() {
    tch::manual_seed(11);
    let shape = shape(300, 2);
    let (left, right) = (10, 3);
    let pattern = ChunkPattern::window([left, right], &shape).expect("long enough");
    let settings = TiledSettings {
        dropout: Some(crate::Dropout::new(0.3, 4)),
        ..TiledSettings::from_rule(shape, Rule::Window { left, right })
    };
    reference::assert_differentiable(
        &settings,
        |tensors| forward(tensors, pattern, &settings),
        |tensors, results| backward(tensors, results, pattern, &settings),
    );
}
