//! Making, opening and refusing folders of runs.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;
use zoo_config::{Config, Override};

use super::contents::Contents;
use super::lock::LOCK;
use super::{Checkpoints, Lock, write_atomic};
use crate::{Result, TrainError, files};

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
    Resume,
}

/// What is at the path of a run.
enum Found {
    /// Nothing, or what a run leaves that was killed while it began.
    Nothing,
    Run,
    Other {
        missing: &'static str,
    },
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

    /// The folder of a run that there is; [`TrainError::NoRun`] if there is none.
    pub fn existing(path: &Path) -> Result<Self> {
        let folder = Self { path: path.into() };
        let config = folder.path.join(CONFIG);
        match std::fs::metadata(&config) {
            Ok(it) if it.is_file() => Ok(folder),
            Err(error)
                if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Err(TrainError::file(config)(error))
            }
            _ => Err(folder.no_run(CONFIG)),
        }
    }

    fn no_run(&self, missing: &'static str) -> TrainError {
        TrainError::NoRun {
            folder: self.path.clone(),
            missing,
        }
    }

    /// The run that a checkpoint's folder belongs to, and the checkpoint's step; nothing for a
    /// folder that lies elsewhere.
    pub(crate) fn of_checkpoint(path: &Path) -> Option<(Self, usize)> {
        // A path such as `.` has no names in it.
        let whole = path.canonicalize().ok()?;
        let run = Self::existing(whole.parent()?.parent()?).ok()?;
        let checkpoints = run.checkpoints();
        let mut steps = checkpoints.steps().ok()?.into_iter();
        let step = steps.find(|step| {
            let own = checkpoints.folder_of(*step).canonicalize();
            own.is_ok_and(|own| own == whole)
        })?;
        Some((run, step))
    }

    /// Whether what is asked for can be done with the folder as it is. Nothing is changed yet.
    pub(crate) fn check(&self, opening: Opening, config: &Config) -> Result<()> {
        let folder = self.path.display();
        match (opening, self.found()?) {
            (Opening::New | Opening::Overwrite, Found::Nothing) => Ok(()),
            (Opening::New, Found::Run) => {
                let overwrite = match self.check_removable(config) {
                    Ok(()) => "--overwrite deletes it and begins anew, ",
                    Err(_) => "",
                };
                Err(TrainError::Refused(format!(
                    "{folder} is there already\n  do: --resume goes on with it, {overwrite}--set \
                     run.name=OTHER begins a run beside it"
                )))
            }
            (Opening::Overwrite, Found::Run) => self.check_removable(config),
            (Opening::New | Opening::Overwrite, Found::Other { missing }) => {
                Err(TrainError::Refused(format!(
                    "{folder} was not created by zoo (there is no {missing} of a run in it), so it \
                     is not overwritten\n  do: choose another run.name or run.output, or move it \
                     elsewhere"
                )))
            }
            (Opening::Resume, Found::Nothing) => Err(self.no_run(CONFIG)),
            (Opening::Resume, Found::Other { missing }) => Err(self.no_run(missing)),
            (Opening::Resume, Found::Run) => {
                self.same_config(config)?;
                self.checkpoints().last().map(drop)
            }
        }
    }

    fn found(&self) -> Result<Found> {
        let entries = match std::fs::read_dir(&self.path) {
            // Not so a symlink that leads nowhere: that may be a disk that is not mounted.
            Err(error)
                if error.kind() == ErrorKind::NotFound && self.path.symlink_metadata().is_err() =>
            {
                return Ok(Found::Nothing);
            }
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Ok(Found::Other { missing: CONFIG });
            }
            entries => entries.map_err(TrainError::file(&self.path))?,
        };
        let is_run = self.is_marked()?;
        // A run may have been killed before it had more than its lock and its first file.
        let is_begun = |name: &OsStr| match files::without_suffix(&name.to_string_lossy()) {
            LOCK => true,
            ABOUT => is_run || name != ABOUT,
            CONFIG => name != CONFIG,
            _ => false,
        };
        let mut is_nothing = true;
        for entry in entries {
            let entry = entry.map_err(TrainError::file(&self.path))?;
            is_nothing &= is_begun(&entry.file_name());
        }
        Ok(match (is_nothing, self.path.join(CONFIG).is_file()) {
            (true, _) => Found::Nothing,
            (false, false) => Found::Other { missing: CONFIG },
            (false, true) if is_run => Found::Run,
            (false, true) => Found::Other { missing: ABOUT },
        })
    }

    /// Whether zoo created the folder: a `run.json` that names its version is there.
    fn is_marked(&self) -> Result<bool> {
        let path = self.path.join(ABOUT);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            text => text.map_err(TrainError::file(&path))?,
        };
        let about: Value = serde_json::from_slice(&text).unwrap_or_default();
        Ok(about["versions"]["zoo"].is_string() && about["started"].is_string())
    }

    /// Whether all that is in the folder was written by zoo, and nothing in it is read by the
    /// config.
    fn check_removable(&self, config: &Config) -> Result<()> {
        Contents::of_run(&self.path)?.check(&self.path)?;
        let folder = self.path.canonicalize();
        let folder = folder.map_err(TrainError::file(&self.path))?;
        for (key, path) in config.files() {
            // What does not exist cannot be lost.
            let read = archive_of(path).canonicalize();
            if read.is_ok_and(|read| read.starts_with(&folder)) {
                return Err(TrainError::Refused(format!(
                    "{key} is {}, in the run folder {} itself, which is therefore not overwritten\n  \
                     do: copy it elsewhere and name that file, or begin a run beside it with --set \
                     run.name=OTHER",
                    path.display(),
                    self.path.display()
                )));
            }
        }
        Ok(())
    }

    /// The first file or folder in it that zoo did not write, if there is one.
    pub fn foreign(&self) -> Result<Option<PathBuf>> {
        Ok(Contents::of_run(&self.path)?.foreign)
    }

    /// Whether the run was made by this config. What changes nothing of what is computed may
    /// differ: where the run is, how long it goes on, and what is shown on the way.
    fn same_config(&self, config: &Config) -> Result<()> {
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
        Err(TrainError::Refused(format!(
            "{} was made by another config, and going on would be no continuation; {} differs:\n  \
             then: {then}\n  now:  {now}\nResume with what it was made by ({}), or begin a new run",
            self.path.display(),
            section.trim_matches(['[', ']']),
            self.path.join(CONFIG).display()
        )))
    }

    /// Takes the folder for learning, if there is a run in it: nobody else may, until this is
    /// dropped. Those who only read ask nobody.
    pub(crate) fn lock(&self) -> Result<Option<Lock>> {
        match self.found()? {
            Found::Run => Lock::take(&self.path).map(Some),
            Found::Nothing | Found::Other { .. } => Ok(None),
        }
    }

    /// Makes the folder, with what is to be known before the first step, and takes it if that
    /// was not done.
    pub(crate) fn create(
        &self,
        opening: Opening,
        config: &Config,
        about: &Value,
        lock: Option<Lock>,
    ) -> Result<Lock> {
        self.check(opening, config)?;
        files::create_folder(&self.path)?;
        let lock = match lock {
            Some(lock) => lock,
            None => Lock::take(&self.path)?,
        };
        // Another may have begun since the check.
        self.check(opening, config)?;
        // The lock is held. The others are replaced at once: whenever this is interrupted, what is
        // left is known for a run of zoo.
        let contents = Contents::of_run(&self.path)?;
        contents.remove(&self.path, &[CONFIG, ABOUT, LOCK])?;
        self.describe(about)?;
        write_atomic(&self.path.join(CONFIG), config.to_toml().as_bytes())?;
        Ok(lock)
    }

    pub(crate) fn describe(&self, about: &Value) -> Result<()> {
        write_atomic(&self.path.join(ABOUT), format!("{about:#}\n").as_bytes())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The config it was made by; an error if somebody changed it to something that cannot be.
    pub fn config(&self) -> Result<Config> {
        self.config_with(&[])
    }

    /// The same with changes.
    pub(crate) fn config_with(&self, overrides: &[Override]) -> Result<Config> {
        Ok(Config::read(&self.path.join(CONFIG), overrides)?)
    }

    /// What is known about it: a JSON object.
    pub fn about(&self) -> Result<Value> {
        let path = self.path.join(ABOUT);
        let text = std::fs::read_to_string(&path).map_err(TrainError::file(&path))?;
        serde_json::from_str(&text).map_err(TrainError::content(&path))
    }

    /// Its checkpoints.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::of(&self.path)
    }
}

/// The file to look for, where a path may name one inside of an archive.
fn archive_of(path: &Path) -> PathBuf {
    match path.to_string_lossy().split_once(".zip#") {
        Some((archive, _)) => format!("{archive}.zip").into(),
        None => path.into(),
    }
}
