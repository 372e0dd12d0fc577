//! Decoding flags, which override the config's `[decoding]` section.

use clap::{Args, ValueEnum};
use serde::Deserialize;
use zoo_models::{GenerateConfig, Strategy};

use crate::{Result, TrainError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StrategyArg {
    /// Take the most likely token at every step
    Greedy,
    /// Search with several beams
    Beam,
    /// Sample at random
    Sample,
}

#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Decoding (default: the run's [decoding] section)")]
pub(crate) struct DecodingArgs {
    /// Decode with this strategy
    #[arg(long, value_enum, value_name = "STRATEGY")]
    strategy: Option<StrategyArg>,

    /// Search with N beams; implies --strategy beam
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    beams: Option<usize>,

    /// Return the N best hypotheses of beam search
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    n_best: Option<usize>,

    /// Use this length penalty exponent (0 = none)
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    length_penalty: Option<f64>,

    /// Divide logits by the temperature T before sampling; 0 decodes greedily
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f64>,

    /// Sample from the K most likely tokens
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<usize>,

    /// Sample from the smallest set of tokens with total probability P (nucleus sampling)
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f64>,

    /// Generate at most N tokens
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_length: Option<usize>,

    /// Sample with this random seed
    #[arg(long, value_name = "SEED", allow_negative_numbers = true)]
    seed: Option<u64>,
}

impl DecodingArgs {
    /// Applies the flags to a config, for a vocabulary of this size.
    pub(crate) fn apply(&self, config: &mut GenerateConfig, vocabulary: usize) -> Result<()> {
        let strategy = self.apply_strategy(config.strategy);
        config.strategy = strategy
            .map_err(|reason| TrainError::Refused(format!("{reason}\n  help: omit one of them")))?;
        config.max_length = self.max_length.unwrap_or(config.max_length);
        config.seed = self.seed.unwrap_or(config.seed);
        let is_greedy = match &mut config.strategy {
            // The limit of sampling. The other options are checked as with another temperature.
            Strategy::Sample { temperature, .. } if *temperature == 0.0 => {
                *temperature = 1.0;
                true
            }
            Strategy::Greedy | Strategy::Beam { .. } | Strategy::Sample { .. } => false,
        };
        let checked = config.check(vocabulary);
        checked.map_err(TrainError::model("decoding"))?;
        if is_greedy {
            config.strategy = Strategy::Greedy;
        }
        Ok(())
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
        let check = |flags: &str, default: Strategy, expected: Result<Strategy, &str>| {
            let line = Line::parse_from(["zoo"].into_iter().chain(flags.split_whitespace()));
            let mut config = GenerateConfig::new(default);
            let applied = line.decoding.apply(&mut config, 10);
            let applied = applied.map(|()| config.strategy);
            let applied = applied.map_err(|error| error.to_string());
            assert_eq!(applied, expected.map_err(str::to_owned), "{flags}");
        };
        let beam = |beams, length_penalty, n_best| Strategy::Beam {
            beams,
            length_penalty,
            n_best,
        };
        let greedy = Strategy::Greedy;
        check("", Strategy::beam(3), Ok(Strategy::beam(3)));
        check("--beams 2", greedy, Ok(Strategy::beam(2)));
        check("--beams 7", beam(5, 0.6, 1), Ok(beam(7, 0.6, 1)));
        check("--n-best 6", greedy, Ok(beam(6, 0.0, 6)));
        check("--temperature 0.5", greedy, Ok(Strategy::sample(0.5)));
        check("--temperature 0", Strategy::sample(0.8), Ok(greedy));
        check("--temperature 0 --top-k 5", greedy, Ok(greedy));
        let error = "--beams (beam search) cannot be used with --temperature (sampling)\n  help: \
                     omit one of them";
        check("--temperature 0 --beams 2", greedy, Err(error));
        let error = "decoding: temperature must be above 0, got -1";
        check("--temperature=-1", greedy, Err(error));
        check("--temperature -1", greedy, Err(error));
        let error = "decoding: top_p must be above 0 and at most 1, got 2";
        check("--temperature 0.5 --top-p 2", greedy, Err(error));
        check("--temperature 0 --top-p 2", greedy, Err(error));
        let error = "--beams requires --strategy beam\n  help: omit one of them";
        check("--strategy greedy --beams 2", greedy, Err(error));
        let error = "--n-best (beam search) cannot be used with --top-p (sampling)\n  help: omit one \
                     of them";
        check("--n-best 2 --top-p 0.5", greedy, Err(error));
        let error = "decoding: max_length must be at least 1, got 0";
        check("--max-length 0", greedy, Err(error));
    }
}
