//! A model that is a function of the text so far: every text can be written down.

use std::cell::RefCell;

use burn::tensor::{Device, Int, Tensor, TensorData};
use libtest_mimic::Failed;
use zoo_models::{GenerateConfig, Generated, Generative, Stop, generate};

/// A model that is a function of the text so far.
pub(crate) struct Toy {
    device: Device,
    vocabulary: usize,
    longest: Option<usize>,
    logit: fn(&[u32], u32) -> f64,
    /// The rows of each call of `advance`.
    pub(crate) rows: RefCell<Vec<usize>>,
}

/// The token that ends a toy's texts.
pub(crate) const END: u32 = 0;

impl Toy {
    pub(crate) fn new(vocabulary: usize, logit: fn(&[u32], u32) -> f64, device: &Device) -> Self {
        Self {
            device: device.clone(),
            vocabulary,
            longest: None,
            logit,
            rows: RefCell::default(),
        }
    }

    /// The same with so many positions.
    pub(crate) fn with_longest(self, longest: usize) -> Self {
        Self {
            longest: Some(longest),
            ..self
        }
    }

    /// Continues prompts.
    pub(crate) fn texts(
        &self,
        prompts: &[&[u32]],
        config: &GenerateConfig,
    ) -> Result<Vec<Vec<Generated>>, Failed> {
        let state = vec![vec![]; prompts.len()];
        generate(self, state, prompts, config).map_err(|error| error.to_string().into())
    }

    /// The best continuation of each.
    pub(crate) fn best(
        &self,
        prompts: &[&[u32]],
        config: &GenerateConfig,
    ) -> Result<Vec<Generated>, Failed> {
        let first = |texts: &Vec<Generated>| texts.first().cloned();
        let texts = self.texts(prompts, config)?;
        let best: Option<Vec<_>> = texts.iter().map(first).collect();
        best.ok_or_else(|| "a row without a text".into())
    }

    /// The logarithm of each token's probability after a text.
    pub(crate) fn logs(&self, text: &[u32]) -> Vec<f64> {
        let logits: Vec<f64> = (0..self.vocabulary as u32)
            .map(|token| (self.logit)(text, token))
            .collect();
        let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
        logits.iter().map(|logit| logit - sum.ln()).collect()
    }

    /// Every text there can be after a prompt, the best first.
    pub(crate) fn all_texts(
        &self,
        prompt: &[u32],
        max_length: usize,
        length_penalty: f64,
    ) -> Vec<Generated> {
        let mut done = vec![];
        let mut beginnings = vec![(vec![], 0.0)];
        while let Some((made, log)) = beginnings.pop() {
            let text = [prompt, made.as_slice()].concat();
            for (token, more) in self.logs(&text).into_iter().enumerate() {
                let log_probability: f64 = log + more;
                let mut tokens: Vec<u32> = made.clone();
                let length = tokens.len() + 1;
                let is_end = token as u32 == END;
                if !is_end {
                    tokens.push(token as u32);
                }
                if !is_end && length < max_length {
                    beginnings.push((tokens, log_probability));
                    continue;
                }
                let penalty = ((5.0 + length as f64) / 6.0).powf(length_penalty);
                done.push(Generated {
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

impl Generative for Toy {
    type State = Vec<Vec<u32>>;

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn longest(&self) -> Option<usize> {
        self.longest
    }

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn rows(&self, state: &Self::State) -> usize {
        state.len()
    }

    fn advance(&self, tokens: Tensor<2, Int>, state: &mut Self::State) -> Tensor<2> {
        let [rows, new] = tokens.dims();
        assert_eq!(rows, state.len());
        self.rows.borrow_mut().push(rows);
        let ids: Vec<u32> = tokens
            .into_data()
            .iter::<i64>()
            .map(|id| id as u32)
            .collect();
        for (text, ids) in state.iter_mut().zip(ids.chunks(new)) {
            text.extend(ids);
            let is_short = self.longest.is_none_or(|longest| text.len() <= longest);
            assert!(is_short, "{text:?} has no positions");
        }
        let of_text = |text: &Vec<u32>| {
            let logit = |token| (self.logit)(text, token) as f32;
            (0..self.vocabulary as u32).map(logit).collect::<Vec<_>>()
        };
        let logits: Vec<f32> = state.iter().flat_map(of_text).collect();
        Tensor::from_data(
            TensorData::new(logits, [rows, self.vocabulary]),
            &self.device,
        )
    }

    fn select(&self, state: &Self::State, rows: &[usize]) -> Self::State {
        rows.iter().map(|row| state[*row].clone()).collect()
    }
}

/// A number between -2 and 2 that depends on the whole text.
pub(crate) fn scattered(text: &[u32], token: u32) -> f64 {
    let mix = |sum: u64, token: &u32| {
        let sum = (sum ^ u64::from(*token + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^ (sum >> 29)
    };
    let bits = text.iter().chain([&token]).fold(17, mix);
    (bits % 4001) as f64 / 1000.0 - 2.0
}

/// The same five probabilities wherever it is.
pub(crate) const SHARES: [f64; 5] = [0.1, 0.4, 0.05, 0.3, 0.15];

pub(crate) fn unchanging(_: &[u32], token: u32) -> f64 {
    SHARES[token as usize].ln()
}

/// Counts down, and ends: 3, 2, 1, end.
pub(crate) fn countdown(text: &[u32], token: u32) -> f64 {
    let last = text.last().copied().unwrap_or(0);
    f64::from(token + 1 == last) * 5.0
}

/// Likes to repeat itself.
pub(crate) fn stammer(text: &[u32], token: u32) -> f64 {
    let last = text.last().copied().unwrap_or(0);
    f64::from(token == last) * 3.0 + scattered(&[last], token)
}
