//! GPT on a device.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData, activation};
use zoo_attention::mechanisms::Performer;
use zoo_attention::{Mechanism, MechanismConfig};
use zoo_models::{Activation, Generative, Gpt, GptConfig, PositionEncoding, Tokens, token_loss};
use zoo_oracle::{Mask, small_for_tests};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_table("gpt/", TESTS);
    for (mechanism, positions) in LEARNING {
        let name = format!("gpt/learns-by-heart-with-{mechanism}");
        suite.add_training(name, move |device| {
            learns_by_heart(small_for_tests(mechanism), positions, device);
        });
    }
    for (mechanism, positions) in STEPPING {
        let name = format!("gpt/steps-with-{mechanism}-and-{}", positions.word());
        suite.add(name, move |device| {
            steps(small_for_tests(mechanism), positions, device)
        });
    }
    for mechanism in PADDED {
        let name = format!("gpt/padding-changes-nothing-with-{mechanism}");
        suite.add(name, move |device| {
            padding_changes_nothing(mechanism, device)
        });
    }
    for (name, mechanism) in [("", Mechanism::Flash), ("-by-length", Mechanism::BigBird)] {
        let name = format!("gpt/entropy-ignores-padding{name}");
        suite.add(name, move |device| {
            entropy_ignores_padding(mechanism, device)
        });
    }
}

const ROTARY: PositionEncoding = PositionEncoding::rotary(1e4);
const LEARNED: PositionEncoding = PositionEncoding::learned(12);

const LEARNING: [(Mechanism, PositionEncoding); 3] = [
    (Mechanism::Flash, LEARNED),
    (Mechanism::Linear, ROTARY),
    (Mechanism::SlidingWindow, PositionEncoding::Alibi),
];

const STEPPING: [(Mechanism, PositionEncoding); 6] = [
    (Mechanism::Flash, LEARNED),
    (Mechanism::GroupedQuery, ROTARY),
    (Mechanism::Linear, PositionEncoding::Sinusoidal),
    (Mechanism::Retention, ROTARY),
    (Mechanism::SlidingWindow, PositionEncoding::None),
    (Mechanism::Longformer, PositionEncoding::Alibi),
];

/// One of each kind. A Transformer's decoder does the same, and is tried with all.
const PADDED: [Mechanism; 4] = [
    Mechanism::Flash,
    Mechanism::LocalP,
    Mechanism::Lsh,
    Mechanism::Performer,
];

fn config(mechanism: MechanismConfig, positions: PositionEncoding) -> GptConfig {
    GptConfig::new(11, 16, 4, 2)
        .with_d_feed_forward(Some(24))
        .with_dropout(0.0)
        .with_attention(mechanism)
        .with_positions(positions)
}

/// A model with the same numbers in every run, large enough for differences to be seen.
fn model(config: &GptConfig, device: &Device) -> Gpt {
    drawn(config.init(device), 11)
}

/// Each row begins with a token of its own, so that all others can be known.
fn rows() -> [Vec<u32>; 3] {
    [vec![0, 5, 3, 3, 9], vec![1, 5, 4], vec![2, 8, 8, 6]]
}

fn learns_by_heart(mechanism: MechanismConfig, positions: PositionEncoding, device: &Device) {
    differs_from_full(&mechanism, 4, [4; 2], Mask::Causal, device);
    // Few parameters: a step of the optimizer is several kernels for each.
    let model = GptConfig::new(11, 32, 2, 1)
        .with_d_feed_forward(Some(64))
        .with_bias(false)
        .with_dropout(0.0)
        .with_attention(mechanism)
        .with_positions(positions)
        .init(device);
    let [given, wanted] = shifted(&rows()).map(|rows| tokens(&rows, model.limits(), device));
    overfits(0.01, model, |model| {
        token_loss(model.forward(&given), &wanted, 0.0)
    });
}

fn steps(mechanism: MechanismConfig, positions: PositionEncoding, device: &Device) {
    differs_from_full(&mechanism, 4, [7; 2], Mask::Causal, device);
    let model = model(&config(mechanism, positions), device);
    let rows = [
        vec![0, 5, 3, 3, 9, 1, 7],
        vec![1, 5, 4, 10, 2, 2, 0],
        vec![2, 8, 8, 6, 3, 10, 4],
    ];
    let forward = |_: &[usize], tokens: &Tokens| model.forward(tokens);
    let start = |rows: &[usize]| must(model.start(rows.len()));
    steps_agree(&model, model.limits(), &rows, forward, start);
}

