//! Creating, opening and checking run folders.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;
use zoo_config::{Config, Override};
use zoo_spec::closest_run;

use super::contents::Contents;
use super::lock::LOCK;
use super::{Checkpoints, Lock, write_atomic};
use crate::{Result, TrainError, files};

const CONFIG: &str = "config.toml";
const METADATA: &str = "run.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OpenMode {
    /// Create a run; an error if there is one.
    #[default]
    New,
    /// Create a run; an existing one is deleted.
    Overwrite,
    Resume,
}

enum FolderState {
    /// Missing or empty, or left by a run that was killed while it started.
    Empty,
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
    pub(crate) fn from_config(config: &Config) -> Self {
        let name = config.run.name.as_deref().unwrap_or("run");
        Self {
            path: config.run.output.join(name),
        }
    }

    /// Opens the folder of an existing run; [`TrainError::NoRun`] if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = Self { path: path.into() };
        let config = folder.path.join(CONFIG);
        match std::fs::metadata(&config) {
            Ok(it) if it.is_file() => Ok(folder),
            Err(error)
                if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Err(TrainError::file(config)(error))
            }
            _ if path.extension().is_some_and(|it| it == "toml") && path.is_file() => {
                Err(config_instead_of_run(path))
            }
            _ => Err(TrainError::NoRun {
                closest: closest_run(path, has_config),
                folder: folder.path,
                missing: CONFIG,
            }),
        }
    }

    /// A folder of pretrained weights, which has no config of a run.
    pub(crate) fn of_model(path: &Path) -> Self {
        Self { path: path.into() }
    }

    fn no_run(&self, missing: &'static str) -> TrainError {
        TrainError::NoRun {
            folder: self.path.clone(),
            missing,
            closest: None,
        }
    }

    /// The run and the step of a checkpoint's folder; None if it is not in a run folder.
    pub(crate) fn from_checkpoint(path: &Path) -> Option<(Self, usize)> {
        // A path such as `.` has no parent.
        let path = path.canonicalize().ok()?;
        let run = Self::open(path.parent()?.parent()?).ok()?;
        let checkpoints = run.checkpoints();
        let mut steps = checkpoints.steps().ok()?.into_iter();
        let step = steps.find(|step| {
            let folder = checkpoints.checkpoint_dir(*step).canonicalize();
            folder.is_ok_and(|folder| folder == path)
        })?;
        Some((run, step))
    }

    /// Checks that the folder can be used in this mode. Changes nothing.
    pub(crate) fn check(&self, mode: OpenMode, config: &Config) -> Result<()> {
        let folder = self.path.display();
        match (mode, self.state()?) {
            (OpenMode::New | OpenMode::Overwrite, FolderState::Empty) => Ok(()),
            (OpenMode::New, FolderState::Run) => {
                let overwrite = match self.check_removable(config) {
                    Ok(()) => "--overwrite deletes it and starts over, ",
                    Err(_) => "",
                };
                Err(TrainError::Refused(format!(
                    "{folder} already exists\n  help: --resume continues it, {overwrite}--name \
                     OTHER starts another run"
                )))
            }
            (OpenMode::Overwrite, FolderState::Run) => self.check_removable(config),
            (OpenMode::New | OpenMode::Overwrite, FolderState::Other { missing }) => {
                Err(TrainError::Refused(format!(
                    "{folder} was not created by zoo (no {missing}), so it is not overwritten\n  \
                     help: choose another run.name or run.output, or move it elsewhere"
                )))
            }
            (OpenMode::Resume, FolderState::Empty) => Err(self.no_run(CONFIG)),
            (OpenMode::Resume, FolderState::Other { missing }) => Err(self.no_run(missing)),
            (OpenMode::Resume, FolderState::Run) => {
                self.check_same_config(config)?;
                self.checkpoints().last().map(drop)
            }
        }
    }

    fn state(&self) -> Result<FolderState> {
        let entries = match std::fs::read_dir(&self.path) {
            // A broken symlink is an error: its disk may not be mounted.
            Err(error)
                if error.kind() == ErrorKind::NotFound && self.path.symlink_metadata().is_err() =>
            {
                return Ok(FolderState::Empty);
            }
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Ok(FolderState::Other { missing: CONFIG });
            }
            entries => entries.map_err(TrainError::file(&self.path))?,
        };
        let is_run = self.has_metadata()?;
        // A run may have been killed when it had written only its lock and its first file.
        let is_leftover = |name: &OsStr| match files::without_suffix(&name.to_string_lossy()) {
            LOCK => true,
            METADATA => is_run || name != METADATA,
            CONFIG => name != CONFIG,
            _ => false,
        };
        let mut is_empty = true;
        for entry in entries {
            let entry = entry.map_err(TrainError::file(&self.path))?;
            is_empty &= is_leftover(&entry.file_name());
        }
        Ok(match (is_empty, self.path.join(CONFIG).is_file()) {
            (true, _) => FolderState::Empty,
            (false, false) => FolderState::Other { missing: CONFIG },
            (false, true) if is_run => FolderState::Run,
            (false, true) => FolderState::Other { missing: METADATA },
        })
    }

    /// Whether zoo created the folder: its `run.json` has the version of zoo.
    fn has_metadata(&self) -> Result<bool> {
        let path = self.path.join(METADATA);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            text => text.map_err(TrainError::file(&path))?,
        };
        let metadata: Value = serde_json::from_slice(&text).unwrap_or_default();
        Ok(metadata["versions"]["zoo"].is_string() && metadata["started"].is_string())
    }

    /// Checks that zoo wrote all files of the folder, and that the config reads none of them.
    fn check_removable(&self, config: &Config) -> Result<()> {
        Contents::read_run(&self.path)?.check(&self.path)?;
        let folder = self.path.canonicalize();
        let folder = folder.map_err(TrainError::file(&self.path))?;
        for (key, path) in config.files() {
            let file = archive_path(path).canonicalize();
            if file.is_ok_and(|file| file.starts_with(&folder)) {
                return Err(TrainError::Refused(format!(
                    "{key} = {} is in the run folder {}, which is not overwritten\n  help: copy the \
                     file elsewhere, or start another run with --name OTHER",
                    path.display(),
                    self.path.display()
                )));
            }
        }
        Ok(())
    }

    /// The first file or folder that zoo did not write, if there is one.
    pub fn foreign(&self) -> Result<Option<PathBuf>> {
        Ok(Contents::read_run(&self.path)?.foreign)
    }

    /// Checks that the run was trained with this config. Keys without effect on the computed steps
    /// may differ: output folder, number of steps, logging and checkpoint intervals.
    fn check_same_config(&self, config: &Config) -> Result<()> {
        let then = self.config()?;
        let mut now = config.clone();
        now.run.clone_from(&then.run);
        now.run.seed = config.run.seed;
        now.training.steps = then.training.steps;
        now.training.epochs = then.training.epochs;
        now.training.log_every = then.training.log_every;
        now.training.checkpoint_every = then.training.checkpoint_every;
        now.training.keep_checkpoints = then.training.keep_checkpoints;
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
            "cannot resume {}: the config has changed in {section}\n  then: {then}\n  now:  {now}\n  \
             help: resume with the config of the run ({}), or start a new run",
            self.path.display(),
            self.path.join(CONFIG).display()
        )))
    }

    /// Locks the folder for training, if there is a run in it. Reading needs no lock.
    pub(crate) fn lock(&self) -> Result<Option<Lock>> {
        match self.state()? {
            FolderState::Run => Lock::acquire(&self.path).map(Some),
            FolderState::Empty | FolderState::Other { .. } => Ok(None),
        }
    }

    /// Creates the folder with its config and metadata, and locks it unless it is locked.
    pub(crate) fn create(
        &self,
        mode: OpenMode,
        config: &Config,
        metadata: &Value,
        lock: &mut Option<Lock>,
    ) -> Result<()> {
        self.check(mode, config)?;
        files::create_folder(&self.path)?;
        if lock.is_none() {
            *lock = Some(Lock::acquire(&self.path)?);
        }
        // Another process may have started a run since the check.
        self.check(mode, config)?;
        // The lock is held. Config and metadata are replaced atomically, so that the folder is
        // still recognised as a run if this is interrupted.
        let contents = Contents::read_run(&self.path)?;
        contents.remove(&self.path, &[CONFIG, METADATA, LOCK])?;
        self.write_metadata(metadata)?;
        write_atomic(&self.path.join(CONFIG), config.to_toml().as_bytes())
    }

    pub(crate) fn write_metadata(&self, metadata: &Value) -> Result<()> {
        let text = format!("{metadata:#}\n");
        write_atomic(&self.path.join(METADATA), text.as_bytes())
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The config of the run; an error if it was edited and is invalid.
    pub fn config(&self) -> Result<Config> {
        self.config_with(&[])
    }

    pub(crate) fn config_with(&self, overrides: &[Override]) -> Result<Config> {
        Ok(Config::read(&self.path.join(CONFIG), overrides)?)
    }

    /// The JSON object in `run.json`.
    pub fn metadata(&self) -> Result<Value> {
        let path = self.path.join(METADATA);
        let text = std::fs::read_to_string(&path).map_err(TrainError::file(&path))?;
        serde_json::from_str(&text).map_err(TrainError::content(&path))
    }

    /// The checkpoints of the run.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(&self.path)
    }
}

/// The archive of a path such as `a.zip#b.txt`, or the path itself.
fn archive_path(path: &Path) -> PathBuf {
    match path.to_string_lossy().split_once(".zip#") {
        Some((archive, _)) => format!("{archive}.zip").into(),
        None => path.into(),
    }
}

fn has_config(folder: &Path) -> bool {
    folder.join(CONFIG).is_file()
}

/// The error for a config where a run is expected.
fn config_instead_of_run(config: &Path) -> TrainError {
    let run = if config.ends_with(CONFIG) {
        let folder = config.parent().map(Path::to_owned);
        folder.filter(|it| *it != Path::new("") && it.join(METADATA).is_file())
    } else {
        // The default name of a run is that of its config.
        let name = Path::new(config.file_stem().unwrap_or_default());
        closest_run(name, |run| run.ends_with(name) && has_config(run))
    };
    let help = match run {
        Some(run) => format!("did you mean {}?", run.display()),
        None => format!("`zoo train {}` creates a run", config.display()),
    };
    TrainError::Refused(format!(
        "{} is a config, not a run\n  help: {help}",
        config.display()
    ))
}
