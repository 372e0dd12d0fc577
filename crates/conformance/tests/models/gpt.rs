//! GPT.

use zoo_attention::mechanisms::Performer;
use zoo_models::Gpt;
use zoo_spec::LayerMechanisms;

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_table("gpt/", TESTS);
    let trained = TRAINED.map(|case| (case.0, case));
    suite.add_cases("gpt/overfits-with-", trained, check_overfitting);
    let decoded = DECODED.map(|case| (format!("{}-and-{}", case.0, case.1.name()), case));
    suite.add_cases("gpt/decodes-with-", decoded, check_decoding);
    suite.add_each("gpt/padding-has-no-effect-with-", PADDED, check_padding);
    let measured = [
        ("", Mechanism::Flash),
        ("-with-bigbird", Mechanism::BigBird),
    ];
    let prefix = "gpt/entropy-ignores-padding";
    suite.add_cases(prefix, measured, entropy_ignores_padding);
}

type Case = (Mechanism, PositionEncoding);

pub(crate) const ROTARY: PositionEncoding = PositionEncoding::rotary(1e4);
const LEARNED: PositionEncoding = PositionEncoding::learned(12);

const TRAINED: [Case; 4] = [
    (Mechanism::Flash, LEARNED),
    (Mechanism::Linear, ROTARY),
    (Mechanism::SlidingWindow, PositionEncoding::Alibi),
    (Mechanism::GatedDelta, LEARNED),
];

const DECODED: [Case; 11] = [
    (Mechanism::Flash, LEARNED),
    (Mechanism::GroupedQuery, ROTARY),
    (Mechanism::Linear, PositionEncoding::Sinusoidal),
    (Mechanism::Retention, ROTARY),
    (Mechanism::SlidingWindow, PositionEncoding::None),
    (Mechanism::Longformer, PositionEncoding::Alibi),
    (Mechanism::Sink, ROTARY),
    (Mechanism::Relative, PositionEncoding::None),
    (Mechanism::Forgetting, PositionEncoding::None),
    (Mechanism::Mamba2, PositionEncoding::None),
    (Mechanism::GatedDelta, LEARNED),
];

/// One of each kind; `transformer` tests the decoder with all mechanisms.
const PADDED: [Mechanism; 4] = [
    Mechanism::Flash,
    Mechanism::LocalP,
    Mechanism::Lsh,
    Mechanism::Performer,
];

pub(crate) fn config(mechanism: MechanismConfig, positions: PositionEncoding) -> GptConfig {
    GptConfig::new(11, 16, 4, 2)
        .with_d_feed_forward(Some(24))
        .with_dropout(0.0)
        .with_attention(mechanism)
        .with_positions(positions)
}

fn model(config: &GptConfig, device: &Device) -> Gpt {
    with_random_weights(config.init(device), 11)
}

/// Each row begins with a different token, so that all others can be predicted.
fn rows() -> [Vec<u32>; 3] {
    [vec![0, 5, 3, 3, 9], vec![1, 5, 4], vec![2, 8, 8, 6]]
}

fn check_overfitting((mechanism, positions): Case, device: &Device) {
    let device = &device.clone().autodiff();
    let mechanism = mechanism.small_for_tests();
    assert_not_full_attention(&mechanism, 4, [4; 2], Mask::Causal, device);
    // Few parameters: an optimizer step launches several kernels for each.
    let model = GptConfig::new(11, 32, 2, 1)
        .with_d_feed_forward(Some(64))
        .with_bias(false)
        .with_dropout(0.0)
        .with_attention(mechanism)
        .with_positions(positions)
        .init(device);
    let [inputs, targets] = shift(&rows()).map(|rows| tokens(&rows, model.limits(), device));
    assert_overfits(0.01, model, |model| {
        token_loss(model.forward(&inputs), &targets, 0.0)
    });
}

fn check_decoding((mechanism, positions): Case, device: &Device) {
    let mechanism = mechanism.small_for_tests();
    assert_not_full_attention(&mechanism, 4, [7; 2], Mask::Causal, device);
    let model = model(&config(mechanism, positions), device);
    let forward = |_: &[usize], tokens: &Tokens| model.forward(tokens);
    let start = |rows: &[usize]| must(model.start(rows.len()));
    assert_incremental_matches(&model, model.limits(), &three_rows(), forward, start);
}

/// The logits of a padded row equal those without padding.
fn check_padding(mechanism: Mechanism, device: &Device) {
    let mechanism = mechanism.small_for_tests();
    assert_not_full_attention(&mechanism, 4, [5; 2], Mask::Causal, device);
    let model = model(&config(mechanism, LEARNED), device);
    let (short, long) = ([3, 1, 4, 1, 5], [9, 2, 6, 5, 3, 5, 8, 9, 7, 10, 3]);
    let unpadded = tokens(&[short], model.limits(), device);
    let both = batch_with_longer(&short, &long, &[10, 0, 7, 7, 2, 6], device);
    let both = model.forward(&both);
    let padded = both.slice_dim(0, 1..2).slice_dim(1, 0..5);
    assert_close(padded, model.forward(&unpadded));
}