/// A row beside a longer one, whatever is behind its end, is what it is alone.
fn padding_changes_nothing(mechanism: Mechanism, device: &Device) {
    let mechanism = small_for_tests(mechanism);
    differs_from_full(&mechanism, 4, [5; 2], Mask::Causal, device);
    let model = model(&config(mechanism, LEARNED), device);
    let (short, long) = ([3, 1, 4, 1, 5], [9, 2, 6, 5, 3, 5, 8, 9, 7, 10, 3]);
    let alone = tokens(&[short], model.limits(), device);
    let both = model.forward(&beside(&short, &long, &[10, 0, 7, 7, 2, 6], device));
    let of_short = both.slice_dim(0, 1..2).slice_dim(1, 0..5);
    same(of_short, model.forward(&alone));
}

/// The entropy of every attention of a batch with padding is that of its sequences by themselves,
/// weighted by their lengths.
fn entropy_ignores_padding(mechanism: Mechanism, device: &Device) {
    let config = config(small_for_tests(mechanism), PositionEncoding::None);
    let model = model(&config, device);
    let of = |rows: &[Vec<u32>]| {
        let tokens = tokens(rows, model.limits(), device);
        let (logits, entropy) = must(model.forward_with_entropy(&tokens));
        same(logits, model.forward(&tokens));
        f64::from(entropy.into_scalar::<f32>())
    };
    let rows = rows();
    let together = of(&rows);
    let weighted = |row: &Vec<u32>| of(std::slice::from_ref(row)) * row.len() as f64;
    let alone = rows.iter().map(weighted).sum::<f64>() / rows.concat().len() as f64;
    let is_same = together >= 1e-3 && (together - alone).abs() <= 1e-5;
    assert!(is_same, "{together} in a batch, {alone} by themselves");
}

