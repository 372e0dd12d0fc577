//! Checkpoints: all that it takes to go on as if nothing had happened.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use zoo_models::weights::{Weights, WeightsError};

use super::contents::Contents;
use super::{Best, Progress, write_atomic};
use crate::error::Instead;
use crate::{Result, TrainError, files};

pub(super) const FOLDER: &str = "checkpoints";
pub(crate) const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.bpk";
const STATE: &str = "state.json";
const CHECKSUMS: &str = "checksums.json";
const BEST: &str = "best.json";

pub(super) const CHECKPOINT_FILES: [&str; 4] = [WEIGHTS, OPTIMIZER, STATE, CHECKSUMS];

/// The start of the name of a checkpoint that is complete, and of one that is not.
const COMPLETE: &str = "step-";
const PARTIAL: &str = "partial-";

/// A checkpoint that was read and is whole.
#[derive(Debug)]
pub struct Checkpoint {
    /// The weights of the model.
    pub weights: Weights,
    /// The optimizer's memory, as Burn writes it.
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
    pub(crate) fn of(run: &Path) -> Self {
        Self {
            run: run.into(),
            folder: run.join(FOLDER),
        }
    }

    /// The steps that there are checkpoints of, rising.
    ///
    /// # Errors
    ///
    /// [`TrainError::Refused`] if there is a folder of checkpoints that cannot be read.
    pub fn steps(&self) -> Result<Vec<usize>> {
        self.folders(COMPLETE)
    }

    /// The newest one's step.
    pub(crate) fn last(&self) -> Result<usize> {
        let steps = self.steps()?;
        steps
            .last()
            .copied()
            .ok_or_else(|| TrainError::NoCheckpoint {
                folder: self.run.clone(),
            })
    }

