//! Checkpoints: all that it takes to go on as if nothing had happened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zoo_models::weights::{Weights, WeightsError};

use super::{Best, Progress, sync_folder, write_atomic};
use crate::TrainError;
use crate::error::Instead;

const FOLDER: &str = "checkpoints";
pub(crate) const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.bpk";
const STATE: &str = "state.json";
const CHECKSUMS: &str = "checksums.json";
const BEST: &str = "best.json";

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
    /// Those in the folder of a run.
    pub(crate) fn of(run: &Path) -> Self {
        Self {
            run: run.into(),
            folder: run.join(FOLDER),
        }
    }

    /// The steps that there are checkpoints of, rising.
    pub fn steps(&self) -> Vec<usize> {
        let entries = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten();
        let mut steps: Vec<usize> = entries
            .filter_map(|entry| {
                let name = entry.file_name();
                name.to_str()?.strip_prefix("step-")?.parse().ok()
            })
            .collect();
        steps.sort_unstable();
        steps
    }

    /// Where a checkpoint is.
    pub fn folder_of(&self, step: usize) -> PathBuf {
        self.folder.join(format!("step-{step:08}"))
    }

    /// Which one is best, if that is known.
    pub fn best(&self) -> Option<Best> {
        let text = std::fs::read_to_string(self.run.join(BEST)).ok()?;
        let best: Best = serde_json::from_str(&text).ok()?;
        self.steps().contains(&best.step).then_some(best)
    }

    /// Notes which one is best.
    pub(crate) fn set_best(&self, best: &Best) -> Result<(), TrainError> {
        let path = self.run.join(BEST);
        let text = serde_json::to_string_pretty(best).map_err(TrainError::content(&path))?;
        write_atomic(&path, text.as_bytes())
    }

    /// Writes a checkpoint: all of it, or nothing.
    pub(crate) fn write(&self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let step = checkpoint.progress.step;
        let place = self.folder_of(step);
        let beside = self.folder.join(format!("partial-{step:08}"));
        let written = self.write_into(&beside, checkpoint).and_then(|()| {
            // One of the same step is there when a run is gone on with from before it.
            if place.exists() {
                std::fs::remove_dir_all(&place).map_err(TrainError::file(&place))?;
            }
            std::fs::rename(&beside, &place).map_err(TrainError::file(&place))?;
            sync_folder(&self.folder)
        });
        written.map_err(|source| {
            // What is half there takes the room that may be what is missing.
            let _ = std::fs::remove_dir_all(&beside);
            TrainError::CheckpointNotWritten {
                step,
                source: Box::new(source),
                older: self.steps().last().copied(),
            }
        })
    }

    fn write_into(&self, folder: &Path, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(TrainError::file(folder))?;
        }
        std::fs::create_dir_all(folder).map_err(TrainError::file(folder))?;
        checkpoint.weights.write(folder.join(WEIGHTS))?;
        let weights = folder.join(WEIGHTS);
        std::fs::File::open(&weights)
            .and_then(|file| file.sync_all())
            .map_err(TrainError::file(&weights))?;
        write_atomic(&folder.join(OPTIMIZER), &checkpoint.optimizer)?;
        let path = folder.join(STATE);
        let state = serde_json::to_string_pretty(&checkpoint.progress);
        write_atomic(&path, state.map_err(TrainError::content(&path))?.as_bytes())?;
        let sums = checksums(folder)?;
        let path = folder.join(CHECKSUMS);
        let text = serde_json::to_string_pretty(&sums).map_err(TrainError::content(&path))?;
        write_atomic(&path, text.as_bytes())?;
        sync_folder(folder)
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    ///
    /// [`TrainError::NoSuchCheckpoint`], or [`TrainError::Damaged`] with the nearest one that is
    /// whole, and the flag that takes it where a run is used.
    pub fn read(&self, step: usize) -> Result<Checkpoint, TrainError> {
        self.read_or(step, |whole| format!("--checkpoint {whole} takes it"))
    }

    /// The same, where another command says how the nearest whole one is taken.
    pub(crate) fn read_or(
        &self,
        step: usize,
        takes: impl Fn(usize) -> String,
    ) -> Result<Checkpoint, TrainError> {
        let steps = self.steps();
        if !steps.contains(&step) {
            let there: Vec<String> = steps.iter().map(ToString::to_string).collect();
            return Err(TrainError::NoSuchCheckpoint {
                folder: self.run.clone(),
                step,
                there: match there.is_empty() {
                    true => "no step".to_owned(),
                    false => there.join(", "),
                },
            });
        }
        self.read_from(step).map_err(|why| TrainError::Damaged {
            folder: self.folder_of(step),
            why,
            instead: self.nearest(step, takes),
        })
    }

    /// What can be taken in place of a step's checkpoint, and how.
    pub(crate) fn nearest(&self, step: usize, takes: impl Fn(usize) -> String) -> Option<Instead> {
        self.nearest_whole(step).map(|whole| Instead {
            whole,
            takes: takes(whole),
        })
    }

    /// The step nearest to this one whose checkpoint is whole; the later of two.
    fn nearest_whole(&self, step: usize) -> Option<usize> {
        let mut others = self.steps();
        others.retain(|other| *other != step);
        others.sort_by_key(|other| (other.abs_diff(step), std::cmp::Reverse(*other)));
        others.into_iter().find(|other| self.is_whole(*other))
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
        let optimizer = std::fs::read(folder.join(OPTIMIZER))
            .map_err(|error| format!("{OPTIMIZER}: {error}"))?;
        Ok(Checkpoint {
            weights,
            optimizer,
            progress,
        })
    }

    /// Removes what is older than the last so many, but for the best.
    pub(crate) fn prune(&self, keep: usize) -> Result<(), TrainError> {
        let steps = self.steps();
        let best = self.best().map(|best| best.step);
        let older = steps.len().saturating_sub(keep);
        for step in steps[..older].iter().filter(|step| Some(**step) != best) {
            let folder = self.folder_of(*step);
            std::fs::remove_dir_all(&folder).map_err(TrainError::file(&folder))?;
        }
        Ok(())
    }

    /// Removes those after a step: a run that is gone on with from there makes them again.
    pub(crate) fn forget_after(&self, last: usize) -> Result<(), TrainError> {
        for step in self.steps().into_iter().filter(|step| *step > last) {
            let folder = self.folder_of(step);
            std::fs::remove_dir_all(&folder).map_err(TrainError::file(&folder))?;
        }
        let entries = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            // What a run that was killed had not finished.
            if entry.file_name().to_string_lossy().starts_with("partial-") {
                let path = entry.path();
                std::fs::remove_dir_all(&path).map_err(TrainError::file(&path))?;
            }
        }
        Ok(())
    }
}

fn checksums(folder: &Path) -> Result<BTreeMap<String, String>, TrainError> {
    let mut sums = BTreeMap::new();
    for name in [WEIGHTS, OPTIMIZER, STATE] {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).map_err(TrainError::file(&path))?;
        sums.insert(name.to_owned(), format!("{:08x}", crc32fast::hash(&bytes)));
    }
    Ok(sums)
}
