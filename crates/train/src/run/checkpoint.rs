//! Checkpoints: weights, optimizer state and progress of a run.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zoo_models::weights::Weights;

use super::contents::Contents;
use super::{BestCheckpoint, Progress, write_atomic};
use crate::{Fallback, Result, TrainError, files};

pub(super) const FOLDER: &str = "checkpoints";
pub(crate) const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.bpk";
const STATE: &str = "state.json";
const CHECKSUMS: &str = "checksums.json";
const BEST: &str = "best.json";

pub(super) const CHECKPOINT_FILES: [&str; 4] = [WEIGHTS, OPTIMIZER, STATE, CHECKSUMS];

/// Prefixes of complete and incomplete checkpoint folders.
const COMPLETE: &str = "step-";
const PARTIAL: &str = "partial-";

/// A checkpoint in memory.
#[derive(Debug)]
pub struct Checkpoint {
    /// The weights of the model.
    pub weights: Weights,
    /// The optimizer's state in Burn's format.
    pub(crate) optimizer: Vec<u8>,
    pub(crate) progress: Progress,
}

/// The checkpoints of a run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    run: PathBuf,
    folder: PathBuf,
}

impl Checkpoints {
    pub(crate) fn new(run: &Path) -> Self {
        Self {
            run: run.into(),
            folder: run.join(FOLDER),
        }
    }

    /// The steps of all checkpoints, in ascending order; an error if their folder cannot be read.
    pub fn steps(&self) -> Result<Vec<usize>> {
        self.steps_with_prefix(COMPLETE)
    }

    pub(crate) fn last(&self) -> Result<usize> {
        self.steps()?.pop().ok_or_else(|| TrainError::NoCheckpoint {
            folder: self.run.clone(),
        })
    }

