//! Predictions of the next token: constraints, top-k, top-p and sampling, on the host.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, Transaction};

use super::GenerateConfig;
use super::sequence::Draft;

/// Predictions of the next token for each row of a model's state.
pub(super) enum Predictions {
    /// Most likely token and its log-probability.
    Best(Vec<(u32, f32)>),
    /// Log-probabilities of the whole vocabulary, row by row.
    All {
        log_probs: Vec<f32>,
        vocabulary: usize,
    },
}

impl Predictions {
    /// Reads only the most likely token of each row of `[rows, vocabulary]`.
    ///
    /// Ties go to the smallest id, which a backend's argmax does not guarantee.
    pub(super) fn read_best(logits: Tensor<2>) -> Self {
        let [rows, vocabulary] = logits.dims();
        let max = logits.clone().max_dim(1); // [rows, 1]
        let is_below = logits.clone().lower(max.clone().expand([rows, vocabulary]));
        let ids = Tensor::<1, Int>::arange(0..vocabulary as i64, &logits.device())
            .reshape([1, vocabulary])
            .expand([rows, vocabulary])
            .mask_fill(is_below, vocabulary as i64)
            .min_dim(1); // [rows, 1]
        let log_probs = -(logits - max).exp().sum_dim(1).log(); // [rows, 1]
        let read = Transaction::default()
            .register(ids)
            .register(log_probs)
            .execute();
        let (ids, log_probs) = (read[0].iter::<i64>(), read[1].iter::<f32>());
        Self::Best(ids.map(|id| id as u32).zip(log_probs).collect())
    }

    pub(super) fn read_all(logits: Tensor<2>) -> Self {
        let [_, vocabulary] = logits.dims();
        let log_probs = log_softmax(logits, 1).into_data().iter::<f32>().collect();
        Self::All {
            log_probs,
            vocabulary,
        }
    }

    pub(super) fn best(&mut self, row: usize, draft: &Draft<'_>) -> Option<(u32, f32)> {
        match self {
            Self::Best(best) => Some(best[row]).filter(|(_, log_prob)| !log_prob.is_nan()),
            Self::All { .. } => top_k(self.constrained(row, draft), 1).first().copied(),
        }
    }

    /// Log-probabilities of a row; minus infinity for tokens that the config forbids.
    pub(super) fn constrained(&mut self, row: usize, draft: &Draft<'_>) -> &[f32] {
        let Self::All {
            log_probs,
            vocabulary,
        } = self
        else {
            panic!("generation: only the most likely token of each row was read");
        };
        let log_probs = &mut log_probs[row * *vocabulary..][..*vocabulary];
        apply_constraints(log_probs, draft);
        log_probs
    }
}

/// Whether no token can be forbidden after `generated` tokens, except those of `config.never`.
pub(super) fn is_unconstrained(config: &GenerateConfig, generated: usize) -> bool {
    let has_end = config.ends().next().is_some();
    config.no_repeat_ngram.is_none() && (!has_end || generated >= config.min_length)
}

/// Sets the log-probabilities of forbidden tokens to minus infinity.
fn apply_constraints(log_probs: &mut [f32], draft: &Draft<'_>) {
    let config = draft.config;
    for token in &config.never {
        log_probs[*token as usize] = f32::NEG_INFINITY;
    }
    if let Some(size) = config.no_repeat_ngram {
        let text = &draft.tokens;
        let before = size - 1;
        let last = &text[text.len().saturating_sub(before)..];
        for repeated in text.windows(size).filter(|ngram| ngram[..before] == *last) {
            if !config.is_end(repeated[before]) {
                log_probs[repeated[before] as usize] = f32::NEG_INFINITY;
            }
        }
    }
    if draft.generated().len() < config.min_length {
        for end in config.ends() {
            log_probs[end as usize] = f32::NEG_INFINITY;
        }
    }
}

