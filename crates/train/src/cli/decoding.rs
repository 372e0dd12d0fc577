//! How texts are written, where that is to be other than the config says.

use clap::{Args, ValueEnum};
use zoo_models::{GenerateConfig, Strategy};

use crate::{Result, TrainError};

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StrategyWord {
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
pub(super) struct Decoding {
    /// How tokens are chosen
    #[arg(long, value_enum, value_name = "WORD")]
    strategy: Option<StrategyWord>,

    /// Texts that a beam search follows; more than one is a beam search
    #[arg(long, value_name = "N")]
    beams: Option<usize>,

    /// Texts that come back of a beam search
    #[arg(long, value_name = "N")]
    n_best: Option<usize>,

    /// The exponent by which a beam search lets longer texts be less likely
    #[arg(long, value_name = "A")]
    length_penalty: Option<f64>,

    /// What a sample's logits are divided by: below 1 sharpens, above 1 flattens
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,

    /// A sample is drawn among the likeliest so many tokens alone
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,

    /// A sample is drawn among the fewest tokens that are together at least so likely
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,

    /// Tokens after which a text stops
    #[arg(long, value_name = "N")]
    max_length: Option<usize>,

    /// What is drawn: the same seed, the same text
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

impl Decoding {
    /// The config with these changes, for a vocabulary of this size.
    pub(super) fn apply(
        &self,
        config: GenerateConfig,
        vocabulary: usize,
    ) -> Result<GenerateConfig> {
        let strategy = self
            .strategy_over(config.strategy)
            .map_err(|why| TrainError::Refused(format!("{why}: leave one of them out")))?;
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

    /// The strategy with these changes, or which flags do not go together.
    fn strategy_over(&self, said: Strategy) -> Result<Strategy, String> {
        let given = |flags: [(&'static str, bool); 3]| {
            let given = flags.into_iter().find(|(_, is_given)| *is_given);
            given.map(|(flag, _)| flag)
        };
        let of_beam = given([
            ("--beams", self.beams.is_some()),
            ("--n-best", self.n_best.is_some()),
            ("--length-penalty", self.length_penalty.is_some()),
        ]);
        let of_sample = given([
            ("--temperature", self.temperature.is_some()),
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
        ]);
        use StrategyWord::{Beam, Greedy, Sample};
        let word = match (self.strategy, of_beam, of_sample) {
            (_, Some(one), Some(other)) => {
                return Err(format!(
                    "{one} is for a beam search and {other} for a sample"
                ));
            }
            (Some(Beam | Greedy), _, Some(flag)) => {
                return Err(format!("{flag} is for --strategy sample"));
            }
            (Some(Sample | Greedy), Some(flag), _) => {
                return Err(format!("{flag} is for --strategy beam"));
            }
            (None, Some(_), _) => Some(Beam),
            (None, _, Some(_)) => Some(Sample),
            (word, ..) => word,
        };
        let mut strategy = match (word, said) {
            (None, said)
            | (Some(Beam), said @ Strategy::Beam { .. })
            | (Some(Sample), said @ Strategy::Sample { .. }) => said,
            (Some(Greedy), _) => Strategy::Greedy,
            // As many as come back, where nobody says how many are followed.
            (Some(Beam), _) => Strategy::beam(self.n_best.unwrap_or(0).max(USUAL_BEAMS)),
            (Some(Sample), _) => Strategy::sample(1.0),
        };
        match &mut strategy {
            Strategy::Greedy => {}
            Strategy::Beam {
                beams,
                length_penalty,
                n_best,
            } => {
                *beams = self.beams.unwrap_or(*beams);
                *length_penalty = self.length_penalty.unwrap_or(*length_penalty);
                *n_best = self.n_best.unwrap_or(*n_best);
            }
            Strategy::Sample {
                temperature,
                top_k,
                top_p,
            } => {
                *temperature = self.temperature.unwrap_or(*temperature);
                *top_k = self.top_k.or(*top_k);
                *top_p = self.top_p.or(*top_p);
            }
        }
        Ok(strategy)
    }
}

/// Texts that a beam search follows if nobody says how many; the config's default, too.
const USUAL_BEAMS: usize = 4;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        decoding: Decoding,
    }

    #[test]
    fn flags_change_what_the_config_says() {
        let beam = |beams, length_penalty, n_best| Strategy::Beam {
            beams,
            length_penalty,
            n_best,
        };
        for (flags, said, expected) in [
            ("", Strategy::beam(3), Ok(Strategy::beam(3))),
            ("--beams 2", Strategy::Greedy, Ok(Strategy::beam(2))),
            ("--beams 7", beam(5, 0.6, 1), Ok(beam(7, 0.6, 1))),
            ("--n-best 6", Strategy::Greedy, Ok(beam(6, 0.0, 6))),
            (
                "--temperature 0.5",
                Strategy::Greedy,
                Ok(Strategy::sample(0.5)),
            ),
            (
                "--strategy greedy --beams 2",
                Strategy::Greedy,
                Err("--beams is for --strategy beam: leave one of them out"),
            ),
            (
                "--n-best 2 --top-p 0.5",
                Strategy::Greedy,
                Err(
                    "--n-best is for a beam search and --top-p for a sample: leave one of them out",
                ),
            ),
            (
                "--max-length 0",
                Strategy::Greedy,
                Err("decoding: max_length must be at least 1, got 0"),
            ),
        ] {
            let line = Line::parse_from(["zoo"].into_iter().chain(flags.split_whitespace()));
            let applied = line.decoding.apply(GenerateConfig::new(said), 10);
            let applied = applied.map(|config| config.strategy);
            let applied = applied.map_err(|error| error.to_string());
            assert_eq!(applied, expected.map_err(str::to_owned), "{flags}");
        }
    }
}