/// The entropy of a padded batch is the mean over its sequences, weighted by their lengths.
fn entropy_ignores_padding(mechanism: Mechanism, device: &Device) {
    let config = config(mechanism.small_for_tests(), PositionEncoding::None);
    let model = model(&config, device);
    let entropy = |rows: &[Vec<u32>]| {
        let tokens = tokens(rows, model.limits(), device);
        let (logits, entropy) = must(model.forward_with_entropy(&tokens));
        assert_close(logits, model.forward(&tokens));
        f64::from(entropy.into_scalar::<f32>())
    };
    let rows = rows();
    let batched = entropy(&rows);
    let weighted = |row: &Vec<u32>| entropy(std::slice::from_ref(row)) * row.len() as f64;
    let separate = rows.iter().map(weighted).sum::<f64>() / rows.concat().len() as f64;
    let is_same = batched >= 1e-3 && (batched - separate).abs() <= 1e-5;
    assert!(is_same, "{batched} in a batch, {separate} separately");
}

const TESTS: &[(&str, Test)] = &[
    ("entropy-of-retention-is-an-error", |device| {
        let config = config(Mechanism::Retention.into(), PositionEncoding::None);
        let model = model(&config, device);
        let tokens = tokens(&rows(), model.limits(), device);
        let error = must(model.forward_with_entropy(&tokens).err().ok_or("no error"));
        let message = "mechanism retention does not support entropy: ";
        assert!(error.to_string().starts_with(message), "{error}");
    }),
    ("attention-options-have-an-effect", |device| {
        let config = config(Mechanism::Flash.into(), PositionEncoding::None);
        let inputs = tokens(&rows(), config.init(device).limits(), device);
        let plain = model(&config, device).forward(&inputs);
        for changed in [
            config.clone().with_temperature(3.0),
            config.clone().with_softcap(Some(0.1)),
            config.clone().with_qk_norm(true),
            config.clone().with_output_gate(true),
            config.clone().with_rms_norm(true),
        ] {
            let is_same = is_close(model(&changed, device).forward(&inputs), plain.clone());
            assert!(!is_same, "no effect: {:?}", changed.spec);
        }
    }),
    ("layers-with-different-mechanisms", |device| {
        let names = ["gated-delta", "gated-delta", "flash"].map(|name| must(name.parse()));
        let list: Vec<MechanismConfig> = names
            .iter()
            .map(|name: &Mechanism| (*name).into())
            .collect();
        let list = LayerMechanisms::repeating(list).expect("not empty");
        let config = GptConfig::new(11, 8, 2, 4)
            .with_positions(PositionEncoding::None)
            .with_attention(list);
        must(config.check());
        let model = model(&config, device);
        let layers = model.layers.iter();
        let got: Vec<Mechanism> = layers
            .map(|it| it.attention.mechanism().mechanism())
            .collect();
        assert_eq!(got, [names[0], names[1], names[2], names[0]]);
        assert_contains_all(
            model.to_string(),
            &["GPT of 4 layers, gated-delta and flash"],
        );
        // One token at a time, with a state in some layers and a cache in the others.
        let forward = |_: &[usize], tokens: &Tokens| model.forward(tokens);
        let start = |rows: &[usize]| must(model.start(rows.len()));
        assert_incremental_matches(&model, model.limits(), &three_rows(), forward, start);
    }),
    ("number-of-parameters", |device| {
        let config = GptConfig::new(11, 8, 2, 2)
            .with_d_feed_forward(Some(16))
            .with_positions(PositionEncoding::learned(6));
        // Four projections of 8 x 8 and a bias; 8 x 16 and back; two norms.
        let layer = 4 * (64 + 8) + (128 + 16) + (128 + 8) + 2 * 16;
        let all = 11 * 8 + 6 * 8 + 2 * layer + 16;
        assert_eq!(config.init(device).num_params(), all);
        let gates = 2 * (128 + 16);
        let biases = 2 * (4 * 8 + 16 + 8 + 2 * 8) + 8;
        // Keys and values of one head with d_head = 4.
        let fewer = 2 * 2 * (8 * 4 + 4);
        // d_head = 3 instead of 4 for two heads.
        let narrow = 2 * (3 * (8 * 2 + 2) + 2 * 8);
        // Random features are not trained.
        let redrawn = Performer {
            n_features: 4,
            seed: 0,
            resample: Some(5),
        };
        let config = || config.clone();
        for (config, want) in [
            (config(), all),
            (config().with_tie_embeddings(false), all + 8 * 11),
            (config().with_n_heads_kv(Some(1)), all - fewer),
            (config().with_activation(Activation::Swiglu), all + gates),
            (config().with_d_head(Some(3)), all - narrow),
            (config().with_qk_norm(true), all + 2 * 2 * 4),
            (config().with_output_gate(true), all + 2 * (64 + 8)),
            // The biases of five norms.
            (config().with_rms_norm(true), all - 5 * 8),
            (config().with_bias(false), all - biases),
            (config().with_attention(redrawn), all),
        ] {
            assert_eq!(config.init(device).parameters(), want, "{:?}", config.spec);
        }
    }),
    ("flops", |device| {
        let config = GptConfig::new(11, 8, 2, 2).with_d_feed_forward(Some(16));
        // Three tokens: four projections, six pairs of each head, two matrices.
        let layer = 2 * 3 * 4 * 64 + 6 * 2 * 4 * 4 + 2 * 3 * 2 * 128;
        let all = 2 * layer + 2 * 3 * 8 * 11;
        let flops = config.init(device).flops(5, 3);
        assert_eq!(flops, f64::from(5 * all));
    }),
    ("summary-table", |device| {
        let model = GptConfig::new(1000, 8, 2, 2).init(device);
        let parts = [
            "GPT of 2 layers, flash",
            "1000 x 8",
            "learned",
            "2 x 8, 2 heads, flash, gelu-tanh 32,",
            "pre-norm",
            "tied to embedding",
        ];
        assert_contains_all(model.to_string(), &parts);
    }),
    ("too-long-sequence-is-rejected", |device| {
        let model = config(Mechanism::Flash.into(), LEARNED).init(device);
        let long = [vec![1; 13]];
        let message = "row 0 has 13 tokens; the model's context is 12";
        assert_error(Tokens::new(&long, model.limits(), device), message);
        let unchecked = Tokens::from_tensor(ids(&long, device), vec![13]);
        let message = "position embedding: sequence length 13 exceeds the maximum of 12";
        assert_panics_containing(|| model.forward(&unchecked), message);
        let mut state = must(model.start(1));
        model.advance(ids(&[vec![1; 12]], device), &mut state);
        let next = ids(&[vec![1]], device);
        assert_panics_containing(|| model.advance(next, &mut state), message);
    }),
    ("unsupported-decoding-is-an-error", |device| {
        let model = config(Mechanism::BigBird.into(), LEARNED).init(device);
        let message = "attention: mechanism bigbird cannot decode token by token: its global blocks \
                       at the end depend on the final length";
        assert_error(model.start(2), message);
    }),
    ("dropout-only-in-training", |device| {
        let autodiff = &device.clone().autodiff();
        let model = config(Mechanism::Flash.into(), LEARNED)
            .with_dropout(0.5)
            .init(autodiff);
        let is_same_twice = |model: &Gpt, device: &Device| {
            let inputs = tokens(&rows(), model.limits(), device);
            is_close(model.forward(&inputs), model.forward(&inputs))
        };
        assert!(!is_same_twice(&model, autodiff), "no dropout");
        assert!(is_same_twice(&model.valid(), device));
    }),
    ("activations", |device| {
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
            let activated = |x: Tensor<3>| -> Tensor<3> {
                let values = to_vec(x).into_iter().map(|x| activate(activation, x));
                tensor_of(values.collect(), [1, 2, 3], device)
            };
            let hidden = match &network.gate {
                Some(gate) => activated(gate.forward(x.clone())) * inner,
                None => activated(inner),
            };
            let want = network.outer.forward(hidden);
            assert_close_as(&format!("{activation:?}"), network.forward(x), want);
        }
    }),
    ("wrong-number-of-rows-is-rejected", |device| {
        let model = config(Mechanism::Flash.into(), LEARNED).init(device);
        let mut state = must(model.start(2));
        assert_panics_containing(
            || model.advance(ids(&[vec![1, 2]], device), &mut state),
            "GPT: tokens must be [rows = 2, new], at least one new, got [1, 2]",
        );
    }),
];

fn activate(activation: Activation, x: f32) -> f32 {
    let x = f64::from(x);
    let y = match activation {
        Activation::Relu => x.max(0.0),
        Activation::Gelu => x * normal_cdf(x),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Swiglu => x / (1.0 + (-x).exp()),
    };
    y as f32
}

/// The cumulative distribution function of the standard normal distribution, by the midpoint rule.
fn normal_cdf(x: f64) -> f64 {
    const STRIPS: i32 = 2000;
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let width = x / f64::from(STRIPS);
    let area = |strip: i32| width * density((f64::from(strip) + 0.5) * width);
    0.5 + (0..STRIPS).map(area).sum::<f64>()
}