/// The `count` largest log-probabilities above minus infinity, in descending order; ties by id.
pub(super) fn top_k(log_probs: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut top: Vec<(u32, f32)> = Vec::with_capacity(count.min(log_probs.len()) + 1);
    for (id, &log_prob) in log_probs.iter().enumerate() {
        let is_full = top.len() == count;
        let is_better = top.last().is_none_or(|(_, other)| log_prob > *other);
        // Comparisons with NaN are false, so NaN is skipped.
        if log_prob > f32::NEG_INFINITY && (!is_full || is_better) {
            let index = top.partition_point(|(_, other)| *other >= log_prob);
            top.insert(index, (id as u32, log_prob));
            top.truncate(count);
        }
    }
    top
}

/// Samples a token, given a uniform random number in `[0, 1)`.
pub(super) fn sample(
    log_probs: &[f32],
    temperature: f64,
    top_k_count: Option<usize>,
    top_p: Option<f64>,
    random: f64,
) -> Option<(u32, f32)> {
    let tokens = match top_k_count.filter(|count| *count < log_probs.len()) {
        Some(count) => top_k(log_probs, count),
        None => (0..).zip(log_probs.iter().copied()).collect(),
    };
    let log_probs = tokens.iter().map(|(_, log_prob)| *log_prob);
    let max = log_probs.fold(f32::NEG_INFINITY, f32::max);
    let weight =
        |(_, log_prob): &(u32, f32)| ((f64::from(*log_prob) - f64::from(max)) / temperature).exp();
    let weighted = tokens.into_iter().map(|token| (weight(&token), token));
    // Drops forbidden tokens and NaN.
    let mut weighted: Vec<_> = weighted.filter(|(weight, _)| *weight > 0.0).collect();
    if let Some(top_p) = top_p {
        apply_top_p(&mut weighted, top_p);
    }
    let total: f64 = weighted.iter().map(|(weight, _)| weight).sum();
    let mut remaining = random * total;
    let index = weighted.iter().position(|(weight, _)| {
        remaining -= weight;
        remaining < 0.0
    });
    // Rounding may leave a remainder after the last token.
    let index = index.or(weighted.len().checked_sub(1))?;
    Some(weighted[index].1)
}

