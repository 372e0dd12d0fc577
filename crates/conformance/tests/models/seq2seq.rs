//! Seq2Seq with attention.

use zoo_models::{Alignment, InputFeeding, Seq2Seq, Seq2SeqConfig};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_table("seq2seq/", TESTS);
    for (attention, feeding) in PAIRS {
        let pair = format!("{}-fed-{}", attention.name(), feeding.name());
        let mut add = |name: &str, test: fn(&Seq2SeqConfig, &Device)| {
            let config = config(attention, feeding);
            let name = format!("seq2seq/{name}-with-{pair}");
            suite.add(name, move |device| test(&config, device));
        };
        add("decodes", check_decoding);
        add("padding-has-no-effect", check_padding);
        // Its score is that of `general`, and other tests cover its window.
        if attention != LOCAL_M {
            add("overfits", check_overfitting);
        }
    }
}

const LOCAL_M: Alignment = Alignment::local_m(1);
const LOCAL_P: Alignment = Alignment::local_p(2);

/// Every score, and every kind of input feeding.
const PAIRS: [(Alignment, InputFeeding); 6] = [
    (Alignment::Additive, InputFeeding::Context),
    (Alignment::Dot, InputFeeding::None),
    (Alignment::General, InputFeeding::Attentional),
    (LOCAL_M, InputFeeding::Attentional),
    (LOCAL_M, InputFeeding::None),
    (LOCAL_P, InputFeeding::Attentional),
];

fn config(attention: Alignment, feeding: InputFeeding) -> Seq2SeqConfig {
    Seq2SeqConfig::new(7, 9)
        .with_d_embedding(6)
        .with_d_hidden(12)
        .with_attention(attention)
        .with_input_feeding(feeding)
        .with_dropout(0.0)
}

fn model(config: &Seq2SeqConfig, device: &Device) -> Seq2Seq {
    with_random_weights(config.init(device), 13)
}

/// Sources and targets of different lengths, with start and end tokens.
fn pairs() -> ([Vec<u32>; 3], [Vec<u32>; 3]) {
    (
        [vec![2, 3, 4, 5], vec![6, 1], vec![3, 3, 2]],
        [vec![0, 4, 5, 8, 2, 1], vec![0, 7, 1], vec![0, 8, 8, 3, 1]],
    )
}

fn token_pairs(model: &Seq2Seq) -> (Tokens, Tokens) {
    let (sources, targets) = pairs();
    (source(model, &sources), target(model, &targets))
}

fn source(model: &Seq2Seq, rows: &[Vec<u32>]) -> Tokens {
    tokens(rows, model.source_limits(), &model.device())
}

fn target<R: AsRef<[u32]>>(model: &Seq2Seq, rows: &[R]) -> Tokens {
    tokens(rows, model.target_limits(), &model.device())
}

fn check_overfitting(config: &Seq2SeqConfig, device: &Device) {
    let model = model(config, &device.clone().autodiff());
    let source = source(&model, &[vec![2, 3, 4], vec![6, 1]]);
    let targets = [vec![0, 4, 5, 1], vec![0, 7, 1]];
    let [inputs, targets] = shift(&targets).map(|rows| target(&model, &rows));
    assert_overfits(0.05, model, |model| {
        let logits = model.forward(&source, &inputs, 1.0, 0).logits;
        token_loss(logits, &targets, 0.0)
    });
}

fn check_decoding(config: &Seq2SeqConfig, device: &Device) {
    let model = &model(config, device);
    let (sources, _) = pairs();
    let rows = [
        vec![0, 4, 5, 8, 2, 3, 6],
        vec![0, 7, 1, 1, 3, 8, 2],
        vec![5, 8, 8, 3, 6, 1, 4],
    ];
    let source = |rows: &[usize]| source(model, &select_rows(&sources, rows));
    let forward =
        |rows: &[usize], target: &Tokens| model.forward(&source(rows), target, 1.0, 0).logits;
    let start = |rows: &[usize]| model.start(&source(rows));
    assert_incremental_matches(model, model.target_limits(), &rows, forward, start);
}

