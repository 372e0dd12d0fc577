//! Whether the machine has the memory that a config needs, before anything is created.

use std::fs;

use zoo_config::{Config, DataSizes};
use zoo_data::Encoded;
use zoo_spec::Backend;

use crate::{Examples, Tokenizers, TrainError};

/// Checks what training takes at least. Before the data is read, that is the model without its
/// vocabulary, and examples that are generated.
///
/// # Errors
///
/// [`zoo_config::ConfigError::Memory`] with the estimate, the memory and the keys to lower.
pub(crate) fn check_training(
    config: &Config,
    data: Option<(&Tokenizers, &Examples)>,
) -> Result<(), TrainError> {
    let Some(memory) = memory_of(config) else {
        return Ok(());
    };
    let mut sizes = DataSizes::default();
    if let Some((tokenizers, examples)) = data {
        sizes = vocabularies(tokenizers);
        (sizes.examples, sizes.shortest) = match examples {
            Examples::Pairs(parts) => shortest(&parts.train),
            Examples::Labelled(parts) => shortest(&parts.train),
            Examples::Documents(parts) => shortest(&parts.train),
            Examples::Plain(_) => (0, 0),
        };
    }
    Ok(config.check_memory(sizes, memory)?)
}

/// Checks what a model takes that is used and not trained.
///
/// # Errors
///
/// As [`check_training`].
pub(crate) fn check_model(config: &Config, tokenizers: &Tokenizers) -> Result<(), TrainError> {
    match memory_of(config) {
        Some(memory) => Ok(config.check_weights(vocabularies(tokenizers), memory)?),
        None => Ok(()),
    }
}

fn vocabularies(tokenizers: &Tokenizers) -> DataSizes {
    let (vocabulary, target_vocabulary) = tokenizers.sizes();
    DataSizes {
        vocabulary,
        target_vocabulary,
        ..DataSizes::default()
    }
}

/// How many examples there are, and the tokens of the shortest.
fn shortest<E: Encoded>(examples: &[E]) -> (usize, usize) {
    let tokens = examples.iter().map(|example| {
        let extent = example.extent();
        extent.rows * extent.width
    });
    (examples.len(), tokens.min().unwrap_or(0))
}

/// The memory that the config's backend computes in, if that is the machine's and known.
fn memory_of(config: &Config) -> Option<u64> {
    match config.backend.word.backend {
        Backend::Flex | Backend::Ndarray | Backend::TchCpu => host_memory(),
        // What a device has is for its driver to say.
        _ => None,
    }
}

/// The memory of the machine, or less where a container allows less.
fn host_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|limit| limit.trim().parse().ok());
    Some(limit.unwrap_or(u64::MAX).min(kibibytes * 1024))
}