    /// The steps in the names of folders that start so, rising. Stray files and folders are left
    /// out.
    fn folders(&self, start: &str) -> Result<Vec<usize>> {
        let failed = |error: std::io::Error| {
            TrainError::Refused(format!(
                "{} cannot be read: {error}\n  do: check its permissions, and whether its disk is \
                 mounted and without errors, then try again; do not begin anew: there may be \
                 checkpoints in it",
                self.folder.display()
            ))
        };
        // A symlink that leads nowhere is not found either, and may be a disk that is not mounted.
        let is_absent = || self.folder.symlink_metadata().is_err();
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound && is_absent() => return Ok(vec![]),
            entries => entries.map_err(failed)?,
        };
        let mut steps = vec![];
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if let Some(step) = step_of(name.to_str().unwrap_or_default(), start)
                && entry.file_type().map_err(failed)?.is_dir()
            {
                steps.push(step);
            }
        }
        steps.sort_unstable();
        Ok(steps)
    }

    /// Where a checkpoint is.
    pub fn folder_of(&self, step: usize) -> PathBuf {
        self.folder.join(format!("{COMPLETE}{step:08}"))
    }

    /// Which one is best, if that is known.
    ///
    /// # Errors
    ///
    /// [`TrainError::File`], [`TrainError::Content`] or [`TrainError::Refused`] if it cannot be
    /// read.
    pub fn best(&self) -> Result<Option<Best>> {
        let path = self.run.join(BEST);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(TrainError::file(&path))?,
        };
        let best: Best = serde_json::from_str(&text).map_err(TrainError::content(&path))?;
        Ok(self.steps()?.contains(&best.step).then_some(best))
    }

    pub(crate) fn set_best(&self, best: &Best) -> Result<()> {
        let path = self.run.join(BEST);
        let text = serde_json::to_string_pretty(best).map_err(TrainError::content(&path))?;
        write_atomic(&path, text.as_bytes())
    }

    /// Writes a checkpoint: all of it, or nothing.
    pub(crate) fn write(&self, checkpoint: &Checkpoint) -> Result<()> {
        let step = checkpoint.progress.step;
        let place = self.folder_of(step);
        let beside = self.partial(step);
        let written = self.write_into(&beside, checkpoint).and_then(|()| {
            // A stray file, or a checkpoint of the same step. Nothing that exists is given up
            // before the new one has its name.
            let aside = match place.symlink_metadata().is_ok() {
                true => Some(files::set_aside(&place)?),
                false => None,
            };
            let renamed = files::rename(&beside, &place);
            if renamed.is_err()
                && let Some(aside) = &aside
            {
                let _ = files::rename(aside, &place);
            }
            renamed?;
            files::sync_folder(&self.folder)?;
            match aside.filter(|aside| is_own(aside)) {
                Some(aside) => remove(&aside),
                None => Ok(()),
            }
        });
        written.map_err(|source| {
            // It takes up space, which may be what is missing.
            if is_own(&beside) {
                let _ = remove(&beside);
            }
            let advice = match self.steps().ok().and_then(|steps| steps.last().copied()) {
                Some(older) => format!(
                    "The checkpoint of step {older} is kept. Make room, then go on with --resume"
                ),
                None => "There is no checkpoint yet. Make room, then begin anew with --overwrite"
                    .to_owned(),
            };
            TrainError::Refused(format!(
                "the checkpoint of step {step} could not be written: {source}. {advice}"
            ))
        })
    }

    /// Where a checkpoint is that is not complete, or not any more.
    fn partial(&self, step: usize) -> PathBuf {
        self.folder.join(format!("{PARTIAL}{step:08}"))
    }

    fn write_into(&self, folder: &Path, checkpoint: &Checkpoint) -> Result<()> {
        make_free(folder)?;
        files::create_folder(&self.folder)?;
        files::create_folder(folder)?;
        files::write_weights(&folder.join(WEIGHTS), &checkpoint.weights)?;
        files::write_new(&folder.join(OPTIMIZER), &checkpoint.optimizer)?;
        let path = folder.join(STATE);
        let state = serde_json::to_string_pretty(&checkpoint.progress);
        files::write_new(&path, state.map_err(TrainError::content(&path))?.as_bytes())?;
        let sums = checksums(folder)?;
        let path = folder.join(CHECKSUMS);
        let text = serde_json::to_string_pretty(&sums).map_err(TrainError::content(&path))?;
        files::write_new(&path, text.as_bytes())?;
        files::sync_folder(folder)
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    ///
    /// [`TrainError::Refused`] if there is none, or [`TrainError::Damaged`] with the nearest one
    /// that is whole, and the flag that takes it where a run is used.
    pub fn read(&self, step: usize) -> Result<Checkpoint> {
        self.read_or(step, |whole| format!("--checkpoint {whole} takes it"))
    }

    /// The same, where another command says how the nearest whole one is taken.
    pub(crate) fn read_or(
        &self,
        step: usize,
        takes: impl Fn(usize) -> String,
    ) -> Result<Checkpoint> {
        let steps = self.steps()?;
        if !steps.contains(&step) {
            let there: Vec<String> = steps.iter().map(ToString::to_string).collect();
            let there = match there.is_empty() {
                true => "no step".to_owned(),
                false => there.join(", "),
            };
            return Err(TrainError::Refused(format!(
                "{} has no checkpoint of step {step}; it has those of {there}",
                self.run.display()
            )));
        }
        self.read_from(step).map_err(|why| TrainError::Damaged {
            folder: self.folder_of(step),
            why,
            instead: self.nearest(step, takes),
        })
    }

    /// What can be taken in place of a step's checkpoint, and how.
    pub(crate) fn nearest(&self, step: usize, takes: impl Fn(usize) -> String) -> Option<Instead> {
        let mut others = self.steps().ok()?;
        others.retain(|other| *other != step);
        // The nearest; the later of two.
        others.sort_by_key(|other| (other.abs_diff(step), std::cmp::Reverse(*other)));
        let whole = others.into_iter().find(|other| self.is_whole(*other))?;
        let takes = takes(whole);
        Some(Instead { whole, takes })
    }

    /// Whether a checkpoint is as it was written.
    pub(crate) fn is_whole(&self, step: usize) -> bool {
        self.read_from(step).is_ok()
    }

    /// A checkpoint, or what is wrong with it.
    fn read_from(&self, step: usize) -> Result<Checkpoint, String> {
        let folder = self.folder_of(step);
        let text = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name));
            text.map_err(|error| format!("{name}: {error}"))
        };
        let expected: BTreeMap<String, String> = serde_json::from_str(&text(CHECKSUMS)?)
            .map_err(|error| format!("{CHECKSUMS}: {error}"))?;
        let found = checksums(&folder).map_err(|error| error.to_string())?;
        // Those of all files that there are: a list that lost some says nothing of them.
        for (name, sum) in &found {
            if expected.get(name) != Some(sum) {
                return Err(format!(
                    "{name} is not as it was written: its checksum differs"
                ));
            }
        }
        let progress: Progress =
            serde_json::from_str(&text(STATE)?).map_err(|error| format!("{STATE}: {error}"))?;
        let weights = Weights::read(folder.join(WEIGHTS))
            .map_err(|error: WeightsError| error.to_string())?
            .with_param_ids(&progress.parameters);
        // Earlier versions saved them.
        if let Some(tensor) = weights.first_non_finite() {
            return Err(format!("{tensor} has weights that are not finite"));
        }
        let optimizer = std::fs::read(folder.join(OPTIMIZER))
            .map_err(|error| format!("{OPTIMIZER}: {error}"))?;
        Ok(Checkpoint {
            weights,
            optimizer,
            progress,
        })
    }

    /// Removes what is older than the last so many, but for the best, and for a checkpoint with
    /// files in it that zoo did not write.
    pub(crate) fn prune(&self, keep: usize) -> Result<()> {
        let steps = self.steps()?;
        let best = self.best()?.map(|best| best.step);
        let older = steps.len().saturating_sub(keep);
        for step in steps[..older].iter().filter(|step| Some(**step) != best) {
            if is_own(&self.folder_of(*step)) {
                self.remove(*step)?;
            }
        }
        Ok(())
    }

    /// Removes those after a step: a run that resumes from there writes them again.
    pub(crate) fn forget_after(&self, last: usize) -> Result<()> {
        let mut later = self.steps()?;
        later.retain(|step| *step > last);
        // All of them or none.
        for step in &later {
            let folder = self.folder_of(*step);
            Contents::of_checkpoint(&folder)?.check(&folder)?;
        }
        for step in later {
            self.remove(step)?;
        }
        // What a process was writing or removing when it was killed.
        for step in self.folders(PARTIAL)? {
            let folder = self.partial(step);
            if is_own(&folder) {
                remove(&folder)?;
            }
        }
        Ok(())
    }

    /// Removes a checkpoint. Under its own name it is complete or absent, at any time.
    fn remove(&self, step: usize) -> Result<()> {
        let partial = self.partial(step);
        make_free(&partial)?;
        files::rename(&self.folder_of(step), &partial)?;
        remove(&partial)
    }
}

/// Whether a folder of checkpoints has folders of this name.
pub(super) fn is_checkpoint_name(name: &str) -> bool {
    [COMPLETE, PARTIAL]
        .iter()
        .any(|start| step_of(name, start).is_some())
}

/// The step in a name that is written as zoo writes it.
fn step_of(name: &str, start: &str) -> Option<usize> {
    let step = name.strip_prefix(start)?.parse().ok()?;
    (name == format!("{start}{step:08}")).then_some(step)
}

/// Whether a path is a folder in which there are only files of a checkpoint.
fn is_own(folder: &Path) -> bool {
    let is_folder = folder.symlink_metadata().is_ok_and(|it| it.is_dir());
    is_folder && Contents::of_checkpoint(folder).is_ok_and(|it| it.foreign.is_none())
}

/// Removes the folder of a checkpoint, or refuses if there is anything else in it.
fn remove(folder: &Path) -> Result<()> {
    Contents::of_checkpoint(folder)?.remove(folder, &[])
}

/// Makes sure that nothing has a name: what zoo wrote is removed, what it did not is renamed.
fn make_free(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    match is_own(path) {
        true => remove(path),
        false => files::set_aside(path).map(drop),
    }
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
