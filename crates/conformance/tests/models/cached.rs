//! Texts made with what a model keeps are those it makes by reading everything again.

use burn::tensor::{Device, Int, Tensor};
use libtest_mimic::Failed;
use zoo_attention::Mechanism;
use zoo_conformance::Suite;
use zoo_models::{
    Alignment, Feeding, GenerateConfig, Generated, Generative, GptConfig, Limits, PositionEncoding,
    Seq2SeqConfig, Strategy, Tokens, TransformerConfig, generate,
};
use zoo_oracle::small_for_tests;

use crate::drawn::drawn;
use crate::mechanisms::differs_in_a_decoder;
use crate::support::equal;

pub(crate) fn trials(suite: &mut Suite) {
    for (mechanism, positions) in MECHANISMS {
        suite.add(format!("cached/gpt-with-{mechanism}"), move |device| {
            gpt(mechanism, positions, device)
        });
    }
    for (mechanism, positions) in [MECHANISMS[0], MECHANISMS[2], MECHANISMS[3]] {
        suite.add(
            format!("cached/transformer-with-{mechanism}"),
            move |device| transformer(mechanism, positions, device),
        );
    }
    for (attention, feeding) in [
        (Alignment::Additive, Feeding::Context),
        (Alignment::local_m(2), Feeding::Input),
        (Alignment::General, Feeding::None),
    ] {
        suite.add(
            format!("cached/seq2seq-with-{}", attention.word()),
            move |device| seq2seq(attention, feeding, device),
        );
    }
}

const ROTARY: PositionEncoding = PositionEncoding::rotary(1e4);

const MECHANISMS: [(Mechanism, PositionEncoding); 5] = [
    (Mechanism::Flash, PositionEncoding::learned(6)),
    (Mechanism::GroupedQuery, ROTARY),
    (Mechanism::SlidingWindow, PositionEncoding::Sinusoidal),
    (Mechanism::Linear, PositionEncoding::Sinusoidal),
    (Mechanism::Retention, ROTARY),
];

/// A model that keeps the text alone, and reads all of it for every token.
struct Uncached<Forward> {
    limits: Limits,
    device: Device,
    /// Logits `[rows, seq, vocabulary]` of rows, each with the number of its source.
    forward: Forward,
}

#[derive(Clone)]
struct Text {
    source: usize,
    tokens: Vec<u32>,
}

impl<Forward: Fn(&[usize], &Tokens) -> Tensor<3>> Generative for Uncached<Forward> {
    type State = Vec<Text>;

    fn vocabulary(&self) -> usize {
        self.limits.vocabulary
    }

    fn longest(&self) -> Option<usize> {
        self.limits.longest
    }

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn rows(&self, state: &Vec<Text>) -> usize {
        state.len()
    }

    fn advance(&self, tokens: Tensor<2, Int>, state: &mut Vec<Text>) -> Tensor<2> {
        let [rows, new] = tokens.dims();
        let ids: Vec<i64> = tokens.into_data().iter::<i64>().collect();
        for (text, ids) in state.iter_mut().zip(ids.chunks(new)) {
            text.tokens.extend(ids.iter().map(|id| *id as u32));
        }
        let texts: Vec<&[u32]> = state.iter().map(|text| text.tokens.as_slice()).collect();
        let texts = Tokens::new(&texts, self.limits, &self.device).expect("it was chosen");
        let sources: Vec<usize> = state.iter().map(|text| text.source).collect();
        let [_, seq] = texts.dims();
        (self.forward)(&sources, &texts)
            .slice_dim(1, seq - 1..seq)
            .reshape([rows, self.limits.vocabulary])
    }

    fn select(&self, state: &Vec<Text>, rows: &[usize]) -> Vec<Text> {
        rows.iter().map(|row| state[*row].clone()).collect()
    }
}

/// Prompts of several lengths, one for each source.
const PROMPTS: [&[u32]; 2] = [&[1, 4], &[1]];

const SOURCES: [&[u32]; 2] = [&[2, 3, 4], &[6, 1]];

