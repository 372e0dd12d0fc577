//! Toy models whose logits are a function of the text.

use std::cell::RefCell;
use std::rc::Rc;

use burn::tensor::{Device, Tensor, TensorData};
use zoo_models::{GenerateConfig, GeneratedSequence, Limits, Stop, generate};

use crate::support::must;
use crate::uncached::{Text, Uncached};

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
            let mut logits = vec![];
            for text in texts {
                logits
                    .extend((0..vocabulary as u32).map(|token| logit(&text.tokens, token) as f32));
            }
            Tensor::from_data(TensorData::new(logits, [texts.len(), vocabulary]), &on)
        };
        let model = Uncached {
            limits: Limits {
                vocabulary,
                longest: None,
            },
            device: device.clone(),
            logits: Box::new(logits) as Box<dyn Fn(&[Text]) -> Tensor<2>>,
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
