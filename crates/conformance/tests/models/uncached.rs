//! Models whose state is the text: generation without a cache, against that with a cache, and toy
//! models whose logits are a function of the text.

use std::cell::RefCell;
use std::rc::Rc;

use zoo_models::{GenerateConfig, GeneratedSequence, Stop, Strategy, generate};

use crate::support::*;

/// A text so far, and the index of its source.
#[derive(Clone, Default)]
pub(crate) struct Text {
    source: usize,
    tokens: Vec<u32>,
}

/// A model whose state is the text, which is processed completely for every token.
pub(crate) struct Uncached<Logits> {
    limits: Limits,
    device: Device,
    /// Logits `[rows, vocabulary]` of the next token of each text.
    logits: Logits,
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

/// Checks that texts are equal, with log-probabilities and scores up to this error.
pub(crate) fn assert_texts_close(
    max_error: f64,
    got: &[GeneratedSequence],
    want: &[GeneratedSequence],
) {
    let is_same = |(got, want): (&GeneratedSequence, &GeneratedSequence)| {
        let is_near = |got: f64, want: f64| (got - want).abs() < max_error;
        got.tokens == want.tokens
            && got.stop == want.stop
            && is_near(got.log_probability, want.log_probability)
            && is_near(got.score, want.score)
    };
    let are_same = got.len() == want.len() && got.iter().zip(want).all(is_same);
    assert!(are_same, "{got:?}, expected {want:?}");
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
    let empty = [0, 1].map(|source| Text {
        source,
        tokens: vec![],
    });
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
        let uncached = must(generate(&uncached, empty.to_vec(), &PROMPTS, &config));
        assert_eq!(cached.len(), uncached.len());
        for (cached, uncached) in cached.iter().zip(&uncached) {
            // Four logarithms up to about ten, each rounded twice.
            assert_texts_close(1e-3, cached, uncached);
        }
        // The output must depend on the prompt.
        let first = |row: usize| cached[row][0].log_probability;
        assert!((first(0) - first(1)).abs() > 1e-3);
    }
}

type Logits = Box<dyn Fn(&[Text]) -> Tensor<2>>;

/// A model whose logits are a function of the text.
pub(crate) struct Toy {
    pub(crate) model: Uncached<Logits>,
    logit: fn(&[u32], u32) -> f64,
    /// Number of rows of each call of `advance`.
    pub(crate) rows: Rc<RefCell<Vec<usize>>>,
}

pub(crate) const END: u32 = 0;

impl Toy {
    pub(crate) fn new(vocabulary: usize, logit: fn(&[u32], u32) -> f64, device: &Device) -> Self {
        let rows = Rc::new(RefCell::default());
        let counted: Rc<RefCell<Vec<usize>>> = Rc::clone(&rows);
        let on = device.clone();
        let logits = move |texts: &[Text]| {
            counted.borrow_mut().push(texts.len());
            let logits = texts.iter().flat_map(|text| {
                let tokens = 0..vocabulary as u32;
                tokens.map(|token| logit(&text.tokens, token) as f32)
            });
            tensor_of(logits.collect(), [texts.len(), vocabulary], &on)
        };
        let model = Uncached {
            limits: Limits {
                vocabulary,
                longest: None,
            },
            device: device.clone(),
            logits: Box::new(logits) as Logits,
        };
        Self { model, logit, rows }
    }

    pub(crate) fn with_longest(mut self, longest: usize) -> Self {
        self.model.limits.longest = Some(longest);
        self
    }

    pub(crate) fn texts(
        &self,
        prompts: &[&[u32]],
        config: &GenerateConfig,
    ) -> Vec<Vec<GeneratedSequence>> {
        let state = vec![Text::default(); prompts.len()];
        must(generate(&self.model, state, prompts, config))
    }

    pub(crate) fn best(
        &self,
        prompts: &[&[u32]],
        config: &GenerateConfig,
    ) -> Vec<GeneratedSequence> {
        let texts = self.texts(prompts, config).into_iter();
        texts.map(|mut texts| texts.remove(0)).collect()
    }

    /// Log-probability of each token after a text.
    pub(crate) fn logs(&self, text: &[u32]) -> Vec<f64> {
        let tokens = 0..self.model.limits.vocabulary as u32;
        let logits: Vec<f64> = tokens.map(|token| (self.logit)(text, token)).collect();
        let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
        logits.iter().map(|logit| logit - sum.ln()).collect()
    }

    /// All possible texts after a prompt, sorted by score.
    pub(crate) fn all_texts(
        &self,
        prompt: &[u32],
        max_length: usize,
        length_penalty: f64,
    ) -> Vec<GeneratedSequence> {
        let mut done = vec![];
        let mut prefixes = vec![(vec![], 0.0)];
        while let Some((prefix, log)) = prefixes.pop() {
            let text = [prompt, prefix.as_slice()].concat();
            for (token, token_log) in self.logs(&text).into_iter().enumerate() {
                let log_probability: f64 = log + token_log;
                let mut tokens: Vec<u32> = prefix.clone();
                let length = tokens.len() + 1;
                let is_end = token as u32 == END;
                if !is_end {
                    tokens.push(token as u32);
                }
                if !is_end && length < max_length {
                    prefixes.push((tokens, log_probability));
                    continue;
                }
                let penalty = ((5.0 + length as f64) / 6.0).powf(length_penalty);
                done.push(GeneratedSequence {
                    tokens,
                    log_probability,
                    score: log_probability / penalty,
                    stop: if is_end { Stop::End } else { Stop::Length },
                });
            }
        }
        done.sort_by(|a, b| b.score.total_cmp(&a.score));
        done
    }
}

/// A pseudorandom logit between -2 and 2 that depends on the whole text.
pub(crate) fn pseudorandom(text: &[u32], token: u32) -> f64 {
    let mix = |sum: u64, token: &u32| {
        let sum = (sum ^ u64::from(*token + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^ (sum >> 29)
    };
    let bits = text.iter().chain([&token]).fold(17, mix);
    (bits % 4001) as f64 / 1000.0 - 2.0
}

/// Token probabilities of [`constant`].
pub(crate) const PROBS: [f64; 5] = [0.1, 0.4, 0.05, 0.3, 0.15];

pub(crate) fn constant(_: &[u32], token: u32) -> f64 {
    PROBS[token as usize].ln()
}

/// Counts down: 3, 2, 1, end.
pub(crate) fn countdown(text: &[u32], token: u32) -> f64 {
    let last = text.last().copied().unwrap_or(0);
    f64::from(token + 1 == last) * 5.0
}

/// Prefers to repeat the last token.
pub(crate) fn repetitive(text: &[u32], token: u32) -> f64 {
    let last = text.last().copied().unwrap_or(0);
    f64::from(token == last) * 3.0 + pseudorandom(&[last], token)
}
