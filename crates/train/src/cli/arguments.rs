//! The arguments of `zoo train`. `cargo xtask train` compiles this file as well, to check them
//! before it builds the program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use zoo_config::{Config, ConfigError, Override};
use zoo_spec::{Backend, BackendId};

#[derive(Debug, Args)]
pub(crate) struct TrainArguments {
    /// Train with this config file, or with the config of this run folder
    pub(crate) config: PathBuf,

    /// Override the config's backend: flex, ndarray, wgpu, tch-cpu, ...
    #[arg(long, value_name = "BACKEND", hide_possible_values = true)]
    #[arg(value_parser = with_names::<BackendId, _>(Backend::ALL.map(Backend::name)))]
    pub(crate) backend: Option<BackendId>,

    /// Train for this many steps instead of the config's steps or epochs
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<usize>,

    /// Name the run and its folder
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Override a config key, such as model.layers=4
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Print the config with all defaults and exit
    #[arg(long, conflicts_with_all = ["resume", "overwrite", "plain"])]
    pub(crate) print_config: bool,

    /// Print sizes of data, model and memory and exit; writes no files
    #[arg(long, conflicts_with = "print_config")]
    pub(crate) dry_run: bool,

    /// Continue from the last checkpoint
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) resume: bool,

    /// Continue from the checkpoint of this step
    #[arg(long, requires = "resume", value_name = "N")]
    pub(crate) step: Option<usize>,

    /// Resume even if the data has changed since the checkpoint
    #[arg(long, requires = "resume")]
    pub(crate) accept_changed_data: bool,

    /// Delete the existing run and start over
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Log plain lines instead of the dashboard (default when piped)
    #[arg(long)]
    pub(crate) plain: bool,
}

impl TrainArguments {
    /// Reads the config with its overrides. Checks that its data files exist, unless it is only
    /// printed.
    pub(crate) fn read_config(&self) -> Result<Config, ConfigError> {
        let (path, mut overrides) = self.config_file()?;
        for text in &self.set {
            overrides.push(Override::set(text)?);
        }
        // After --set, so that they take precedence.
        if let Some(steps) = self.steps.map(|steps| steps.to_string()) {
            let flag = format!("--steps {steps}");
            overrides.push(Override::flag(&flag, "training.steps", &steps));
        }
        if let Some(name) = &self.name {
            let flag = format!("--name {name}");
            overrides.push(Override::text(&flag, "run.name", name));
        }
        if let Some(name) = self.backend.map(|backend| backend.to_string()) {
            let flag = format!("--backend {name}");
            overrides.push(Override::flag(&flag, "backend.name", &name));
        }
        let config = Config::read(&path, &overrides)?;
        if !self.print_config {
            config.check_files(&path, &overrides, self.resume)?;
        }
        Ok(config)
    }

    /// The config file. For a run folder, which may have been moved, also its name and parent.
    fn config_file(&self) -> Result<(PathBuf, Vec<Override>), ConfigError> {
        let folder = &self.config;
        if !folder.is_dir() {
            return Ok((folder.clone(), vec![]));
        }
        let flag = folder.display().to_string();
        let file = folder.join("config.toml");
        if !file.is_file() {
            return Err(ConfigError::InvalidInput(format!(
                "{flag} is a folder without config.toml\n  help: give a config file or a run folder"
            )));
        }
        // A path such as `.` has no name.
        let folder = match folder.file_name() {
            Some(_) => folder.clone(),
            None => folder.canonicalize().unwrap_or_default(),
        };
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let parent = folder.parent().map(Path::to_string_lossy);
        let parent = parent.filter(|it| !it.is_empty()).unwrap_or(".".into());
        let overrides = [("run.output", parent), ("run.name", name)];
        let overrides = overrides.map(|(key, value)| Override::text(&flag, key, &value));
        Ok((file, overrides.into()))
    }
}

/// A parser that offers names to shell completions, and accepts other values as well.
#[derive(Clone)]
pub(crate) struct WithNames<P> {
    names: Vec<&'static str>,
    parser: P,
}

type Parse<T> = fn(&str) -> Result<T, <T as FromStr>::Err>;

pub(crate) fn with_names<T: FromStr, const N: usize>(
    names: [&'static str; N],
) -> WithNames<Parse<T>> {
    WithNames {
        names: names.into(),
        parser: T::from_str,
    }
}

impl<P: TypedValueParser> TypedValueParser for WithNames<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}
