//! The next token: what the model says of it, what may not come, and which is chosen.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, Transaction};

use super::GenerateConfig;
use super::text::Draft;

/// What a model says of the next token of each row of its state, on the host.
pub(super) enum Said {
    /// The likeliest token and its logarithm, for each.
    Best(Vec<(u32, f32)>),
    /// The logarithms of all, row by row.
    All { logs: Vec<f32>, vocabulary: usize },
}

impl Said {
    /// Reads the best of each row `[rows, vocabulary]`.
    ///
    /// Of several that are equally likely it is the one with the least number, which a
    /// backend's own argmax does not promise.
    pub(super) fn best(logits: Tensor<2>) -> Self {
        let [rows, vocabulary] = logits.dims();
        let largest = logits.clone().max_dim(1); // [rows, 1]
        let below = logits
            .clone()
            .lower(largest.clone().expand([rows, vocabulary]));
        let ids = Tensor::<1, Int>::arange(0..vocabulary as i64, &logits.device())
            .reshape([1, vocabulary])
            .expand([rows, vocabulary])
            .mask_fill(below, vocabulary as i64)
            .min_dim(1); // [rows, 1]
        let logs = -(logits - largest).exp().sum_dim(1).log(); // [rows, 1]
        let read = Transaction::default()
            .register(ids)
            .register(logs)
            .execute();
        let (ids, logs) = (read[0].iter::<i64>(), read[1].iter::<f32>());
        Self::Best(ids.map(|id| id as u32).zip(logs).collect())
    }

    pub(super) fn all(logits: Tensor<2>) -> Self {
        let [_, vocabulary] = logits.dims();
        let logs = log_softmax(logits, 1).into_data().iter::<f32>().collect();
        Self::All { logs, vocabulary }
    }

    pub(super) fn best_of(
        &mut self,
        row: usize,
        draft: &Draft,
        config: &GenerateConfig,
    ) -> Option<(u32, f32)> {
        match self {
            Self::Best(best) => Some(best[row]).filter(|(_, log)| !log.is_nan()),
            Self::All { .. } => largest(self.allowed(row, draft, config), 1)
                .first()
                .copied(),
        }
    }

    /// The logarithms of a row, minus infinity for what may not come.
    pub(super) fn allowed(&mut self, row: usize, draft: &Draft, config: &GenerateConfig) -> &[f32] {
        let Self::All { logs, vocabulary } = self else {
            panic!("generation: the best of each row alone was read");
        };
        let logs = &mut logs[row * *vocabulary..][..*vocabulary];
        forbid(logs, draft, config);
        logs
    }
}

/// Whether nothing can be forbidden after `made` tokens.
pub(super) fn forbids_nothing(config: &GenerateConfig, made: usize) -> bool {
    config.no_repeat_ngram.is_none() && (config.end.is_none() || made >= config.min_length)
}

/// Makes what may not come after a text impossible.
fn forbid(logs: &mut [f32], draft: &Draft, config: &GenerateConfig) {
    for token in &config.never {
        logs[*token as usize] = f32::NEG_INFINITY;
    }
    if let Some(size) = config.no_repeat_ngram {
        let text = &draft.tokens;
        let before = size - 1;
        let last = &text[text.len().saturating_sub(before)..];
        for repeated in text.windows(size).filter(|ngram| ngram[..before] == *last) {
            if Some(repeated[before]) != config.end {
                logs[repeated[before] as usize] = f32::NEG_INFINITY;
            }
        }
    }
    if let Some(end) = config
        .end
        .filter(|_| draft.made().len() < config.min_length)
    {
        logs[end as usize] = f32::NEG_INFINITY;
    }
}

/// The largest `count` of them that are possible at all, the best first and of equal ones
/// the first.
pub(super) fn largest(logs: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut found: Vec<(u32, f32)> = Vec::with_capacity(count.min(logs.len()) + 1);
    for (id, &log) in logs.iter().enumerate() {
        let is_full = found.len() == count;
        let is_better = |other: Option<&(u32, f32)>| other.is_none_or(|(_, other)| log > *other);
        // A comparison with NaN is false, and so is this.
        if log > f32::NEG_INFINITY && (!is_full || is_better(found.last())) {
            let at = found.partition_point(|(_, other)| *other >= log);
            found.insert(at, (id as u32, log));
            found.truncate(count);
        }
    }
    found
}

/// Draws a token by its logarithm, with a number from 0 to below 1.
pub(super) fn drawn(
    logs: &[f32],
    temperature: f64,
    top_k: Option<usize>,
    top_p: Option<f64>,
    number: f64,
) -> Option<(u32, f32)> {
    let tokens = match top_k.filter(|count| *count < logs.len()) {
        Some(count) => largest(logs, count),
        None => (0..).zip(logs.iter().copied()).collect(),
    };
    let best = tokens
        .iter()
        .map(|(_, log)| *log)
        .fold(f32::NEG_INFINITY, f32::max);
    let weight = |(_, log): &(u32, f32)| ((f64::from(*log) - f64::from(best)) / temperature).exp();
    let weighed = tokens.into_iter().map(|token| (weight(&token), token));
    // Not those that are impossible, nor those that are no numbers.
    let mut weighed: Vec<_> = weighed.filter(|(weight, _)| *weight > 0.0).collect();
    if let Some(share) = top_p {
        keep_likeliest(&mut weighed, share);
    }
    let total: f64 = weighed.iter().map(|(weight, _)| weight).sum();
    let mut left = number * total;
    let at = weighed.iter().position(|(weight, _)| {
        left -= weight;
        left < 0.0
    });
    // Rounding may leave a little beyond the last.
    let at = at.or(weighed.len().checked_sub(1))?;
    Some(weighed[at].1)
}

