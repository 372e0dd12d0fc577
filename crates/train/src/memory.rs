//! Whether the machine has the memory that a config needs, before anything is created.

use std::fs;

use zoo_config::{Config, DataSizes};
use zoo_spec::Backend;

use crate::TrainError;
use crate::task::{Ids, Task};

/// Checks what training takes at least. Before the data is read, that is the model without its
/// vocabulary, and examples that are generated.
///
/// # Errors
///
/// [`zoo_config::ConfigError::Memory`] with the estimate, the memory and the keys to lower.
pub(crate) fn check_training(config: &Config) -> Result<(), TrainError> {
    match memory_of(config) {
        Some(memory) => Ok(config.check_memory(DataSizes::default(), memory)?),
        None => Ok(()),
    }
}

/// The same, when the data is known.
///
/// # Errors
///
/// As [`check_training`].
pub(crate) fn check_training_on<T: Task>(
    config: &Config,
    task: &T,
    train: &T::Ids,
) -> Result<(), TrainError> {
    let Some(memory) = memory_of(config) else {
        return Ok(());
    };
    let mut sizes = vocabularies(task);
    (sizes.examples, sizes.shortest) = train.shortest();
    Ok(config.check_memory(sizes, memory)?)
}

/// Checks what a model takes that is used and not trained.
///
/// # Errors
///
/// As [`check_training`].
pub(crate) fn check_model<T: Task>(config: &Config, task: &T) -> Result<(), TrainError> {
    match memory_of(config) {
        Some(memory) => Ok(config.check_weights(vocabularies(task), memory)?),
        None => Ok(()),
    }
}

fn vocabularies<T: Task>(task: &T) -> DataSizes {
    let (vocabulary, target_vocabulary) = task.vocabularies();
    DataSizes {
        vocabulary,
        target_vocabulary,
        ..DataSizes::default()
    }
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
