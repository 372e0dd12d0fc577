//! The encoder classifier.

use zoo_attention::mechanisms::{Linformer, Strided};
use zoo_models::{ClassifierConfig, Pooling};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_table("classifier/", TESTS);
    let name = |case: Case| format!("{}-and-{}", case.0.mechanism(), case.1.name());
    let trained = trained().map(|case| (name(case), case));
    suite.add_cases("classifier/overfits-with-", trained, check_overfitting);
    let padded = padded().map(|case| (name(case), case));
    let prefix = "classifier/padding-has-no-effect-with-";
    suite.add_cases(prefix, padded, check_padding);
}

type Case = (MechanismConfig, Pooling);

/// Mechanisms that support no bidirectional attention are tested in causal classifiers.
fn is_causal(mechanism: &MechanismConfig) -> bool {
    mechanism.capabilities().bidirectional.is_err()
}

fn mask(mechanism: &MechanismConfig) -> Mask {
    match is_causal(mechanism) {
        true => Mask::Causal,
        false => Mask::Full,
    }
}

fn trained() -> [Case; 4] {
    [
        (Mechanism::GatedDelta.small_for_tests(), Pooling::Last),
        (Mechanism::Flash.into(), Pooling::Cls),
        (Mechanism::Linear.small_for_tests(), Pooling::Mean),
        (Mechanism::BigBird.small_for_tests(), Pooling::Attention),
    ]
}

/// Every pooling. The encoder itself is tested with all mechanisms in `transformer`.
fn padded() -> [Case; 8] {
    [
        (Mechanism::GatedDelta.small_for_tests(), Pooling::Last),
        (Mechanism::Retention.small_for_tests(), Pooling::Mean),
        (Mechanism::Flash.into(), Pooling::Cls),
        // The stride is derived from the length.
        (Strided { stride: None }.into(), Pooling::Cls),
        (Mechanism::Linear.small_for_tests(), Pooling::Mean),
        (Mechanism::Lsh.small_for_tests(), Pooling::Attention),
        (Mechanism::Nystrom.small_for_tests(), Pooling::Cls),
        (Mechanism::Linformer.small_for_tests(), Pooling::Mean),
    ]
}

fn config(mechanism: MechanismConfig, pooling: Pooling) -> ClassifierConfig {
    ClassifierConfig::new(9, 3, 16, 4, 1)
        .with_d_feed_forward(Some(24))
        .with_dropout(0.0)
        .with_causal(is_causal(&mechanism))
        .with_attention(mechanism)
        .with_pooling(pooling)
}

fn check_overfitting((mechanism, pooling): Case, device: &Device) {
    let device = &device.clone().autodiff();
    assert_not_full_attention(&mechanism, 4, [9; 2], mask(&mechanism), device);
    let model = config(mechanism, pooling)
        .with_d_model(32)
        .with_d_feed_forward(Some(64))
        .with_bias(false)
        .init(device);
    // The first two differ only in their order.
    let rows = [
        vec![1, 2, 3, 4],
        vec![4, 3, 2, 1],
        vec![5],
        vec![6, 6, 7, 8, 0, 2, 5, 1, 4],
    ];
    let class_limits = Limits {
        vocabulary: 3,
        longest: None,
    };
    let rows = tokens(&rows, model.limits(), device);
    let classes = tokens(&[[0], [1], [2], [0]], class_limits, device);
    assert_overfits(0.01, model, |model| {
        let logits = model.forward(&rows).reshape([4, 1, 3]);
        token_loss(logits, &classes, 0.0)
    });
}

/// The output of a padded row equals that without padding.
fn check_padding((mechanism, pooling): Case, device: &Device) {
    assert_not_full_attention(&mechanism, 4, [5; 2], mask(&mechanism), device);
    let model = with_random_weights(config(mechanism, pooling).init(device), 3);
    let short = [3, 1, 4, 1, 5];
    let unpadded = model.forward(&tokens(&[short], model.limits(), device));
    let both = batch_with_longer(&short, &[8, 2, 6, 5, 3, 5, 8, 0, 7], &[7, 0, 7, 2], device);
    assert_close(model.forward(&both).slice_dim(0, 1..2), unpadded);
}

