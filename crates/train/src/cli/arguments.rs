//! The arguments of `zoo train`. `cargo xtask train` compiles this file and `variants.rs` as well, to
//! check them before it builds the program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use zoo_config::{Config, ConfigError, Override};
use zoo_spec::{Backend, BackendId};

#[derive(Debug, Clone, Args)]
pub(crate) struct TrainArguments {
    /// Train with this config file, or with the config of this run folder
    pub(crate) config: PathBuf,

    /// With --sweep, train the variants of these configs as well
    #[arg(value_name = "CONFIG", requires = "sweep", conflicts_with = "name")]
    pub(crate) more: Vec<PathBuf>,

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

    /// Train a variant for each value, one after the other, in NAME-sweep; repeat it to combine keys;
    /// model.attention=all is every mechanism that the model supports
    #[arg(long, value_name = "KEY=VALUE,...", conflicts_with_all = ["print_config", "step"])]
    pub(crate) sweep: Vec<String>,

    /// Print one command for each variant instead, for Slurm, GNU parallel or Kubernetes
    #[arg(long, requires = "sweep", conflicts_with = "dry_run")]
    pub(crate) print_commands: bool,

    /// Print the config with all defaults and exit
    #[arg(long, conflicts_with_all = ["resume", "overwrite", "plain"])]
    pub(crate) print_config: bool,

    /// Print sizes of data, model and memory and exit; writes no files
    #[arg(long, conflicts_with = "print_config")]
    pub(crate) dry_run: bool,

    /// Continue from the last checkpoint; with --sweep, skip finished variants and start missing ones
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
        let (path, run) = self.config_file()?;
        let overrides = [run, self.set_overrides()?, self.flag_overrides()].concat();
        let config = Config::read(&path, &overrides)?;
        if !self.print_config {
            config.check_files(&path, &overrides, self.resume)?;
        }
        Ok(config)
    }

    pub(crate) fn set_overrides(&self) -> Result<Vec<Override>, ConfigError> {
        self.set.iter().map(|text| Override::set(text)).collect()
    }

    /// The flags of their own for some keys. They take precedence over --set.
    pub(crate) fn flag_overrides(&self) -> Vec<Override> {
        let steps = self.steps.map(|steps| steps.to_string());
        let steps = steps.map(|steps| Override::flag("--steps", "training.steps", &steps));
        let name = self.name.as_ref();
        let name = name.map(|name| Override::text("--name", "run.name", name));
        let backend = self.backend.map(|backend| backend.to_string());
        let backend = backend.map(|name| Override::flag("--backend", "backend.name", &name));
        [steps, name, backend].into_iter().flatten().collect()
    }

    /// The config file. For a run folder, which may have been moved, also its name and parent.
    pub(crate) fn config_file(&self) -> Result<(PathBuf, Vec<Override>), ConfigError> {
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
        let overrides = overrides.map(|(key, value)| Override::text("train", key, &value));
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
