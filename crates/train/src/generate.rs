//! Decoding options from the config.

use zoo_config::{Config, Strategy as StrategyConfig};
use zoo_data::{BOS, EOS, PAD, UNK};
use zoo_models::{GenerateConfig, Strategy};

use crate::{Result, TrainError};

pub(crate) fn generate_config(config: &Config) -> Result<GenerateConfig> {
    let (Some(section), Some(strategy)) = (&config.decoding, config.strategy()) else {
        return Err(no_decoding());
    };
    // Running text has no end token to learn, and generating <unk> is never useful.
    let (end, never) = match config.model {
        zoo_config::Model::Gpt(_) => (None, vec![PAD, UNK, BOS, EOS]),
        _ => (Some(EOS), vec![PAD, UNK, BOS]),
    };
    let config = GenerateConfig::new(to_strategy(&strategy))
        .with_end(end)
        .with_never(never)
        .with_min_length(section.min_length)
        .with_max_length(section.max_length)
        .with_no_repeat_ngram(section.no_repeat_ngram)
        .with_seed(section.seed);
    Ok(config)
}

pub(crate) fn no_decoding() -> TrainError {
    let reason = "the config has no [decoding] section: its model does not generate text";
    TrainError::Refused(reason.to_owned())
}

fn to_strategy(config: &StrategyConfig) -> Strategy {
    match config {
        StrategyConfig::Greedy => Strategy::Greedy,
        StrategyConfig::Beam(beam) => Strategy::Beam {
            beams: beam.beams,
            length_penalty: beam.length_penalty,
            n_best: beam.n_best,
        },
        StrategyConfig::Sample(sample) => Strategy::Sample {
            temperature: sample.temperature,
            top_k: sample.top_k,
            top_p: sample.top_p,
        },
    }
}
