//! Generation with a model's cached state against generation without a cache.

use burn::tensor::{Device, Int, Tensor};
use zoo_models::{GenerateConfig, Generative, Limits, Strategy, Tokens, generate};

use crate::support::*;

/// A text so far, and the index of its source.
#[derive(Clone, Default)]
pub(crate) struct Text {
    source: usize,
    pub(crate) tokens: Vec<u32>,
}

/// A model whose state is the text, which is processed completely for every token.
pub(crate) struct Uncached<Logits> {
    pub(crate) limits: Limits,
    pub(crate) device: Device,
    /// Logits `[rows, vocabulary]` of the next token of each text.
    pub(crate) logits: Logits,
}

impl<Logits: Fn(&[Text]) -> Tensor<2>> Generative for Uncached<Logits> {
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
        assert_eq!(rows, state.len());
        let ids: Vec<i64> = tokens.into_data().iter::<i64>().collect();
        for (text, ids) in state.iter_mut().zip(ids.chunks(new)) {
            text.tokens.extend(ids.iter().map(|id| *id as u32));
            let longest = self.limits.longest.unwrap_or(usize::MAX);
            assert!(text.tokens.len() <= longest, "a text exceeds the context");
        }
        (self.logits)(state)
    }

    fn select(&self, state: &Vec<Text>, rows: &[usize]) -> Vec<Text> {
        rows.iter().map(|row| state[*row].clone()).collect()
    }
}

/// Prompts of different lengths, one for each source.
const PROMPTS: [&[u32]; 2] = [&[1, 4], &[1]];

/// Checks that a model generates the same texts with and without a cache.
pub(crate) fn assert_same_texts<M: Generative>(
    model: &M,
    limits: Limits,
    forward: impl Fn(&[usize], &Tokens) -> Tensor<3>,
    start: impl Fn(&[usize]) -> M::State,
) {
    let device = &model.device();
    let logits = |texts: &[Text]| {
        let sources: Vec<usize> = texts.iter().map(|text| text.source).collect();
        let texts: Vec<&[u32]> = texts.iter().map(|text| text.tokens.as_slice()).collect();
        let texts = tokens(&texts, limits, device);
        let [_, seq] = texts.dims();
        let last = forward(&sources, &texts).slice_dim(1, seq - 1..seq);
        last.squeeze_dim::<2>(1)
    };
    let uncached = Uncached {
        limits,
        device: device.clone(),
        logits,
    };
    let empty = |source| Text {
        source,
        tokens: vec![],
    };
    let beam = Strategy::Beam {
        beams: 2,
        length_penalty: 0.6,
        n_best: 2,
    };
    let greedy = GenerateConfig::new(Strategy::Greedy);
    // Four different tokens, so that texts are not a single repeated token.
    let varied = GenerateConfig::new(beam).with_no_repeat_ngram(Some(1));
    for config in [greedy, varied] {
        let config = config
            .with_end(Some(0))
            .with_min_length(3)
            .with_max_length(4);
        let cached = must(generate(model, start(&[0, 1]), &PROMPTS, &config));
        let state = [0, 1].map(empty).to_vec();
        let uncached = must(generate(&uncached, state, &PROMPTS, &config));
        assert_eq!(cached.len(), uncached.len());
        for (cached, uncached) in cached.iter().zip(&uncached) {
            assert_eq!(cached.len(), uncached.len());
            for (cached, uncached) in cached.iter().zip(uncached) {
                assert_eq!(cached.tokens, uncached.tokens);
                assert_eq!(cached.stop, uncached.stop);
                let error = (cached.log_probability - uncached.log_probability).abs();
                // Four logarithms up to about ten, each rounded twice.
                assert!(error < 1e-3, "{error}");
            }
        }
        // The output must depend on the prompt.
        let first = |row: usize| cached[row][0].log_probability;
        assert!((first(0) - first(1)).abs() > 1e-3);
    }
}