    /// The steps of the folders with this prefix, in ascending order. Other files and folders are
    /// ignored.
    fn steps_with_prefix(&self, prefix: &str) -> Result<Vec<usize>> {
        let failed = |error: std::io::Error| {
            TrainError::Refused(format!(
                "{} cannot be read: {error}\n  help: check its permissions and its disk, then try \
                 again; do not start over: there may be checkpoints in it",
                self.folder.display()
            ))
        };
        // A broken symlink is not found either; it may point to a disk that is not mounted.
        let is_absent = || self.folder.symlink_metadata().is_err();
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound && is_absent() => return Ok(vec![]),
            entries => entries.map_err(failed)?,
        };
        let mut steps = vec![];
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if let Some(step) = parse_step(name.to_str().unwrap_or_default(), prefix)
                && entry.file_type().map_err(failed)?.is_dir()
            {
                steps.push(step);
            }
        }
        steps.sort_unstable();
        Ok(steps)
    }

    /// The folder of a checkpoint.
    pub fn checkpoint_dir(&self, step: usize) -> PathBuf {
        self.folder.join(format!("{COMPLETE}{step:08}"))
    }

    /// The best checkpoint, if there was a validation.
    pub fn best(&self) -> Result<Option<BestCheckpoint>> {
        let path = self.run.join(BEST);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(TrainError::file(&path))?,
        };
        let best: BestCheckpoint =
            serde_json::from_str(&text).map_err(TrainError::content(&path))?;
        Ok(self.steps()?.contains(&best.step).then_some(best))
    }

    /// The training state of a checkpoint, without its weights.
    pub(crate) fn progress(&self, step: usize) -> Result<Progress> {
        let path = self.checkpoint_dir(step).join(STATE);
        let text = std::fs::read_to_string(&path).map_err(TrainError::file(&path))?;
        serde_json::from_str(&text).map_err(TrainError::content(&path))
    }

    pub(crate) fn set_best(&self, best: &BestCheckpoint) -> Result<()> {
        let path = self.run.join(BEST);
        write_atomic(&path, to_json(best, &path)?.as_bytes())
    }

    /// Writes a checkpoint atomically.
    pub(crate) fn write(&self, checkpoint: &Checkpoint) -> Result<()> {
        let step = checkpoint.progress.step;
        let path = self.checkpoint_dir(step);
        let partial = self.partial_dir(step);
        let written = self.write_files(&partial, checkpoint).and_then(|()| {
            // An unrelated file, or a checkpoint of the same step. It is not removed before the new
            // checkpoint is in place.
            let aside = if path.symlink_metadata().is_ok() {
                Some(files::set_aside(&path)?)
            } else {
                None
            };
            let renamed = files::rename(&partial, &path);
            if renamed.is_err()
                && let Some(aside) = &aside
            {
                let _ = files::rename(aside, &path);
            }
            renamed?;
            files::sync_folder(&self.folder)?;
            match aside.filter(|aside| is_own(aside)) {
                Some(aside) => remove(&aside),
                None => Ok(()),
            }
        });
        written.map_err(|source| {
            // The disk may be full.
            if is_own(&partial) {
                let _ = remove(&partial);
            }
            let help = match self.steps().ok().and_then(|steps| steps.last().copied()) {
                Some(last) => format!(
                    "free disk space, then continue from the checkpoint of step {last} with --resume"
                ),
                None => "free disk space, then start over with --overwrite".to_owned(),
            };
            TrainError::Refused(format!(
                "the checkpoint of step {step} could not be written: {source}\n  help: {help}"
            ))
        })
    }

    fn partial_dir(&self, step: usize) -> PathBuf {
        self.folder.join(format!("{PARTIAL}{step:08}"))
    }

    fn write_files(&self, folder: &Path, checkpoint: &Checkpoint) -> Result<()> {
        free_path(folder)?;
        files::create_folder(&self.folder)?;
        files::create_folder(folder)?;
        files::write_weights(&folder.join(WEIGHTS), &checkpoint.weights)?;
        files::write_new(&folder.join(OPTIMIZER), &checkpoint.optimizer)?;
        let path = folder.join(STATE);
        let state = to_json(&checkpoint.progress, &path)?;
        files::write_new(&path, state.as_bytes())?;
        let path = folder.join(CHECKSUMS);
        let sums = to_json(&checksums(folder)?, &path)?;
        files::write_new(&path, sums.as_bytes())?;
        files::sync_folder(folder)
    }

    /// Reads a checkpoint. [`TrainError::Damaged`] has the nearest intact one and its flag.
    pub fn read(&self, step: usize) -> Result<Checkpoint> {
        self.read_or_suggest(step, |intact| format!("use --checkpoint {intact}"))
    }

    /// Reads a checkpoint. `usage` says how the command uses another one if it is damaged.
    pub(crate) fn read_or_suggest(
        &self,
        step: usize,
        usage: impl Fn(usize) -> String,
    ) -> Result<Checkpoint> {
        let steps = self.steps()?;
        if !steps.contains(&step) {
            let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
            let available = match steps.as_slice() {
                [] => "none".to_owned(),
                steps => steps.join(", "),
            };
            return Err(TrainError::Refused(format!(
                "{} has no checkpoint of step {step} (available: {available})",
                self.run.display()
            )));
        }
        self.read_files(step).map_err(|reason| TrainError::Damaged {
            folder: self.checkpoint_dir(step),
            reason,
            fallback: self.nearest_intact(step, usage),
        })
    }

    /// The intact checkpoint nearest to a step; of two, the later one.
    pub(crate) fn nearest_intact(
        &self,
        step: usize,
        usage: impl Fn(usize) -> String,
    ) -> Option<Fallback> {
        let mut others = self.steps().ok()?;
        others.retain(|other| *other != step);
        others.sort_by_key(|other| (other.abs_diff(step), std::cmp::Reverse(*other)));
        let step = others.into_iter().find(|other| self.is_intact(*other))?;
        let usage = usage(step);
        Some(Fallback { step, usage })
    }

    pub(crate) fn is_intact(&self, step: usize) -> bool {
        self.read_files(step).is_ok()
    }

    /// Reads a checkpoint, or says what is wrong with it.
    fn read_files(&self, step: usize) -> Result<Checkpoint, String> {
        let folder = self.checkpoint_dir(step);
        let read = |name: &str| {
            let bytes = std::fs::read(folder.join(name));
            bytes.map_err(|error| format!("{name}: {error}"))
        };
        let expected: BTreeMap<String, String> = serde_json::from_slice(&read(CHECKSUMS)?)
            .map_err(|error| format!("{CHECKSUMS}: {error}"))?;
        let found = checksums(&folder).map_err(|error| error.to_string())?;
        // All files are checked, even if the list of checksums has lost an entry.
        for (name, sum) in &found {
            if expected.get(name) != Some(sum) {
                return Err(format!("the checksum of {name} does not match"));
            }
        }
        let progress: Progress =
            serde_json::from_slice(&read(STATE)?).map_err(|error| format!("{STATE}: {error}"))?;
        let weights = Weights::read(folder.join(WEIGHTS))
            .map_err(|error| error.to_string())?
            .with_param_ids(&progress.parameters);
        // Earlier versions saved non-finite weights.
        if let Some(tensor) = weights.first_non_finite() {
            return Err(format!("{tensor} has non-finite values"));
        }
        Ok(Checkpoint {
            weights,
            optimizer: read(OPTIMIZER)?,
            progress,
        })
    }

    /// Removes all but the last `keep` checkpoints. The best one and those with files that zoo did
    /// not write are kept.
    pub(crate) fn prune(&self, keep: usize) -> Result<()> {
        let steps = self.steps()?;
        let best = self.best()?.map(|best| best.step);
        let num_old = steps.len().saturating_sub(keep);
        for step in steps[..num_old].iter().filter(|step| Some(**step) != best) {
            if is_own(&self.checkpoint_dir(*step)) {
                self.remove(*step)?;
            }
        }
        Ok(())
    }

    /// Removes the checkpoints after a step: a run that resumes from there writes them again.
    pub(crate) fn remove_after(&self, last: usize) -> Result<()> {
        let mut later = self.steps()?;
        later.retain(|step| *step > last);
        // Check all before removing any.
        for step in &later {
            let folder = self.checkpoint_dir(*step);
            Contents::read_checkpoint(&folder)?.check(&folder)?;
        }
        for step in later {
            self.remove(step)?;
        }
        // Left behind by a killed process.
        for step in self.steps_with_prefix(PARTIAL)? {
            let folder = self.partial_dir(step);
            if is_own(&folder) {
                remove(&folder)?;
            }
        }
        Ok(())
    }

    /// Removes a checkpoint atomically.
    fn remove(&self, step: usize) -> Result<()> {
        let partial = self.partial_dir(step);
        free_path(&partial)?;
        files::rename(&self.checkpoint_dir(step), &partial)?;
        remove(&partial)
    }
}

