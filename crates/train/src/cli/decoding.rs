//! How texts are written, where that is to be other than the config says.

use clap::{Args, ValueEnum};
use zoo_models::{GenerateConfig, Strategy};

use crate::TrainError;

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StrategyWord {
    /// The likeliest one each time
    Greedy,
    /// The best of several texts that are followed side by side
    Beam,
    /// Drawn
    Sample,
}

/// What is written otherwise than the config's `[decoding]` says.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "How texts are written (otherwise as the run's [decoding] says)")]
pub struct Decoding {
    /// How tokens are chosen
    #[arg(long, value_enum, value_name = "WORD")]
    pub strategy: Option<StrategyWord>,

    /// Texts that a beam search follows; more than one is a beam search
    #[arg(long, value_name = "N")]
    pub beams: Option<usize>,

    /// Texts that come back of a beam search
    #[arg(long, value_name = "N")]
    pub n_best: Option<usize>,

    /// The exponent by which a beam search lets longer texts be less likely
    #[arg(long, value_name = "A")]
    pub length_penalty: Option<f64>,

    /// What a sample's logits are divided by: below 1 sharpens, above 1 flattens
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,

    /// A sample is drawn among the likeliest so many tokens alone
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,

    /// A sample is drawn among the fewest tokens that are together at least so likely
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,

    /// Tokens after which a text stops
    #[arg(long, value_name = "N")]
    pub max_length: Option<usize>,

    /// What is drawn: the same seed, the same text
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
}

impl Decoding {
    /// The config with these changes, for so many tokens.
    ///
    /// # Errors
    ///
    /// [`TrainError::Refused`] for flags that do not go together, [`TrainError::Model`] for
    /// values that cannot be.
    pub fn apply(
        &self,
        config: GenerateConfig,
        vocabulary: usize,
    ) -> Result<GenerateConfig, TrainError> {
        let of_beam = [
            ("--beams", self.beams.is_some()),
            ("--n-best", self.n_best.is_some()),
            ("--length-penalty", self.length_penalty.is_some()),
        ];
        let of_sample = [
            ("--temperature", self.temperature.is_some()),
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
        ];
        let given = |flags: &[(&'static str, bool)]| {
            let given = flags.iter().find(|(_, is_given)| *is_given);
            given.map(|(flag, _)| *flag)
        };
        let word = match (self.strategy, given(&of_beam), given(&of_sample)) {
            (_, Some(one), Some(other)) => {
                return Err(TrainError::Refused(format!(
                    "{one} is for a beam search and {other} for a sample: leave one of them out"
                )));
            }
            (Some(StrategyWord::Beam), _, Some(flag))
            | (Some(StrategyWord::Greedy), _, Some(flag)) => {
                return Err(refused(flag, "--strategy sample"));
            }
            (Some(StrategyWord::Sample), Some(flag), _)
            | (Some(StrategyWord::Greedy), Some(flag), _) => {
                return Err(refused(flag, "--strategy beam"));
            }
            (Some(word), ..) => Some(word),
            (None, Some(_), _) => Some(StrategyWord::Beam),
            (None, _, Some(_)) => Some(StrategyWord::Sample),
            (None, None, None) => None,
        };
        let strategy = match (word, config.strategy) {
            (None, strategy) => strategy,
            (Some(StrategyWord::Greedy), _) => Strategy::Greedy,
            (Some(StrategyWord::Beam), said @ Strategy::Beam { .. }) => self.beam(said),
            // As many as come back, where nobody says how many are followed.
            (Some(StrategyWord::Beam), _) => {
                self.beam(Strategy::beam(self.n_best.unwrap_or(0).max(USUAL_BEAMS)))
            }
            (Some(StrategyWord::Sample), said @ Strategy::Sample { .. }) => self.sample(said),
            (Some(StrategyWord::Sample), _) => self.sample(Strategy::sample(1.0)),
        };
        let config = GenerateConfig {
            strategy,
            max_length: self.max_length.unwrap_or(config.max_length),
            seed: self.seed.unwrap_or(config.seed),
            ..config
        };
        config
            .check(vocabulary)
            .map_err(TrainError::model("decoding"))?;
        Ok(config)
    }

    fn beam(&self, said: Strategy) -> Strategy {
        match said {
            Strategy::Beam {
                beams,
                length_penalty,
                n_best,
            } => Strategy::Beam {
                beams: self.beams.unwrap_or(beams),
                length_penalty: self.length_penalty.unwrap_or(length_penalty),
                n_best: self.n_best.unwrap_or(n_best),
            },
            other => other,
        }
    }

    fn sample(&self, said: Strategy) -> Strategy {
        match said {
            Strategy::Sample {
                temperature,
                top_k,
                top_p,
            } => Strategy::Sample {
                temperature: self.temperature.unwrap_or(temperature),
                top_k: self.top_k.or(top_k),
                top_p: self.top_p.or(top_p),
            },
            other => other,
        }
    }
}

/// Texts that a beam search follows if nobody says how many; the config's default, too.
const USUAL_BEAMS: usize = 4;

fn refused(flag: &str, strategy: &str) -> TrainError {
    TrainError::Refused(format!("{flag} is for {strategy}: leave one of them out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(decoding: Decoding, to: Strategy) -> Result<Strategy, String> {
        let config = decoding.apply(GenerateConfig::new(to), 10);
        config
            .map(|config| config.strategy)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn flags_change_what_the_config_says() {
        let beams = |beams| Decoding {
            beams: Some(beams),
            ..Decoding::default()
        };
        assert_eq!(
            applied(Decoding::default(), Strategy::beam(3)),
            Ok(Strategy::beam(3))
        );
        assert_eq!(applied(beams(2), Strategy::Greedy), Ok(Strategy::beam(2)));
        let said = Strategy::Beam {
            beams: 5,
            length_penalty: 0.6,
            n_best: 1,
        };
        let expected = Strategy::Beam {
            beams: 7,
            length_penalty: 0.6,
            n_best: 1,
        };
        assert_eq!(applied(beams(7), said), Ok(expected));
        let best = Decoding {
            n_best: Some(6),
            ..Decoding::default()
        };
        let expected = Strategy::Beam {
            beams: 6,
            length_penalty: 0.0,
            n_best: 6,
        };
        assert_eq!(applied(best, Strategy::Greedy), Ok(expected));
        let cold = Decoding {
            temperature: Some(0.5),
            ..Decoding::default()
        };
        assert_eq!(applied(cold, Strategy::Greedy), Ok(Strategy::sample(0.5)));
    }

    #[test]
    fn flags_that_do_not_go_together_are_named() {
        let greedy = Decoding {
            strategy: Some(StrategyWord::Greedy),
            beams: Some(2),
            ..Decoding::default()
        };
        let said = applied(greedy, Strategy::Greedy).unwrap_err();
        assert_eq!(
            said,
            "--beams is for --strategy beam: leave one of them out"
        );
        let both = Decoding {
            n_best: Some(2),
            top_p: Some(0.5),
            ..Decoding::default()
        };
        let said = applied(both, Strategy::Greedy).unwrap_err();
        assert!(said.starts_with("--n-best is for a beam search and --top-p for a sample"));
        let none = Decoding {
            max_length: Some(0),
            ..Decoding::default()
        };
        let said = applied(none, Strategy::Greedy).unwrap_err();
        assert_eq!(said, "decoding: max_length must be at least 1, got 0");
    }
}