/// The output of a padded row equals that without padding, and padding has no weight.
fn check_padding(config: &Seq2SeqConfig, device: &Device) {
    let model = &model(config, device);
    let (sources, targets) = pairs();
    let (source_rows, target_rows) = token_pairs(model);
    let all = model.forward(&source_rows, &target_rows, 1.0, 0);
    for row in 0..3 {
        let (source_len, target_len) = (sources[row].len(), targets[row].len());
        let own = |tensor: &Tensor<3>| {
            let own = tensor.clone().slice_dim(0, row..row + 1);
            own.slice_dim(1, 0..target_len)
        };
        let range = row..row + 1;
        let source = source(model, &sources[range.clone()]);
        let unpadded = model.forward(&source, &target(model, &targets[range]), 1.0, 0);
        assert_close(own(&all.logits), unpadded.logits);
        let alignment = own(&all.alignment);
        let visible = alignment.clone().slice_dim(2, 0..source_len);
        assert_close(visible, unpadded.alignment);
        if source_len < 4 {
            let padding = to_vec(alignment.slice_dim(2, source_len..4));
            assert!(padding.iter().all(|weight| *weight == 0.0));
        }
    }
}

/// Sum of the attention weights of each target position, `[row][position]`.
fn weight_sums(attention: Alignment, device: &Device) -> Vec<Vec<f32>> {
    let model = model(&config(attention, InputFeeding::Attentional), device);
    let (source, target) = token_pairs(&model);
    let alignment = model.forward(&source, &target, 1.0, 0).alignment;
    assert_eq!(alignment.dims(), [3, 6, 4]);
    let sums = to_vec(alignment.sum_dim(2));
    sums.chunks(6).map(<[f32]>::to_vec).collect()
}

