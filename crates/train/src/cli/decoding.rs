//! Decoding flags, which override the config's `[decoding]` section.

use clap::{Args, ValueEnum};
use zoo_models::{GenerateConfig, Strategy};

use crate::{Result, TrainError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StrategyArg {
    /// Most likely token at every step
    Greedy,
    /// Beam search
    Beam,
    /// Random sampling
    Sample,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Decoding (default: the run's [decoding] section)")]
pub(super) struct DecodingArgs {
    /// Decoding strategy
    #[arg(long, value_enum, value_name = "STRATEGY")]
    strategy: Option<StrategyArg>,

    /// Number of beams; implies --strategy beam
    #[arg(long, value_name = "N")]
    beams: Option<usize>,

    /// Number of hypotheses to return from beam search
    #[arg(long, value_name = "N")]
    n_best: Option<usize>,

    /// Length penalty exponent (0 = none)
    #[arg(long, value_name = "A")]
    length_penalty: Option<f64>,

    /// Sampling temperature: logits are divided by T
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,

    /// Sample from the K most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,

    /// Nucleus sampling: smallest set of tokens with total probability P
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,

    /// Maximum number of generated tokens
    #[arg(long, value_name = "N")]
    max_length: Option<usize>,

    /// Random seed for sampling
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

impl DecodingArgs {
    /// Applies the flags to a config, for a vocabulary of this size.
    pub(super) fn apply(
        &self,
        config: GenerateConfig,
        vocabulary: usize,
    ) -> Result<GenerateConfig> {
        let strategy = self
            .apply_strategy(config.strategy)
            .map_err(|reason| TrainError::Refused(format!("{reason}\n  help: omit one of them")))?;
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

    /// The strategy with the flags applied, or which flags exclude each other.
    fn apply_strategy(&self, default: Strategy) -> Result<Strategy, String> {
        let first_given = |flags: [(&'static str, bool); 3]| {
            let given = flags.into_iter().find(|(_, is_given)| *is_given);
            given.map(|(flag, _)| flag)
        };
        let beam_flag = first_given([
            ("--beams", self.beams.is_some()),
            ("--n-best", self.n_best.is_some()),
            ("--length-penalty", self.length_penalty.is_some()),
        ]);
        let sample_flag = first_given([
            ("--temperature", self.temperature.is_some()),
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
        ]);
        use StrategyArg::{Beam, Greedy, Sample};
        let strategy = match (self.strategy, beam_flag, sample_flag) {
            (_, Some(one), Some(other)) => {
                return Err(format!(
                    "{one} (beam search) cannot be used with {other} (sampling)"
                ));
            }
            (Some(Beam | Greedy), _, Some(flag)) => {
                return Err(format!("{flag} requires --strategy sample"));
            }
            (Some(Sample | Greedy), Some(flag), _) => {
                return Err(format!("{flag} requires --strategy beam"));
            }
            (None, Some(_), _) => Some(Beam),
            (None, _, Some(_)) => Some(Sample),
            (strategy, ..) => strategy,
        };
        let mut strategy = match (strategy, default) {
            (None, default)
            | (Some(Beam), default @ Strategy::Beam { .. })
            | (Some(Sample), default @ Strategy::Sample { .. }) => default,
            (Some(Greedy), _) => Strategy::Greedy,
            // At least as many beams as hypotheses to return.
            (Some(Beam), _) => Strategy::beam(self.n_best.unwrap_or(0).max(DEFAULT_BEAMS)),
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

/// Also the config's default.
const DEFAULT_BEAMS: usize = 4;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        decoding: DecodingArgs,
    }

    #[test]
    fn flags_override_the_config() {
        let beam = |beams, length_penalty, n_best| Strategy::Beam {
            beams,
            length_penalty,
            n_best,
        };
        for (flags, default, expected) in [
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
                Err("--beams requires --strategy beam\n  help: omit one of them"),
            ),
            (
                "--n-best 2 --top-p 0.5",
                Strategy::Greedy,
                Err(
                    "--n-best (beam search) cannot be used with --top-p (sampling)\n  help: omit one of \
                     them",
                ),
            ),
            (
                "--max-length 0",
                Strategy::Greedy,
                Err("decoding: max_length must be at least 1, got 0"),
            ),
        ] {
            let line = Line::parse_from(["zoo"].into_iter().chain(flags.split_whitespace()));
            let applied = line.decoding.apply(GenerateConfig::new(default), 10);
            let applied = applied.map(|config| config.strategy);
            let applied = applied.map_err(|error| error.to_string());
            assert_eq!(applied, expected.map_err(str::to_owned), "{flags}");
        }
    }
}
