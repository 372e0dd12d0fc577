//! The files that zoo writes to a run folder: a closed list of names. Only these are ever removed.

use std::path::{Path, PathBuf};

use serde_json::json;
use zoo_config::Metric;

use super::checkpoint::{CHECKPOINT_FILES, FOLDER, is_checkpoint_name};
use super::tensorboard::{self, is_event_file};
use crate::files;
use crate::{Result, TrainError};

/// Files at the top level of a run folder, in addition to a plot of each metric.
const RUN_FILES: [&str; 15] = [
    "config.toml",
    "run.json",
    "lock",
    "tokenizer.json",
    "tokenizer.source.json",
    "tokenizer.target.json",
    "labels.json",
    "log.txt",
    "metrics.jsonl",
    "train.csv",
    "valid.csv",
    "best.json",
    "result.json",
    "average.safetensors",
    "attention.html",
];

#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Files and folders written by zoo; the files of a folder come before the folder.
    own: Vec<PathBuf>,
    /// The first file or folder not written by zoo.
    pub(super) foreign: Option<PathBuf>,
}

impl Contents {
    pub(super) fn read_run(folder: &Path) -> Result<Self> {
        let mut contents = Self::default();
        contents.read(folder, Level::Run)?;
        Ok(contents)
    }

    /// Lists the folder of a checkpoint, including the folder itself.
    pub(super) fn read_checkpoint(folder: &Path) -> Result<Self> {
        let mut contents = Self::default();
        contents.read(folder, Level::Checkpoint)?;
        contents.own.push(folder.into());
        Ok(contents)
    }

    fn read(&mut self, folder: &Path, level: Level) -> Result<()> {
        let entries = std::fs::read_dir(folder).map_err(TrainError::file(folder))?;
        for entry in entries {
            let entry = entry.map_err(TrainError::file(folder))?;
            let path = entry.path();
            // Not followed: zoo creates no symlinks.
            let kind = entry.file_type().map_err(TrainError::file(&path))?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            match level.folder(name) {
                Some(below) if kind.is_dir() => self.read(&path, below)?,
                _ if kind.is_file() && level.has_file(name) => {}
                _ => {
                    self.foreign.get_or_insert(path);
                    continue;
                }
            }
            self.own.push(path);
        }
        Ok(())
    }

    /// An error if the folder contains anything that zoo did not write.
    pub(super) fn check(&self, folder: &Path) -> Result<()> {
        match &self.foreign {
            None => Ok(()),
            Some(file) => Err(TrainError::Refused(format!(
                "{} was not written by zoo, so {} is not removed\n  help: move it elsewhere, or \
                 start another run with --name OTHER",
                file.display(),
                folder.display()
            ))),
        }
    }

    /// Removes everything except the top-level files `keep`; an error if there is anything that zoo
    /// did not write.
    pub(super) fn remove(&self, folder: &Path, keep: &[&str]) -> Result<()> {
        self.check(folder)?;
        let keep: Vec<PathBuf> = keep.iter().map(|name| folder.join(name)).collect();
        for path in self.own.iter().filter(|path| !keep.contains(path)) {
            if path.symlink_metadata().is_ok_and(|it| it.is_dir()) {
                // Fails if a file was added in the meantime.
                files::remove_folder(path)?;
            } else {
                files::remove_file(path)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Level {
    Run,
    Checkpoints,
    Checkpoint,
    TensorBoard,
}

impl Level {
    /// The level of a subfolder, if zoo creates one of this name.
    fn folder(self, name: &str) -> Option<Self> {
        match self {
            Self::Run if name == FOLDER => Some(Self::Checkpoints),
            Self::Run if name == tensorboard::FOLDER => Some(Self::TensorBoard),
            Self::Checkpoints if is_checkpoint_name(name) => Some(Self::Checkpoint),
            _ => None,
        }
    }

    /// Whether zoo writes a file of this name, complete or incomplete.
    fn has_file(self, name: &str) -> bool {
        let name = files::without_suffix(name);
        let is_metric = |name: &str| serde_json::from_value::<Metric>(json!(name)).is_ok();
        match self {
            Self::Run => {
                RUN_FILES.contains(&name) || name.strip_suffix(".svg").is_some_and(is_metric)
            }
            Self::Checkpoints => false,
            Self::Checkpoint => CHECKPOINT_FILES.contains(&name),
            Self::TensorBoard => is_event_file(name),
        }
    }
}