fn same_texts<Model: Generative, Forward: Fn(&[usize], &Tokens) -> Tensor<3>>(
    model: &Model,
    state: impl Fn() -> Result<Model::State, Failed>,
    limits: Limits,
    forward: Forward,
) -> Result<(), Failed> {
    let uncached = Uncached {
        limits,
        device: model.device(),
        forward,
    };
    let texts = || {
        let text = |source| Text {
            source,
            tokens: vec![],
        };
        (0..PROMPTS.len()).map(text).collect()
    };
    let beam = Strategy::Beam {
        beams: 2,
        length_penalty: 0.6,
        n_best: 2,
    };
    let greedy = GenerateConfig::new(Strategy::Greedy);
    // A text of four different tokens, so that not one of them is all there is to choose.
    let varied = GenerateConfig::new(beam).with_no_repeat_ngram(Some(1));
    for config in [greedy, varied] {
        let config = config
            .with_end(Some(0))
            .with_min_length(3)
            .with_max_length(4);
        let cached = generate(model, state()?, &PROMPTS, &config)?;
        let uncached = generate(&uncached, texts(), &PROMPTS, &config)?;
        equal(cached.len(), uncached.len())?;
        for (cached, uncached) in cached.iter().zip(&uncached) {
            let tokens = |row: &[Generated]| {
                let text = |text: &Generated| (text.tokens.clone(), text.stop);
                row.iter().map(text).collect::<Vec<_>>()
            };
            equal(tokens(cached), tokens(uncached))?;
            for (cached, uncached) in cached.iter().zip(uncached) {
                let off = (cached.log_probability - uncached.log_probability).abs();
                // Four logarithms of up to ten or so, each rounded twice.
                let is_near = off < 1e-3;
                equal((is_near, off), (true, off))?;
            }
        }
        // A model that says the same whatever it reads would prove nothing.
        let first = |row: usize| cached[row][0].log_probability;
        equal((first(0) - first(1)).abs() > 1e-3, true)?;
    }
    Ok(())
}

fn gpt(mechanism: Mechanism, positions: PositionEncoding, device: &Device) -> Result<(), Failed> {
    let mechanism = small_for_tests(mechanism);
    // One prompt and three tokens at least.
    differs_in_a_decoder(&mechanism, 4, device)?;
    let config = GptConfig::new(11, 16, 4, 2)
        .with_d_feed_forward(Some(24))
        .with_attention(mechanism)
        .with_positions(positions);
    let model = drawn(config.init(device), 17);
    let state = || Ok(model.start(PROMPTS.len())?);
    same_texts(&model, state, model.limits(), |_, texts| {
        model.forward(texts)
    })
}

fn transformer(
    mechanism: Mechanism,
    positions: PositionEncoding,
    device: &Device,
) -> Result<(), Failed> {
    let mechanism = small_for_tests(mechanism);
    differs_in_a_decoder(&mechanism, 4, device)?;
    let config = TransformerConfig::base(7, 11)
        .with_d_model(16)
        .with_heads(4)
        .with_layers(1)
        .with_d_feed_forward(Some(24))
        .with_decoder_attention(mechanism)
        .with_positions(positions);
    let model = drawn(config.init(device), 17);
    let sources = |rows: &[usize]| {
        let rows: Vec<&[u32]> = rows.iter().map(|row| SOURCES[*row]).collect();
        Tokens::new(&rows, model.source_limits(), device)
    };
    let state = || Ok(model.start(&sources(&[0, 1])?)?);
    same_texts(&model, state, model.target_limits(), |rows, texts| {
        model.forward(&sources(rows).expect("it was taken"), texts)
    })
}

fn seq2seq(attention: Alignment, feeding: Feeding, device: &Device) -> Result<(), Failed> {
    let config = Seq2SeqConfig::new(7, 11)
        .with_d_embedding(8)
        .with_d_hidden(16)
        .with_attention(attention)
        .with_feeding(feeding);
    let model = drawn(config.init(device), 17);
    let sources = |rows: &[usize]| {
        let rows: Vec<&[u32]> = rows.iter().map(|row| SOURCES[*row]).collect();
        Tokens::new(&rows, model.source_limits(), device)
    };
    let state = || Ok(model.start(&sources(&[0, 1])?));
    same_texts(&model, state, model.target_limits(), |rows, texts| {
        let source = sources(rows).expect("it was taken");
        model.forward(&source, texts, 1.0, 0).logits
    })
}
