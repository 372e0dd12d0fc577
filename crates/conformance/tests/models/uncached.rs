//! Texts generated with a model's state are those it generates by reading everything again.

use burn::tensor::{Device, Int, Tensor};
use libtest_mimic::Failed;
use zoo_models::{GenerateConfig, Generated, Generative, Limits, Strategy, Tokens, generate};

use crate::support::equal;

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

/// Checks that a model that starts from the first sources generates the same texts as one that
/// computes all tokens again for every token.
pub(crate) fn same_texts<M: Generative>(
    model: &M,
    limits: Limits,
    forward: impl Fn(&[usize], &Tokens) -> Tensor<3>,
    start: impl Fn(&[usize]) -> Result<M::State, Failed>,
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
        let cached = generate(model, start(&[0, 1])?, &PROMPTS, &config)?;
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