pub(super) fn is_checkpoint_name(name: &str) -> bool {
    [COMPLETE, PARTIAL]
        .iter()
        .any(|prefix| parse_step(name, prefix).is_some())
}

fn parse_step(name: &str, prefix: &str) -> Option<usize> {
    let step = name.strip_prefix(prefix)?.parse().ok()?;
    (name == format!("{prefix}{step:08}")).then_some(step)
}

/// Whether a path is a folder that contains only files of a checkpoint.
fn is_own(folder: &Path) -> bool {
    let is_folder = folder.symlink_metadata().is_ok_and(|it| it.is_dir());
    is_folder && Contents::read_checkpoint(folder).is_ok_and(|it| it.foreign.is_none())
}

/// Removes the folder of a checkpoint; an error if it contains other files.
fn remove(folder: &Path) -> Result<()> {
    Contents::read_checkpoint(folder)?.remove(folder, &[])
}

/// Frees a path: a folder that zoo wrote is removed, anything else is renamed.
fn free_path(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    if is_own(path) {
        return remove(path);
    }
    files::set_aside(path).map(drop)
}

fn to_json(value: &impl Serialize, path: &Path) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(TrainError::content(path))
}

fn checksums(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut sums = BTreeMap::new();
    for name in [WEIGHTS, OPTIMIZER, STATE] {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).map_err(TrainError::file(&path))?;
        sums.insert(name.to_owned(), format!("{:08x}", crc32fast::hash(&bytes)));
    }
    Ok(sums)
}
