//! Seq2Seq on a device.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use zoo_models::{
    Alignment, Feeding, Generative, Seq2Seq, Seq2SeqConfig, Tokens, Tying, token_loss,
};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_table("seq2seq/", TESTS);
    for (attention, feeding) in PAIRS {
        let pair = format!("{}-fed-{}", attention.word(), feeding.word());
        let mut add = |name: &str, test: fn(&Seq2Seq), trains: bool| {
            let test = move |device: &Device| test(&model(&config(attention, feeding), device));
            let name = format!("seq2seq/{name}-with-{pair}");
            match trains {
                true => suite.add_training(name, test),
                false => suite.add(name, test),
            }
        };
        add("steps", steps_are_what_all_at_once_are, false);
        add("padding-changes-nothing", padding_changes_nothing, false);
        // Its score is that of `general`, and what it does not see others of its tests show.
        if attention != LOCAL_M {
            add("learns-by-heart", learns_by_heart, true);
        }
    }
}

const LOCAL_M: Alignment = Alignment::local_m(1);
const LOCAL_P: Alignment = Alignment::local_p(2);

/// Every score, and every way of feeding.
const PAIRS: [(Alignment, Feeding); 6] = [
    (Alignment::Additive, Feeding::Context),
    (Alignment::Dot, Feeding::None),
    (Alignment::General, Feeding::Input),
    (LOCAL_M, Feeding::Input),
    (LOCAL_M, Feeding::None),
    (LOCAL_P, Feeding::Input),
];

fn config(attention: Alignment, feeding: Feeding) -> Seq2SeqConfig {
    Seq2SeqConfig::new(7, 9)
        .with_d_embedding(6)
        .with_d_hidden(12)
        .with_attention(attention)
        .with_feeding(feeding)
        .with_dropout(0.0)
}

fn model(config: &Seq2SeqConfig, device: &Device) -> Seq2Seq {
    drawn(config.init(device), 13)
}

/// Sources and targets of several lengths, each with a beginning and an end.
fn pairs() -> ([Vec<u32>; 3], [Vec<u32>; 3]) {
    (
        [vec![2, 3, 4, 5], vec![6, 1], vec![3, 3, 2]],
        [vec![0, 4, 5, 8, 2, 1], vec![0, 7, 1], vec![0, 8, 8, 3, 1]],
    )
}

fn taken(model: &Seq2Seq) -> (Tokens, Tokens) {
    let (sources, targets) = pairs();
    (source(model, &sources), target(model, &targets))
}

fn source(model: &Seq2Seq, rows: &[Vec<u32>]) -> Tokens {
    tokens(rows, model.source_limits(), &model.device())
}

fn target<R: AsRef<[u32]>>(model: &Seq2Seq, rows: &[R]) -> Tokens {
    tokens(rows, model.target_limits(), &model.device())
}

fn learns_by_heart(model: &Seq2Seq) {
    let source = source(model, &[vec![2, 3, 4], vec![6, 1]]);
    let targets = [vec![0, 4, 5, 1], vec![0, 7, 1]];
    let [given, wanted] = shifted(&targets).map(|rows| target(model, &rows));
    overfits(0.05, model.clone(), |model| {
        token_loss(model.forward(&source, &given, 1.0, 0).logits, &wanted, 0.0)
    });
}

fn steps_are_what_all_at_once_are(model: &Seq2Seq) {
    let (sources, _) = pairs();
    let rows = [
        vec![0, 4, 5, 8, 2, 3, 6],
        vec![0, 7, 1, 1, 3, 8, 2],
        vec![5, 8, 8, 3, 6, 1, 4],
    ];
    let source = |rows: &[usize]| {
        let rows: Vec<Vec<u32>> = rows.iter().map(|row| sources[*row].clone()).collect();
        source(model, &rows)
    };
    let forward =
        |rows: &[usize], target: &Tokens| model.forward(&source(rows), target, 1.0, 0).logits;
    let start = |rows: &[usize]| model.start(&source(rows));
    steps_agree(model, model.target_limits(), &rows, forward, start);
}

