//! What zoo writes into a run folder: a closed list of names. Whatever removes files asks it first,
//! so that nothing else is ever removed.

use std::path::{Path, PathBuf};

use serde_json::json;
use zoo_config::Metric;

use super::checkpoint::{CHECKPOINT_FILES, FOLDER, is_checkpoint_name};
use crate::files;
use crate::{Result, TrainError};

/// Files at the top of a run folder, beside a curve for each metric.
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

/// A folder, as it was when it was read.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// What zoo wrote; what is in a folder comes before the folder.
    own: Vec<Own>,
    /// The first that zoo did not write.
    pub(super) foreign: Option<PathBuf>,
}

#[derive(Debug)]
struct Own {
    path: PathBuf,
    is_folder: bool,
}

impl Contents {
    pub(super) fn of_run(folder: &Path) -> Result<Self> {
        let mut contents = Self::default();
        contents.read(folder, Level::Run)?;
        Ok(contents)
    }

    /// Those of the folder of a checkpoint, with the folder itself.
    pub(super) fn of_checkpoint(folder: &Path) -> Result<Self> {
        let mut contents = Self::default();
        contents.read(folder, Level::Checkpoint)?;
        contents.own.push(Own {
            path: folder.into(),
            is_folder: true,
        });
        Ok(contents)
    }

    fn read(&mut self, folder: &Path, level: Level) -> Result<()> {
        let entries = std::fs::read_dir(folder).map_err(TrainError::file(folder))?;
        for entry in entries {
            let entry = entry.map_err(TrainError::file(folder))?;
            let path = entry.path();
            // Of a symlink itself: zoo creates none.
            let kind = entry.file_type().map_err(TrainError::file(&path))?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let is_folder = kind.is_dir();
            match level.folder(name) {
                Some(below) if is_folder => self.read(&path, below)?,
                _ if kind.is_file() && level.has_file(name) => {}
                _ => {
                    self.foreign.get_or_insert(path);
                    continue;
                }
            }
            self.own.push(Own { path, is_folder });
        }
        Ok(())
    }

    /// Refuses if there is anything in the folder that zoo did not write.
    pub(super) fn check(&self, folder: &Path) -> Result<()> {
        match &self.foreign {
            None => Ok(()),
            Some(file) => Err(TrainError::Refused(format!(
                "{} was not written by zoo, so {} is not removed\n  do: move it elsewhere first, or \
                 begin a run beside it with --set run.name=OTHER",
                file.display(),
                folder.display()
            ))),
        }
    }

    /// Removes what zoo wrote, but for files of these names at the top; refuses if there is
    /// anything else.
    pub(super) fn remove(&self, folder: &Path, but: &[&str]) -> Result<()> {
        self.check(folder)?;
        let spared: Vec<PathBuf> = but.iter().map(|name| folder.join(name)).collect();
        for Own { path, is_folder } in self.own.iter().filter(|own| !spared.contains(&own.path)) {
            match is_folder {
                // Fails if something was added since.
                true => files::remove_folder(path)?,
                false => files::remove_file(path)?,
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
}

impl Level {
    /// The level of a folder of this name, if zoo creates one here.
    fn folder(self, name: &str) -> Option<Self> {
        match self {
            Self::Run if name == FOLDER => Some(Self::Checkpoints),
            Self::Checkpoints if is_checkpoint_name(name) => Some(Self::Checkpoint),
            _ => None,
        }
    }

    /// Whether zoo writes a file of this name here, complete or not.
    fn has_file(self, name: &str) -> bool {
        let name = files::without_suffix(name);
        let is_metric = |word: &str| serde_json::from_value::<Metric>(json!(word)).is_ok();
        match self {
            Self::Run => {
                RUN_FILES.contains(&name) || name.strip_suffix(".svg").is_some_and(is_metric)
            }
            Self::Checkpoints => false,
            Self::Checkpoint => CHECKPOINT_FILES.contains(&name),
        }
    }
}