const TESTS: &[(&str, Test)] = &[
    ("alignment-sums", |device| {
        let is_one = |sum: &f32| (sum - 1.0).abs() < 1e-5;
        for attention in [Alignment::Additive, Alignment::Dot, Alignment::General] {
            let sums = weight_sums(attention, device).concat();
            assert!(sums.iter().all(is_one));
        }
        // The second source has 2 tokens: the last is in the window of position 2, none in that of
        // 3.
        let sums = weight_sums(LOCAL_M, device);
        assert!(sums[1][..3].iter().all(is_one));
        assert_eq!(&sums[1][3..], &[0.0; 3]);
        assert!(sums[0][..5].iter().all(is_one));
        // Weights decrease with the distance from the predicted position.
        let sums = weight_sums(LOCAL_P, device).concat();
        assert!(sums.iter().all(|sum| *sum > 0.0 && *sum < 1.0));
    }),
    ("teacher-forcing-matches-steps", |device| {
        let device = &device.clone().autodiff();
        let model = model(&config(Alignment::General, InputFeeding::None), device);
        let (source, target) = token_pairs(&model);
        let pass = |teacher_forcing: f64| {
            let output = model.forward(&source, &target, teacher_forcing, 0);
            let loss = token_loss(output.logits.clone(), &target, 0.0);
            let gradients = loss.backward();
            let gradient = |weight: Tensor<2>| weight.grad(&gradients).expect("a gradient");
            let embedding = gradient(model.target_embedding.weight.val());
            let combination = gradient(model.combination.weight.val());
            let outputs = [output.logits, output.alignment].map(to_vec);
            let gradients = [embedding, combination].map(to_vec);
            [outputs, gradients].concat()
        };
        // So close to one that every token is forced, but the model decodes in steps.
        for (got, want) in pass(1.0 - 1e-12).iter().zip(pass(1.0)) {
            must(Precision::F32.backward(0.0).compare("result", got, &want));
        }
    }),
    ("free-running-uses-its-own-predictions", |device| {
        let model = model(
            &config(Alignment::Additive, InputFeeding::Attentional),
            device,
        );
        let (source, target) = token_pairs(&model);
        let free_running = model.forward(&source, &target, 0.0, 3).logits; // [3, 6, 9]
        let mut state = model.start(&source);
        let mut token = target.ids().slice_dim(1, 0..1);
        for i in 0..6 {
            let logits = model.advance(token, &mut state);
            let got = free_running.clone().slice_dim(1, i..i + 1);
            assert_close(got.squeeze_dim::<2>(1), logits.clone());
            token = logits.argmax(1);
        }
        // With a probability of 1/2, the seed determines the result.
        let half = |seed| to_vec(model.forward(&source, &target, 0.5, seed).logits);
        assert_eq!(half(1), half(1));
        let results: Vec<Vec<f32>> = (0..6).map(half).collect();
        assert!(results.iter().any(|other| *other != results[0]));
    }),
    ("empty-source", |device| {
        for (attention, feeding) in PAIRS {
            let model = model(&config(attention, feeding), device);
            let (sources, targets) = ([vec![], vec![1, 2]], [vec![0, 3], vec![0, 4]]);
            let (source, target) = (source(&model, &sources), target(&model, &targets));
            let output = model.forward(&source, &target, 1.0, 0);
            assert!(to_vec(output.logits).iter().all(|logit| logit.is_finite()));
            let weights = to_vec(output.alignment.slice_dim(0, 0..1));
            assert_eq!(weights, vec![0.0; 4]);
        }
    }),
    ("number-of-parameters-and-flops", |device| {
        // e = 6, d = 12; three gates with two biases each.
        let encoder = 2 * (6 * 18 + 6 * 18 + 2 * 18);
        let decoder = |input: usize| input * 36 + 12 * 36 + 2 * 36;
        let rest = 7 * 6 + 9 * 6 + (12 * 12 + 12) + 24 * 12 + (12 * 9 + 9);
        for (attention, feeding, own, input) in [
            (
                Alignment::Additive,
                InputFeeding::Attentional,
                2 * 144 + 12 + 12,
                18,
            ),
            (Alignment::Dot, InputFeeding::None, 0, 6),
            (Alignment::General, InputFeeding::Context, 144, 18),
            (LOCAL_P, InputFeeding::Attentional, 144 + 144 + 12, 18),
        ] {
            let model = model(&config(attention, feeding), device);
            let expected = encoder + decoder(input) + rest + own;
            assert_eq!(model.parameters(), expected);
            assert_eq!(model.num_params(), expected);
            assert!(model.to_string().contains(attention.name()));
        }
        let tied = Seq2SeqConfig::new(7, 7)
            .with_d_embedding(12)
            .with_d_hidden(12)
            .with_attention(Alignment::Dot)
            .with_input_feeding(InputFeeding::None)
            .with_tie_embeddings(Tying::All);
        let encoder_and_decoder = 2 * (12 * 18 + 6 * 18 + 2 * 18) + decoder(12);
        let expected = encoder_and_decoder + 7 * 12 + (12 * 12 + 12) + 24 * 12;
        assert_eq!(model(&tied, device).parameters(), expected);
        let general = general_model(device);
        // 2 examples, 5 source and 4 target tokens, two operations per product.
        let encoder = 5 * 2 * (6 * 18 + 6 * 18);
        let decoder = 4 * (18 * 36 + 12 * 36);
        let attention = 5 * 144 + 2 * 5 * 4 * 12;
        let dense = 144 + 4 * (24 * 12 + 12 * 9);
        let expected = 2 * 2 * (encoder + decoder + attention + dense);
        assert_eq!(general.flops(2, 5, 4), expected as f64);
    }),
    ("invalid-inputs-are-rejected", |device| {
        let model = general_model(device);
        let (source, _) = token_pairs(&model);
        let one = target(&model, &[vec![0, 1]]);
        assert_panics_containing(
            || model.forward(&source, &one, 1.0, 0),
            "Seq2Seq: a target must be [batch = 3, seq] as the source is, got [1, 2]",
        );
        assert_panics_containing(
            || model.advance(one.ids(), &mut model.start(&source)),
            "Seq2Seq: tokens must be [rows = 3, new], at least one new, got [1, 2]",
        );
        let (source, target) = token_pairs(&model);
        assert_panics_containing(
            || model.forward(&source, &target, 1.5, 0),
            "Seq2Seq: teacher forcing must be from 0 to 1, got 1.5",
        );
    }),
];

fn general_model(device: &Device) -> Seq2Seq {
    model(
        &config(Alignment::General, InputFeeding::Attentional),
        device,
    )
}
