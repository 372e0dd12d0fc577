//! Making, opening and refusing folders of runs.

use std::path::{Path, PathBuf};

use zoo_config::{Config, Override};

use super::lock::LOCK;
use super::{About, Checkpoints, Lock, write_atomic};
use crate::TrainError;

const CONFIG: &str = "config.toml";
const ABOUT: &str = "run.json";

/// What is to be done with a folder that may be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Opening {
    /// A new run; one that is there is left alone.
    #[default]
    New,
    /// A new run in the place of the one that is there.
    Overwrite,
    /// Go on with the one that is there.
    Resume,
}

/// The folder of a run.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Where the config's run is.
    pub(crate) fn of(config: &Config) -> Self {
        let name = config.run.name.as_deref().unwrap_or("run");
        Self {
            path: config.run.output.join(name),
        }
    }

    /// The folder of a run that there is.
    ///
    /// # Errors
    ///
    /// [`TrainError::NoRun`] if there is none.
    pub fn existing(path: &Path) -> Result<Self, TrainError> {
        let folder = Self { path: path.into() };
        match folder.path.join(CONFIG).is_file() {
            true => Ok(folder),
            false => Err(TrainError::NoRun {
                folder: folder.path,
                missing: CONFIG,
            }),
        }
    }

    /// The run that a checkpoint's folder belongs to, and the checkpoint's step; nothing for a
    /// folder that lies elsewhere.
    pub(crate) fn of_checkpoint(path: &Path) -> Option<(Self, usize)> {
        // A path such as `.` has no names in it.
        let whole = path.canonicalize().ok()?;
        let run = Self::existing(whole.parent()?.parent()?).ok()?;
        let checkpoints = run.checkpoints();
        let mut steps = checkpoints.steps().into_iter();
        let step = steps.find(|step| {
            let own = checkpoints.folder_of(*step).canonicalize();
            own.is_ok_and(|own| own == whole)
        })?;
        Some((run, step))
    }

    /// Whether what is asked for can be done with the folder as it is. Nothing is changed yet.
    pub(crate) fn check(&self, opening: Opening, config: &Config) -> Result<(), TrainError> {
        let folder = || self.path.clone();
        let is_run = self.path.join(CONFIG).is_file();
        let is_there = self.path.symlink_metadata().is_ok();
        let is_empty = || {
            let entries = std::fs::read_dir(&self.path);
            // A run may have been killed before there was more than its lock, or while the first
            // of its files was written.
            let begun = [LOCK.to_owned(), format!("{CONFIG}.partial")];
            let is_begun = |name: std::ffi::OsString| begun.iter().any(|it| name == it.as_str());
            entries.is_ok_and(|entries| entries.flatten().all(|it| is_begun(it.file_name())))
        };
        match opening {
            Opening::New if is_run => Err(TrainError::RunExists { folder: folder() }),
            Opening::New | Opening::Overwrite if is_there && !is_run && !is_empty() => {
                Err(TrainError::NotARun {
                    folder: folder(),
                    missing: CONFIG,
                })
            }
            Opening::New | Opening::Overwrite => Ok(()),
            Opening::Resume if !is_run => Err(TrainError::NoRun {
                folder: folder(),
                missing: CONFIG,
            }),
            Opening::Resume => self.same_config(config),
        }
    }

    /// Whether the run was made by this config. What changes nothing of what is computed may
    /// differ: where the run is, how long it goes on, and what is shown on the way.
    fn same_config(&self, config: &Config) -> Result<(), TrainError> {
        let then = self.config()?;
        let mut now = config.clone();
        now.run.clone_from(&then.run);
        now.run.seed = config.run.seed;
        now.training.steps = then.training.steps;
        now.training.epochs = then.training.epochs;
        now.training.log_every = then.training.log_every;
        now.training.checkpoint_every = then.training.checkpoint_every;
        now.training.keep = then.training.keep;
        now.validation.samples = then.validation.samples;
        if then == now {
            return Ok(());
        }
        let [then, now] = [then.to_toml(), now.to_toml()];
        let mut section = "";
        let lines = then.lines().zip(now.lines());
        let differing = lines
            .inspect(|(line, _)| {
                if line.starts_with('[') {
                    section = line;
                }
            })
            .find(|(then, now)| then != now);
        let (then, now) = differing.unwrap_or_default();
        Err(TrainError::OtherConfig {
            folder: self.path.clone(),
            key: section.trim_matches(['[', ']']).to_owned(),
            then: then.to_owned(),
            now: now.to_owned(),
        })
    }

    /// Takes the folder for learning, if there is a run in it: nobody else may, until this is
    /// dropped. Those who only read ask nobody.
    ///
    /// # Errors
    ///
    /// [`TrainError::InUse`] if somebody learns there.
    pub(crate) fn lock(&self) -> Result<Option<Lock>, TrainError> {
        match self.path.join(CONFIG).is_file() {
            true => Lock::take(&self.path).map(Some),
            false => Ok(None),
        }
    }

    /// Makes the folder, with what is to be known before the first step, and takes it if that
    /// was not done.
    pub(crate) fn create(
        &self,
        opening: Opening,
        config: &Config,
        about: &About,
        lock: Option<Lock>,
    ) -> Result<Lock, TrainError> {
        self.check(opening, config)?;
        std::fs::create_dir_all(&self.path).map_err(TrainError::file(&self.path))?;
        let lock = match lock {
            Some(lock) => lock,
            None => Lock::take(&self.path)?,
        };
        // Another may have begun since the check.
        self.check(opening, config)?;
        self.clear()?;
        write_atomic(&self.path.join(CONFIG), config.to_toml().as_bytes())?;
        self.describe(&about.to_json())?;
        Ok(lock)
    }

    /// Removes what an earlier run left, but for its lock, which is held, and its config, by
    /// which it is known for a run until there is another.
    fn clear(&self) -> Result<(), TrainError> {
        let entries = std::fs::read_dir(&self.path).map_err(TrainError::file(&self.path))?;
        for entry in entries {
            let entry = entry.map_err(TrainError::file(&self.path))?;
            if [CONFIG, LOCK].iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            let path = entry.path();
            // What a link leads to is not the run's.
            let removed = match entry.file_type() {
                Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(&path),
                _ => std::fs::remove_file(&path),
            };
            removed.map_err(TrainError::file(&path))?;
        }
        Ok(())
    }

    /// Notes what the run is made with.
    pub(crate) fn describe(&self, about: &str) -> Result<(), TrainError> {
        write_atomic(&self.path.join(ABOUT), about.as_bytes())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The config it was made by.
    ///
    /// # Errors
    ///
    /// [`TrainError::Config`] if somebody changed it to something that cannot be.
    pub fn config(&self) -> Result<Config, TrainError> {
        self.config_with(&[])
    }

    /// The same with changes.
    ///
    /// # Errors
    ///
    /// As [`config`](Self::config).
    pub fn config_with(&self, overrides: &[Override]) -> Result<Config, TrainError> {
        Ok(Config::read(&self.path.join(CONFIG), overrides)?)
    }

    /// What is known about it: a JSON object.
    ///
    /// # Errors
    ///
    /// [`TrainError::File`] if it is not there.
    pub fn about(&self) -> Result<serde_json::Value, TrainError> {
        let path = self.path.join(ABOUT);
        let text = std::fs::read_to_string(&path).map_err(TrainError::file(&path))?;
        serde_json::from_str(&text).map_err(TrainError::content(&path))
    }

    /// Its checkpoints.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::of(&self.path)
    }
}