/// A row beside longer ones is what it is alone, and looks at nothing behind its end.
fn padding_changes_nothing(model: &Seq2Seq) {
    let (sources, targets) = pairs();
    let (source_rows, target_rows) = taken(model);
    let all = model.forward(&source_rows, &target_rows, 1.0, 0);
    for row in 0..3 {
        let (of_source, of_target) = (sources[row].len(), targets[row].len());
        let own = |tensor: &Tensor<3>| {
            let own = tensor.clone().slice_dim(0, row..row + 1);
            own.slice_dim(1, 0..of_target)
        };
        let one = row..row + 1;
        let source = source(model, &sources[one.clone()]);
        let alone = model.forward(&source, &target(model, &targets[one]), 1.0, 0);
        same(own(&all.logits), alone.logits);
        let alignment = own(&all.alignment);
        let seen = alignment.clone().slice_dim(2, 0..of_source);
        same(seen, alone.alignment);
        if of_source < 4 {
            let behind = numbers(alignment.slice_dim(2, of_source..4));
            assert!(behind.iter().all(|weight| *weight == 0.0));
        }
    }
}

/// How much of the source each place of the target looks at: `[row][place]`.
fn looked_at(attention: Alignment, device: &Device) -> Vec<Vec<f32>> {
    let model = model(&config(attention, Feeding::Input), device);
    let (source, target) = taken(&model);
    let alignment = model.forward(&source, &target, 1.0, 0).alignment;
    assert_eq!(alignment.dims(), [3, 6, 4]);
    let sums = numbers(alignment.sum_dim(2));
    sums.chunks(6).map(<[f32]>::to_vec).collect()
}