const TESTS: &[(&str, Test)] = &[
    ("limits-include-the-length-of-the-mechanism", |device| {
        let linformer = Linformer { rank: 3, length: 8 };
        for (pooling, longest) in [(Pooling::Cls, 7), (Pooling::Mean, 8)] {
            let config = config(linformer.into(), pooling);
            let model = config.with_positions(PositionEncoding::None).init(device);
            assert_eq!(model.limits().longest, Some(longest));
            let longest = [vec![1; longest]];
            let tokens = tokens(&longest, model.limits(), device);
            assert_eq!(model.forward(&tokens).dims(), [1, 3]);
        }
    }),
    ("empty-sequences", |device| {
        for mechanism in [Mechanism::Flash, Mechanism::Fixed].map(Mechanism::small_for_tests) {
            for pooling in [
                Pooling::Cls,
                Pooling::Mean,
                Pooling::Attention,
                Pooling::Last,
            ] {
                let mut model = config(mechanism, pooling).init(device);
                let bias = Tensor::<1>::from_data([0.5, -2.0, 1.0], device);
                model.head.bias = model.head.bias.map(|own| own.map(|_| bias.clone()));
                let logits =
                    |rows: &[Vec<u32>]| model.forward(&tokens(rows, model.limits(), device));
                let empty = logits(&[vec![]]);
                let is_finite = to_vec(empty.clone()).iter().all(|x| x.is_finite());
                assert!(is_finite, "{mechanism:?}, {pooling:?}: {empty}");
                let padded = logits(&[vec![1, 2, 3], vec![]]).slice_dim(0, 1..2);
                assert_close(padded, empty.clone());
                if pooling != Pooling::Cls {
                    // The pooled vector is zero.
                    assert_close(empty, bias.reshape([1, 3]));
                }
            }
        }
    }),
    ("last-position-of-a-causal-classifier", |device| {
        let forward = |causal: bool, rows: &[Vec<u32>]| {
            let config = config(Mechanism::Flash.into(), Pooling::Last).with_causal(causal);
            let model = with_random_weights(config.init(device), 3);
            model.forward(&tokens(rows, model.limits(), device))
        };
        // One layer: the last position attends to all tokens, as in a bidirectional classifier.
        let rows = [vec![3, 1, 4], vec![2, 7]];
        assert_close(forward(true, &rows), forward(false, &rows));
        let swapped = [vec![3, 4, 1], vec![7, 2]];
        let distance = forward(true, &rows) - forward(true, &swapped);
        assert!(to_vec(distance).iter().all(|x| x.abs() > 1e-4));
        // Two layers: the first token's hidden state does not depend on the last token.
        let two = |causal: bool, rows: &[Vec<u32>]| {
            let config = config(Mechanism::Flash.into(), Pooling::Last).with_layers(2);
            let model = with_random_weights(config.with_causal(causal).init(device), 3);
            model.forward(&tokens(rows, model.limits(), device))
        };
        let difference = two(true, &rows) - two(false, &rows);
        assert!(to_vec(difference).iter().any(|x| x.abs() > 1e-4));
    }),
    ("number-of-parameters", |device| {
        let config = ClassifierConfig::new(9, 3, 8, 2, 2).with_d_feed_forward(Some(16));
        let count = |config: ClassifierConfig| config.init(device).parameters();
        // Four projections of 8 x 8 and a bias; 8 x 16 and back; two norms.
        let layer = 4 * (64 + 8) + (128 + 16) + (128 + 8) + 2 * 16;
        let all = 9 * 8 + 2 * layer + 16 + 8 * 3 + 3;
        assert_eq!(count(config.clone()), all);
        assert_eq!(config.init(device).num_params(), all);
        let with = |pooling: Pooling| count(config.clone().with_pooling(pooling));
        assert_eq!(with(Pooling::Cls), all + 8);
        assert_eq!(with(Pooling::Last), all);
        assert_eq!(with(Pooling::Attention), all + 64 + 8 + 8);
        assert_eq!(count(config.clone().with_final_norm(false)), all - 16);
    }),
    ("flops", |device| {
        let config = ClassifierConfig::new(9, 3, 8, 2, 1).with_d_feed_forward(Some(16));
        let flops = |pooling: Pooling| {
            let model = config.clone().with_pooling(pooling).init(device);
            model.flops(2, 5)
        };
        let layer = |seq: i32| 2 * seq * 4 * 64 + seq * seq * 2 * 4 * 4 + 2 * seq * 2 * 128;
        let head = 2 * 8 * 3;
        assert_eq!(flops(Pooling::Mean), f64::from(2 * (layer(5) + head)));
        assert_eq!(flops(Pooling::Cls), f64::from(2 * (layer(6) + head)));
        let pooling = 2 * 5 * (8 * 8 + 8 + 8);
        let with_pooling = f64::from(2 * (layer(5) + pooling + head));
        assert_eq!(flops(Pooling::Attention), with_pooling);
    }),
    ("summary-table", |device| {
        let model = config(Mechanism::Flash.into(), Pooling::Attention).init(device);
        let parts = [
            "classifier of 1 layers, flash",
            "sinusoidal",
            "1 x 16, 4 heads, flash, gelu 24, pre-norm",
            "attention",
            "16 x 3",
        ];
        assert_contains_all(model.to_string(), &parts);
    }),
    ("too-long-sequence-is-rejected", |device| {
        let model = config(Mechanism::Flash.into(), Pooling::Cls)
            .with_norm(Norm::Post)
            .with_positions(PositionEncoding::learned(4))
            .init(device);
        // The CLS vector has no position.
        let fits = tokens(&[[1, 2, 3, 4]], model.limits(), device);
        assert_eq!(model.forward(&fits).dims(), [1, 3]);
        let message = "row 0 has 5 tokens; the model's context is 4";
        assert_error(
            Tokens::new(&[[1, 2, 3, 4, 5]], model.limits(), device),
            message,
        );
    }),
];
