//! Whether the machine has the memory that a config needs, before anything is created.

use std::fs;

use zoo_config::{Config, DataSizes};
use zoo_spec::Backend;

use crate::Result;
use crate::task::{Ids, Task};

/// Checks what training takes at least. Before the data is read, that is the model without its
/// vocabulary, and examples that are generated.
pub(crate) fn check_training(config: &Config, sizes: DataSizes) -> Result<()> {
    match memory_of(config) {
        Some(memory) => Ok(config.check_memory(sizes, memory)?),
        None => Ok(()),
    }
}

/// Checks what a model takes that is used and not trained.
pub(crate) fn check_model<T: Task>(config: &Config, task: &T) -> Result<()> {
    match memory_of(config) {
        Some(memory) => Ok(config.check_weights(vocabularies(task), memory)?),
        None => Ok(()),
    }
}

/// What is known of the data once it has been read.
pub(crate) fn sizes<T: Task>(task: &T, train: &T::Ids) -> DataSizes {
    let extents = train.extents();
    let tokens = extents.iter().map(|extent| extent.rows * extent.width);
    DataSizes {
        examples: extents.len(),
        shortest: tokens.min().unwrap_or(0),
        ..vocabularies(task)
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
    match is_cpu(config.backend.word.backend) {
        true => host_memory(),
        // What a device has is for its driver to say.
        false => None,
    }
}

pub(crate) fn is_cpu(backend: Backend) -> bool {
    matches!(backend, Backend::Flex | Backend::Ndarray | Backend::TchCpu)
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