const TESTS: &[(&str, Test)] = &[
    ("alignments-are-shares", |device| {
        let is_one = |sum: &f32| (sum - 1.0).abs() < 1e-5;
        for attention in [Alignment::Additive, Alignment::Dot, Alignment::General] {
            let sums = looked_at(attention, device).concat();
            assert!(sums.iter().all(is_one));
        }
        // The second source has 2 tokens: place 2 still sees the last of them, 3 sees none.
        let sums = looked_at(LOCAL_M, device);
        assert!(sums[1][..3].iter().all(is_one));
        assert_eq!(&sums[1][3..], &[0.0; 3]);
        assert!(sums[0][..5].iter().all(is_one));
        // Weights fall with the distance from the place that is predicted.
        let sums = looked_at(LOCAL_P, device).concat();
        assert!(sums.iter().all(|sum| *sum > 0.0 && *sum < 1.0));
    }),
    ("at-once-is-what-steps-are-forward-and-backward", |device| {
        let device = &device.clone().autodiff();
        let model = model(&config(Alignment::General, Feeding::None), device);
        let (source, target) = taken(&model);
        let pass = |teacher_forcing: f64| {
            let said = model.forward(&source, &target, teacher_forcing, 0);
            let loss = token_loss(said.logits.clone(), &target, 0.0);
            let gradients = loss.backward();
            let of = |weight: Tensor<2>| weight.grad(&gradients).expect("a gradient");
            let by_embedding = of(model.target_embedding.weight.val());
            let by_combination = of(model.combination.weight.val());
            let (logits, alignment) = (said.logits.inner(), said.alignment.inner());
            ([logits, alignment], [by_embedding, by_combination])
        };
        // So near to one that every token is given, but not known to be.
        let (at_once, by_steps) = (pass(1.0), pass(1.0 - 1e-12));
        for (got, want) in by_steps.0.into_iter().zip(at_once.0) {
            same(got, want);
        }
        for (got, want) in by_steps.1.into_iter().zip(at_once.1) {
            same(got, want);
        }
    }),
    ("without-a-teacher-it-goes-by-its-own-word", |device| {
        let model = model(&config(Alignment::Additive, Feeding::Input), device);
        let (source, target) = taken(&model);
        let alone = model.forward(&source, &target, 0.0, 3).logits; // [3, 6, 9]
        let mut state = model.start(&source);
        let mut token = target.ids().slice_dim(1, 0..1);
        for place in 0..6 {
            let said = model.advance(token, &mut state);
            let of_place = alone.clone().slice_dim(1, place..place + 1);
            same(of_place.squeeze_dim::<2>(1), said.clone());
            token = said.argmax(1);
        }
        // By half: the same for a seed, and others for another.
        let half = |seed| numbers(model.forward(&source, &target, 0.5, seed).logits);
        assert_eq!(half(1), half(1));
        let kinds: Vec<Vec<f32>> = (0..6).map(half).collect();
        assert!(kinds.iter().any(|other| *other != kinds[0]));
    }),
    ("an-empty-source-has-an-answer", |device| {
        for (attention, feeding) in PAIRS {
            let model = model(&config(attention, feeding), device);
            let (sources, targets) = ([vec![], vec![1, 2]], [vec![0, 3], vec![0, 4]]);
            let (source, target) = (source(&model, &sources), target(&model, &targets));
            let said = model.forward(&source, &target, 1.0, 0);
            assert!(numbers(said.logits).iter().all(|logit| logit.is_finite()));
            let seen = numbers(said.alignment.slice_dim(0, 0..1));
            assert_eq!(seen, vec![0.0; 4]);
        }
    }),
    ("parameters-and-work-are-as-counted-by-hand", |device| {
        // e = 6, d = 12; gates are three, with two biases each.
        let encoder = 2 * (6 * 18 + 6 * 18 + 2 * 18);
        let decoder = |input: usize| input * 36 + 12 * 36 + 2 * 36;
        let rest = 7 * 6 + 9 * 6 + (12 * 12 + 12) + 24 * 12 + (12 * 9 + 9);
        for (attention, feeding, own, input) in [
            (Alignment::Additive, Feeding::Input, 2 * 144 + 12 + 12, 18),
            (Alignment::Dot, Feeding::None, 0, 6),
            (Alignment::General, Feeding::Context, 144, 18),
            (LOCAL_P, Feeding::Input, 144 + 144 + 12, 18),
        ] {
            let model = model(&config(attention, feeding), device);
            let by_hand = encoder + decoder(input) + rest + own;
            assert_eq!(model.parameters(), by_hand);
            assert_eq!(model.num_params(), by_hand);
            assert!(model.to_string().contains(attention.word()));
        }
        let tied = Seq2SeqConfig::new(7, 7)
            .with_d_embedding(12)
            .with_d_hidden(12)
            .with_attention(Alignment::Dot)
            .with_feeding(Feeding::None)
            .with_tying(Tying::All);
        let encoder_and_decoder = 2 * (12 * 18 + 6 * 18 + 2 * 18) + decoder(12);
        let by_hand = encoder_and_decoder + 7 * 12 + (12 * 12 + 12) + 24 * 12;
        assert_eq!(model(&tied, device).parameters(), by_hand);
        let general = model_of_general(device);
        // 2 examples, 5 source and 4 target tokens, two operations for each product.
        let encoder = 5 * 2 * (6 * 18 + 6 * 18);
        let decoder = 4 * (18 * 36 + 12 * 36);
        let attention = 5 * 144 + 2 * 5 * 4 * 12;
        let dense = 144 + 4 * (24 * 12 + 12 * 9);
        let by_hand = 2 * 2 * (encoder + decoder + attention + dense);
        assert_eq!(general.flops(2, 5, 4), by_hand as f64);
    }),
    ("what-does-not-fit-is-refused", |device| {
        let model = model_of_general(device);
        let (source, _) = taken(&model);
        let one = target(&model, &[vec![0, 1]]);
        is_refused(
            || model.forward(&source, &one, 1.0, 0),
            "Seq2Seq: a target must be [batch = 3, seq] as the source is, got [1, 2]",
        );
        is_refused(
            || model.advance(one.ids(), &mut model.start(&source)),
            "Seq2Seq: tokens must be [rows = 3, new], at least one new, got [1, 2]",
        );
        let (source, target) = taken(&model);
        is_refused(
            || model.forward(&source, &target, 1.5, 0),
            "Seq2Seq: teacher forcing must be from 0 to 1, got 1.5",
        );
    }),
];

fn model_of_general(device: &Device) -> Seq2Seq {
    model(&config(Alignment::General, Feeding::Input), device)
}