/// Keeps the fewest likeliest that are together at least this share of all.
fn keep_likeliest<Token>(weighed: &mut Vec<(f64, Token)>, share: f64) {
    let total: f64 = weighed.iter().map(|(weight, _)| weight).sum();
    // All that are below this are together less than what is left out: sorting the others is
    // enough, and they are few of many.
    let least = (1.0 - share) * total / weighed.len().max(1) as f64;
    weighed.retain(|(weight, _)| *weight >= least);
    weighed.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut sum = 0.0;
    let reached = weighed.iter().position(|(weight, _)| {
        sum += weight;
        sum >= share * total
    });
    weighed.truncate(reached.map_or(weighed.len(), |at| at + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens that can be drawn, each with the share of numbers that draw it.
    fn shares(
        probabilities: &[f32],
        temperature: f64,
        top_k: Option<usize>,
        top_p: Option<f64>,
    ) -> Vec<f64> {
        let logs: Vec<f32> = probabilities.iter().map(|share| share.ln()).collect();
        let mut counts = vec![0; probabilities.len()];
        const DRAWS: usize = 10_000;
        for at in 0..DRAWS {
            let number = (at as f64 + 0.5) / DRAWS as f64;
            let (id, log) = drawn(&logs, temperature, top_k, top_p, number).expect("one is drawn");
            assert_eq!(log, logs[id as usize]);
            counts[id as usize] += 1;
        }
        counts
            .iter()
            .map(|count| *count as f64 / DRAWS as f64)
            .collect()
    }

    #[test]
    fn draws_are_as_likely_as_they_should_be() {
        let model = [0.1, 0.4, 0.0, 0.3, 0.2];
        let all = [0.1, 0.4, 0.0, 0.3, 0.2];
        // Squares, divided by their sum.
        let sharp = [1.0, 16.0, 0.0, 9.0, 4.0].map(|square| square / 30.0);
        let one = [0.0, 1.0, 0.0, 0.0, 0.0];
        let two = [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0, 0.0];
        let three = [0.0, 4.0 / 9.0, 0.0, 3.0 / 9.0, 2.0 / 9.0];
        for (temperature, top_k, top_p, want) in [
            (1.0, None, None, all),
            (0.5, None, None, sharp),
            (1.0, Some(2), None, two),
            (1.0, Some(9), None, all),
            (1.0, Some(1), None, one),
            // The top p are as few as reach it.
            (1.0, None, Some(0.01), one),
            (1.0, None, Some(0.39), one),
            (1.0, None, Some(0.41), two),
            (1.0, None, Some(0.69), two),
            (1.0, None, Some(0.71), three),
            (1.0, None, Some(1.0), all),
            // Of what the top k leave, 0.4 of 0.7 is more than half.
            (1.0, Some(2), Some(0.5), one),
            // And of what the temperature makes of them: 16 of 30.
            (0.5, None, Some(0.5), one),
        ] {
            let got = shares(&model, temperature, top_k, top_p);
            let is_near = |(got, want): (&f64, &f64)| (got - want).abs() < 3e-4;
            let case = (temperature, top_k, top_p);
            assert!(
                got.iter().zip(&want).all(is_near),
                "{case:?}: {got:?}, not {want:?}"
            );
        }
    }

    #[test]
    fn the_largest_come_in_order_and_equals_by_number() {
        let logs = [-3.0, -1.0, f32::NEG_INFINITY, -1.0, f32::NAN, -2.0];
        assert_eq!(largest(&logs, 3), [(1, -1.0), (3, -1.0), (5, -2.0)]);
        assert_eq!(largest(&logs, 9).len(), 4);
        assert_eq!(largest(&[f32::NAN], 1), []);
        assert_eq!(drawn(&[f32::NEG_INFINITY; 2], 1.0, None, None, 0.5), None);
        assert_eq!(drawn(&[f32::NAN; 2], 1.0, None, None, 0.5), None);
    }

    fn forbidden(text: &[u32], given: usize, config: &GenerateConfig) -> Vec<u32> {
        let mut draft = Draft::new(text[..given].to_vec());
        text[given..]
            .iter()
            .for_each(|token| draft.push(*token, 0.0));
        let mut logs = [0.0; 6];
        forbid(&mut logs, &draft, config);
        (0..6).filter(|id| logs[*id as usize] < 0.0).collect()
    }

    #[test]
    fn what_would_repeat_is_forbidden() {
        let none = |size| GenerateConfig::default().with_no_repeat_ngram(Some(size));
        assert_eq!(forbidden(&[1, 2, 3, 1], 1, &none(2)), [2]);
        assert_eq!(forbidden(&[1, 2, 1, 3, 1], 1, &none(2)), [2, 3]);
        assert_eq!(forbidden(&[1, 2, 1, 2], 4, &none(3)), [1]);
        assert!(forbidden(&[1, 2], 1, &none(3)).is_empty());
        assert!(forbidden(&[4], 1, &none(3)).is_empty());
        assert_eq!(forbidden(&[4, 1], 1, &none(1)), [1, 4]);
        assert_eq!(forbidden(&[4, 1], 1, &none(1).with_end(Some(4))), [1]);
        let long = GenerateConfig::default()
            .with_end(Some(5))
            .with_min_length(2);
        assert_eq!(forbidden(&[1, 2], 1, &long), [5]);
        assert!(forbidden(&[1, 2, 3], 1, &long).is_empty());
    }
}