const TESTS: &[(&str, Test)] = &[
    ("entropy-of-no-distribution-is-refused", |device| {
        let config = config(Mechanism::Retention.into(), PositionEncoding::None);
        let model = model(&config, device);
        let tokens = tokens(&rows(), model.limits(), device);
        let refused = model.forward_with_entropy(&tokens).err();
        assert_eq!(
            refused.map(|error| error.mechanism),
            Some(Mechanism::Retention)
        );
    }),
    ("keys-of-attention-reach-it", |device| {
        let config = config(Mechanism::Flash.into(), PositionEncoding::None);
        let given = tokens(&rows(), config.init(device).limits(), device);
        let plain = model(&config, device).forward(&given);
        for changed in [
            config.clone().with_temperature(3.0),
            config.clone().with_softcap(Some(0.1)),
            config.clone().with_qk_norm(true),
        ] {
            let is_same = is_same(model(&changed, device).forward(&given), plain.clone());
            assert!(!is_same, "nothing changed: {:?}", changed.spec);
        }
    }),
    ("parameters-are-counted", |device| {
        let config = GptConfig::new(11, 8, 2, 2)
            .with_d_feed_forward(Some(16))
            .with_positions(PositionEncoding::learned(6));
        // Four projections of 8 x 8 and a bias; 8 x 16 and back; two norms.
        let layer = 4 * (64 + 8) + (128 + 16) + (128 + 8) + 2 * 16;
        let all = 11 * 8 + 6 * 8 + 2 * layer + 16;
        assert_eq!(config.init(device).num_params(), all);
        let gates = 2 * (128 + 16);
        let biases = 2 * (4 * 8 + 16 + 8 + 2 * 8) + 8;
        // Keys and values of one head of 4 numbers.
        let fewer = 2 * 2 * (8 * 4 + 4);
        // Two heads of 3 instead of 4, and a norm of queries and of keys of each head.
        let narrow = 2 * (3 * (8 * 2 + 2) + 2 * 8);
        // Random features are drawn, not learned.
        let redrawn = Performer {
            features: 4,
            seed: 0,
            redraw: Some(5),
        };
        let config = || config.clone();
        for (config, want) in [
            (config(), all),
            (config().with_tied(false), all + 8 * 11),
            (config().with_kv_heads(Some(1)), all - fewer),
            (config().with_activation(Activation::Swiglu), all + gates),
            (config().with_d_head(Some(3)), all - narrow),
            (config().with_qk_norm(true), all + 2 * 2 * 4),
            (config().with_bias(false), all - biases),
            (config().with_attention(redrawn.into()), all),
        ] {
            assert_eq!(config.init(device).parameters(), want, "{:?}", config.spec);
        }
    }),
    ("work-is-counted", |device| {
        let config = GptConfig::new(11, 8, 2, 2).with_d_feed_forward(Some(16));
        // Three tokens: four projections, six pairs of each head, two matrices.
        let layer = 2 * 3 * 4 * 64 + 6 * 2 * 4 * 4 + 2 * 3 * 2 * 128;
        let all = 2 * layer + 2 * 3 * 8 * 11;
        let flops = config.init(device).flops(5, 3);
        assert_eq!(flops, f64::from(5 * all));
    }),
    ("is-shown-in-a-table", |device| {
        let model = GptConfig::new(1000, 8, 2, 2).init(device);
        let parts = [
            "GPT of 2 layers, flash",
            "1000 x 8",
            "learned",
            "2 x 8, 2 heads, flash, gelu-tanh 32, pre-norm",
            "the embedding's",
        ];
        has_parts(model.to_string(), &parts);
    }),
    ("a-sequence-that-is-too-long-is-refused", |device| {
        let model = config(Mechanism::Flash.into(), LEARNED).init(device);
        let long = [vec![1; 13]];
        let said = "row 0 has 13 tokens, and the model has positions for 12 of them";
        refuses_tokens(&long, model.limits(), said, device);
        let unchecked = Tokens::of_tensor(ids(&long, device), vec![13]);
        let said = "positions: there are 12 learned ones, got a sequence of 13 places";
        is_refused(|| model.forward(&unchecked), said);
        let mut state = must(model.start(1));
        model.advance(ids(&[vec![1; 12]], device), &mut state);
        is_refused(|| model.advance(ids(&[vec![1]], device), &mut state), said);
    }),
    ("what-cannot-go-token-by-token-says-so", |device| {
        let model = config(Mechanism::BigBird.into(), LEARNED).init(device);
        let said = model.start(2).err().map(|error| error.to_string());
        let reason = "mechanism: mechanism bigbird cannot decode token by token: its global blocks \
                      at the end depend on the final length";
        assert_eq!(said.as_deref(), Some(reason));
    }),
    ("dropout-is-for-training-alone", |device| {
        let autodiff = &device.clone().autodiff();
        let dropping = config(Mechanism::Flash.into(), LEARNED)
            .with_dropout(0.5)
            .init(autodiff);
        let is_same_twice = |model: &Gpt, device: &Device| {
            let given = tokens(&rows(), model.limits(), device);
            is_same(model.forward(&given), model.forward(&given))
        };
        assert!(!is_same_twice(&dropping, autodiff), "nothing was dropped");
        assert!(is_same_twice(&dropping.valid(), device));
    }),
    ("activations-are-what-they-are-called", |device| {
        for activation in [
            Activation::Relu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Swiglu,
        ] {
            let model = GptConfig::new(3, 2, 1, 1)
                .with_d_feed_forward(Some(3))
                .with_activation(activation)
                .init(device);
            let network = &model.layers[0].feed_forward;
            let x = Tensor::<3>::from_data([[[1.5, -70.0], [-30.0, 40.0]]], device);
            let inner = network.inner.forward(x.clone());
            let by_hand = numbers(inner.clone()).into_iter();
            let by_hand: Vec<f32> = by_hand.map(|x| by(activation, x)).collect();
            let by_hand = Tensor::<3>::from_data(TensorData::new(by_hand, [1, 2, 3]), device);
            let inside = match &network.gate {
                Some(gate) => activation::silu(gate.forward(x.clone())) * inner,
                None => by_hand,
            };
            let want = network.outer.forward(inside);
            same_as(&format!("{activation:?}"), network.forward(x), want);
        }
    }),
    ("rows-of-a-state-must-fit", |device| {
        let model = config(Mechanism::Flash.into(), LEARNED).init(device);
        let mut state = must(model.start(2));
        is_refused(
            || model.advance(ids(&[vec![1, 2]], device), &mut state),
            "GPT: tokens must be [rows = 2, new], at least one new, got [1, 2]",
        );
    }),
];

fn by(activation: Activation, x: f32) -> f32 {
    let x = f64::from(x);
    let y = match activation {
        Activation::Relu => x.max(0.0),
        Activation::Gelu => x * below(x),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Swiglu => x / (1.0 + (-x).exp()),
    };
    y as f32
}

/// The share of a normal distribution that is below `x`: half of it, and the area up to there
/// by Simpson's rule.
fn below(x: f64) -> f64 {
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let strips = 200;
    let width = x / f64::from(strips);
    let area: f64 = (0..strips)
        .map(|strip| {
            let left = f64::from(strip) * width;
            width / 6.0
                * (density(left) + 4.0 * density(left + width / 2.0) + density(left + width))
        })
        .sum();
    0.5 + area
}
