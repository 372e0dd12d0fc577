//! The encoder classifier on a device.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::Strided;
use zoo_attention::{Mechanism, MechanismConfig};
use zoo_models::{ClassifierConfig, Limits, Norm, Pooling, PositionEncoding, token_loss};
use zoo_oracle::{Mask, small_for_tests};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_table("classifier/", TESTS);
    for (mechanism, pooling) in LEARNING {
        let name = format!("learns-by-heart-with-{mechanism}-and-{}", pooling.word());
        suite.add_training(format!("classifier/{name}"), move |device| {
            learns_by_heart(small_for_tests(mechanism), pooling, device);
        });
    }
    for (mechanism, pooling) in padded() {
        let (word, pooled) = (mechanism.mechanism(), pooling.word());
        let name = format!("classifier/padding-changes-nothing-with-{word}-and-{pooled}");
        suite.add(name, move |device| {
            padding_changes_nothing(mechanism, pooling, device)
        });
    }
}

const LEARNING: [(Mechanism, Pooling); 3] = [
    (Mechanism::Flash, Pooling::Cls),
    (Mechanism::Linear, Pooling::Mean),
    (Mechanism::BigBird, Pooling::Attention),
];

/// Every pooling. A Transformer's encoder does the rest, and is tried with all mechanisms.
fn padded() -> [(MechanismConfig, Pooling); 4] {
    [
        (Mechanism::Flash.into(), Pooling::Cls),
        // The stride follows from the length.
        (Strided { stride: None }.into(), Pooling::Cls),
        (small_for_tests(Mechanism::Linear), Pooling::Mean),
        (small_for_tests(Mechanism::Lsh), Pooling::Attention),
    ]
}

const POOLINGS: [Pooling; 3] = [Pooling::Cls, Pooling::Mean, Pooling::Attention];

fn config(mechanism: MechanismConfig, pooling: Pooling) -> ClassifierConfig {
    ClassifierConfig::new(9, 3, 16, 4, 1)
        .with_d_feed_forward(Some(24))
        .with_dropout(0.0)
        .with_attention(mechanism)
        .with_pooling(pooling)
}

fn learns_by_heart(mechanism: MechanismConfig, pooling: Pooling, device: &Device) {
    differs_from_full(&mechanism, 4, [9; 2], Mask::Full, device);
    let model = config(mechanism, pooling)
        .with_d_model(32)
        .with_d_feed_forward(Some(64))
        .with_bias(false)
        .init(device);
    // The first two differ in their order alone.
    let rows = [
        vec![1, 2, 3, 4],
        vec![4, 3, 2, 1],
        vec![5],
        vec![6, 6, 7, 8, 0, 2, 5, 1, 4],
    ];
    let of_classes = Limits {
        vocabulary: 3,
        longest: None,
    };
    let rows = tokens(&rows, model.limits(), device);
    let classes = tokens(&[[0], [1], [2], [0]], of_classes, device);
    overfits(0.01, model, |model| {
        let logits = model.forward(&rows).reshape([4, 1, 3]);
        token_loss(logits, &classes, 0.0)
    });
}

/// A row beside a longer one, whatever is behind its end, is what it is alone.
fn padding_changes_nothing(mechanism: MechanismConfig, pooling: Pooling, device: &Device) {
    differs_from_full(&mechanism, 4, [5; 2], Mask::Full, device);
    let model = drawn(config(mechanism, pooling).init(device), 3);
    let short = [3, 1, 4, 1, 5];
    let alone = model.forward(&tokens(&[short], model.limits(), device));
    let both = beside(&short, &[8, 2, 6, 5, 3, 5, 8, 0, 7], &[7, 0, 7, 2], device);
    same(model.forward(&both).slice_dim(0, 1..2), alone);
}

const TESTS: &[(&str, Test)] = &[
    ("empty-sequences-have-an-answer", |device| {
        for mechanism in [Mechanism::Flash, Mechanism::Fixed].map(small_for_tests) {
            for pooling in POOLINGS {
                let mut model = config(mechanism, pooling).init(device);
                let bias = Tensor::<1>::from_data([0.5, -2.0, 1.0], device);
                model.head.bias = model.head.bias.map(|own| own.map(|_| bias.clone()));
                let of = |rows: &[Vec<u32>]| model.forward(&tokens(rows, model.limits(), device));
                let alone = of(&[vec![]]);
                let is_finite = numbers(alone.clone()).iter().all(|x| x.is_finite());
                assert!(is_finite, "{mechanism:?}, {pooling:?}: {alone}");
                let beside = of(&[vec![1, 2, 3], vec![]]).slice_dim(0, 1..2);
                same(beside, alone.clone());
                if pooling != Pooling::Cls {
                    // Nothing, but what the head says of it.
                    same(alone, bias.reshape([1, 3]));
                }
            }
        }
    }),
    ("parameters-are-counted", |device| {
        let config = ClassifierConfig::new(9, 3, 8, 2, 2).with_d_feed_forward(Some(16));
        let count = |config: ClassifierConfig| config.init(device).parameters();
        // Four projections of 8 x 8 and a bias; 8 x 16 and back; two norms.
        let layer = 4 * (64 + 8) + (128 + 16) + (128 + 8) + 2 * 16;
        let all = 9 * 8 + 2 * layer + 16 + 8 * 3 + 3;
        assert_eq!(count(config.clone()), all);
        assert_eq!(config.init(device).num_params(), all);
        let with = |pooling: Pooling| count(config.clone().with_pooling(pooling));
        assert_eq!(with(Pooling::Cls), all + 8);
        assert_eq!(with(Pooling::Attention), all + 64 + 8 + 8);
        assert_eq!(count(config.clone().with_final_norm(false)), all - 16);
    }),
    ("work-is-counted", |device| {
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
    ("is-shown-in-a-table", |device| {
        let model = config(Mechanism::Flash.into(), Pooling::Attention).init(device);
        let parts = [
            "classifier of 1 layers, flash",
            "sinusoidal",
            "1 x 16, 4 heads, flash, gelu 24, pre-norm",
            "attention",
            "16 x 3",
        ];
        has_parts(model.to_string(), &parts);
    }),
    ("a-sequence-that-is-too-long-is-refused", |device| {
        let model = config(Mechanism::Flash.into(), Pooling::Cls)
            .with_norm(Norm::Post)
            .with_positions(PositionEncoding::learned(4))
            .init(device);
        // The vector put first takes none of the places.
        let fits = tokens(&[[1, 2, 3, 4]], model.limits(), device);
        assert_eq!(model.forward(&fits).dims(), [1, 3]);
        let said = "row 0 has 5 tokens, and the model has positions for 4 of them";
        refuses_tokens(&[[1, 2, 3, 4, 5]], model.limits(), said, device);
    }),
];
