//! Perplexity: `exp(Σ -ln p / tokens)`.

use std::fmt;

/// Sum of the token losses.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Perplexity {
    nats: f64,
    tokens: usize,
}

impl Perplexity {
    /// Adds a batch by its mean loss in nats and its number of tokens.
    pub fn add(&mut self, mean_loss: f64, tokens: usize) {
        // The mean loss of an empty batch may be NaN.
        if tokens > 0 {
            self.nats += mean_loss * tokens as f64;
            self.tokens += tokens;
        }
    }

    /// Mean loss per token in nats; `None` without tokens.
    pub fn loss(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.nats / self.tokens as f64)
    }

    /// Perplexity; infinite if a token had probability 0, `None` without tokens.
    pub fn value(&self) -> Option<f64> {
        self.loss().map(f64::exp)
    }
}

impl fmt::Display for Perplexity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(loss) = self.loss() else {
            return f.write_str("perplexity - (no tokens)");
        };
        let (value, bits) = (loss.exp(), loss / std::f64::consts::LN_2);
        write!(
            f,
            "perplexity {value:.3} (loss {loss:.4}, {bits:.4} bits per token, {} tokens)",
            self.tokens
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_weighted_by_tokens() {
        let mut perplexity = Perplexity::default();
        perplexity.add(f64::NAN, 0);
        assert_eq!(perplexity.value(), None);
        perplexity.add(1.0, 30);
        perplexity.add(3.0, 10);
        assert_eq!(perplexity.loss(), Some(1.5));
        let expected = "perplexity 4.482 (loss 1.5000, 2.1640 bits per token, 40 tokens)";
        assert_eq!(perplexity.to_string(), expected);
        // Probability 0.
        perplexity.add(f64::INFINITY, 1);
        assert_eq!(perplexity.value(), Some(f64::INFINITY));
    }
}
