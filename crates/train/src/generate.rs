//! How texts are written.

use zoo_config::{Config, Strategy as Said};
use zoo_data::{BEGIN, END, PAD, UNKNOWN};
use zoo_models::{GenerateConfig, Strategy};

use crate::{Result, TrainError};

/// How texts are written, as the config's `[decoding]` says.
pub(crate) fn generate_config(config: &Config) -> Result<GenerateConfig> {
    let (Some(section), Some(strategy)) = (&config.decoding, config.strategy()) else {
        return decoding(None).cloned();
    };
    // Running text has no end in it that a model could learn. No text is better for saying
    // that a word is not known.
    let (end, never) = match config.model {
        zoo_config::Model::Gpt(_) => (None, vec![PAD, UNKNOWN, BEGIN, END]),
        _ => (Some(END), vec![PAD, UNKNOWN, BEGIN]),
    };
    let config = GenerateConfig::new(strategy_of(&strategy))
        .with_end(end)
        .with_never(never)
        .with_min_length(section.min_length)
        .with_max_length(section.max_length)
        .with_no_repeat_ngram(section.no_repeat_ngram)
        .with_seed(section.seed);
    Ok(config)
}

/// What texts are written by; an error if the model writes none.
pub(crate) fn decoding(config: Option<&GenerateConfig>) -> Result<&GenerateConfig> {
    config.ok_or_else(|| {
        TrainError::Refused(
            "decoding: the config has no [decoding]: its model writes no text".to_owned(),
        )
    })
}

fn strategy_of(said: &Said) -> Strategy {
    match said {
        Said::Greedy => Strategy::Greedy,
        Said::Beam(beam) => Strategy::Beam {
            beams: beam.beams,
            length_penalty: beam.length_penalty,
            n_best: beam.n_best,
        },
        Said::Sample(sample) => Strategy::Sample {
            temperature: sample.temperature,
            top_k: sample.top_k,
            top_p: sample.top_p,
        },
    }
}
