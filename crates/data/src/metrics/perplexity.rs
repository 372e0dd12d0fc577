//! How surprised a language model is by what came: `exp(Σ -ln p / tokens)`.

use std::fmt;

use serde::Serialize;

/// The loss of tokens added up.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Perplexity {
    nats: f64,
    tokens: usize,
}

impl Perplexity {
    /// A batch by its mean loss, in nats, and the tokens that is the mean of.
    pub fn add(&mut self, mean_loss: f64, tokens: usize) {
        // The mean of none may be NaN, which would spoil the sum.
        if tokens > 0 {
            self.nats += mean_loss * tokens as f64;
            self.tokens += tokens;
        }
    }

    /// The mean loss of a token, in nats; `None` if there are none.
    pub fn loss(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.nats / self.tokens as f64)
    }

    /// Among how many equally likely tokens the model might as well have guessed; infinite
    /// when a token was held to be impossible. `None` if there are none.
    pub fn value(&self) -> Option<f64> {
        self.loss().map(f64::exp)
    }
}

impl fmt::Display for Perplexity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(loss) = self.loss() else {
            return f.write_str("perplexity of no tokens");
        };
        let (value, bits) = (loss.exp(), loss / std::f64::consts::LN_2);
        write!(
            f,
            "perplexity {value:.3} (loss {loss:.4}, {bits:.4} bits a token, {} tokens)",
            self.tokens
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_weigh_alike_whatever_their_batch() {
        let mut perplexity = Perplexity::default();
        perplexity.add(1.0, 30);
        perplexity.add(3.0, 10);
        assert_eq!(perplexity.loss(), Some(1.5));
        assert_eq!(
            perplexity.to_string(),
            "perplexity 4.482 (loss 1.5000, 2.1640 bits a token, 40 tokens)"
        );
    }

    #[test]
    fn nothing_has_none_and_the_impossible_an_infinite_one() {
        let mut perplexity = Perplexity::default();
        perplexity.add(f64::NAN, 0);
        assert_eq!(perplexity.value(), None);
        perplexity.add(f64::INFINITY, 1);
        assert_eq!(perplexity.value(), Some(f64::INFINITY));
    }
}