/// Retains the smallest set of most likely tokens with total probability of at least `top_p`.
fn apply_top_p<Token>(weighted: &mut Vec<(f64, Token)>, top_p: f64) {
    let total: f64 = weighted.iter().map(|(weight, _)| weight).sum();
    // All tokens below this minimum together are less than the dropped mass, so only the few
    // others need to be sorted.
    let min = (1.0 - top_p) * total / weighted.len().max(1) as f64;
    weighted.retain(|(weight, _)| *weight >= min);
    weighted.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut sum = 0.0;
    let last = weighted.iter().position(|(weight, _)| {
        sum += weight;
        sum >= top_p * total
    });
    weighted.truncate(last.map_or(weighted.len(), |index| index + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sampling frequency of each token over evenly spaced random numbers.
    fn frequencies(
        probs: &[f32],
        temperature: f64,
        top_k: Option<usize>,
        top_p: Option<f64>,
    ) -> Vec<f64> {
        const SAMPLES: usize = 10_000;
        let log_probs: Vec<f32> = probs.iter().map(|prob| prob.ln()).collect();
        let mut counts = vec![0; probs.len()];
        for i in 0..SAMPLES {
            let random = (i as f64 + 0.5) / SAMPLES as f64;
            let sampled = sample(&log_probs, temperature, top_k, top_p, random);
            let (id, log_prob) = sampled.expect("a token is sampled");
            assert_eq!(log_prob, log_probs[id as usize]);
            counts[id as usize] += 1;
        }
        let frequency = |count: &i32| f64::from(*count) / SAMPLES as f64;
        counts.iter().map(frequency).collect()
    }

    #[test]
    fn sampling_frequencies_match_probabilities() {
        let model = [0.1, 0.4, 0.0, 0.3, 0.2];
        let all = [0.1, 0.4, 0.0, 0.3, 0.2];
        // Squares, divided by their sum.
        let sharp = [1.0, 16.0, 0.0, 9.0, 4.0].map(|square| square / 30.0);
        let one = [0.0, 1.0, 0.0, 0.0, 0.0];
        let two = [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0, 0.0];
        let three = [0.0, 4.0 / 9.0, 0.0, 3.0 / 9.0, 2.0 / 9.0];
        for (temperature, top_k, top_p, expected) in [
            (1.0, None, None, all),
            (0.5, None, None, sharp),
            (1.0, Some(2), None, two),
            (1.0, Some(9), None, all),
            (1.0, Some(1), None, one),
            // Top-p is the smallest set that reaches it.
            (1.0, None, Some(0.01), one),
            (1.0, None, Some(0.39), one),
            (1.0, None, Some(0.41), two),
            (1.0, None, Some(0.69), two),
            (1.0, None, Some(0.71), three),
            (1.0, None, Some(1.0), all),
            // Top-p applies after top-k: 0.4 of 0.7 is more than half.
            (1.0, Some(2), Some(0.5), one),
            // Top-p applies after the temperature: 16 of 30.
            (0.5, None, Some(0.5), one),
        ] {
            let got = frequencies(&model, temperature, top_k, top_p);
            let is_close = |(got, expected): (&f64, &f64)| (got - expected).abs() < 3e-4;
            let case = (temperature, top_k, top_p);
            assert!(
                got.iter().zip(&expected).all(is_close),
                "{case:?}: {got:?}, expected {expected:?}"
            );
        }
    }

    #[test]
    fn top_k_is_sorted_and_breaks_ties_by_id() {
        let log_probs = [-3.0, -1.0, f32::NEG_INFINITY, -1.0, f32::NAN, -2.0];
        assert_eq!(top_k(&log_probs, 3), [(1, -1.0), (3, -1.0), (5, -2.0)]);
        assert_eq!(top_k(&log_probs, 9).len(), 4);
        assert_eq!(top_k(&[f32::NAN], 1), []);
        assert_eq!(sample(&[f32::NEG_INFINITY; 2], 1.0, None, None, 0.5), None);
        assert_eq!(sample(&[f32::NAN; 2], 1.0, None, None, 0.5), None);
    }

    fn forbidden(text: &[u32], prompt_len: usize, config: &GenerateConfig) -> Vec<u32> {
        let mut draft = Draft::new(text[..prompt_len].to_vec(), config);
        text[prompt_len..]
            .iter()
            .for_each(|token| draft.push(*token, 0.0));
        let mut log_probs = [0.0; 6];
        apply_constraints(&mut log_probs, &draft);
        (0..6).filter(|id| log_probs[*id as usize] < 0.0).collect()
    }

    #[test]
    fn repeated_ngrams_and_early_ends_are_forbidden() {
        let ngram = |size| GenerateConfig::default().with_no_repeat_ngram(Some(size));
        assert_eq!(forbidden(&[1, 2, 3, 1], 1, &ngram(2)), [2]);
        assert_eq!(forbidden(&[1, 2, 1, 3, 1], 1, &ngram(2)), [2, 3]);
        assert_eq!(forbidden(&[1, 2, 1, 2], 4, &ngram(3)), [1]);
        assert!(forbidden(&[1, 2], 1, &ngram(3)).is_empty());
        assert!(forbidden(&[4], 1, &ngram(3)).is_empty());
        assert_eq!(forbidden(&[4, 1], 1, &ngram(1)), [1, 4]);
        assert_eq!(forbidden(&[4, 1], 1, &ngram(1).with_end(Some(4))), [1]);
        let long = GenerateConfig::default()
            .with_end(Some(5))
            .with_min_length(2);
        assert_eq!(forbidden(&[1, 2], 1, &long), [5]);
        assert!(forbidden(&[1, 2, 3], 1, &long).is_empty());
        let several = long.with_other_ends(vec![2, 0]);
        assert_eq!(forbidden(&[1, 2], 1, &several), [0, 2, 5]);
        let several = ngram(1).with_end(Some(4)).with_other_ends(vec![1]);
        assert!(forbidden(&[4, 1], 1, &several).is_empty());
    }
}
