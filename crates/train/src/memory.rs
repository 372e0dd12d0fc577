//! Checks that the machine has enough memory for a config, before anything is created.

use std::fs;

use zoo_config::{Config, DataSizes};
use zoo_data::Tokenizer;
use zoo_spec::Backend;

use crate::Result;
use crate::task::{Task, TokenData};

/// Checks the minimum memory of training. Before the data is read, that is the model without its
/// embeddings, and generated examples.
pub(crate) fn check_training(config: &Config, sizes: DataSizes) -> Result<()> {
    match backend_memory(config) {
        Some(memory) => Ok(config.check_memory(sizes, memory)?),
        None => Ok(()),
    }
}

pub(crate) fn check_model<T: Task>(config: &Config, task: &T) -> Result<()> {
    match backend_memory(config) {
        Some(memory) => Ok(config.check_weights(vocabularies(task), memory)?),
        None => Ok(()),
    }
}

pub(crate) fn sizes<T: Task>(task: &T, train: &T::TokenData) -> DataSizes {
    let extents = train.extents();
    let tokens = extents.iter().map(|extent| extent.rows * extent.width);
    DataSizes {
        examples: extents.len(),
        shortest: tokens.min().unwrap_or(0),
        ..vocabularies(task)
    }
}

fn vocabularies<T: Task>(task: &T) -> DataSizes {
    let (tokenizer, target) = task.tokenizers();
    DataSizes {
        vocabulary: tokenizer.vocab_size(),
        target_vocabulary: target.map(Tokenizer::vocab_size),
        ..DataSizes::default()
    }
}

/// The memory of a CPU backend, if it is known. Device memory is left to the driver.
fn backend_memory(config: &Config) -> Option<u64> {
    if !is_cpu(config.backend.name.backend) {
        return None;
    }
    host_memory()
}

pub(crate) fn is_cpu(backend: Backend) -> bool {
    matches!(backend, Backend::Flex | Backend::Ndarray | Backend::TchCpu)
}

fn host_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|limit| limit.trim().parse().ok());
    Some(limit.unwrap_or(u64::MAX).min(kibibytes * 1024))
}
