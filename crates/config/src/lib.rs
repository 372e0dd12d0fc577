//! The TOML config of a training run.
//!
//! ```
//! # use zoo_config::{Config, Model, Override};
//! let text = "
//! [data]
//! kind = \"reverse\"
//!
//! [model]
//! kind = \"transformer\"
//! ";
//! let layers = Override::set("model.layers=4")?;
//! let config = Config::parse("reverse.toml", text, &[layers])?;
//! let Model::Transformer(model) = &config.model else { panic!("{:?}", config.model) };
//! assert_eq!((model.layers, model.d_model), (4, 128));
//!
//! let error = Config::parse("a.toml", &text.replace("reverse", "revrse"), &[]).unwrap_err();
//! assert!(error.to_string().starts_with("a.toml:3:8: data.kind: unknown value \"revrse\""));
//! # Ok::<(), zoo_config::ConfigError>(())
//! ```
//!
//! - `sections` declares every key with its default and description, `renamed` former names;
//! - `tree` is a parsed file with lines and columns, which `overrides` changes;
//! - `check` validates it: first key by key, then the consistency between keys;
//! - `resolve` sets defaults that depend on other keys;
//! - `estimate` computes a lower bound on the memory of a run;
//! - `report` formats errors for a terminal;
//! - `files` lists the input files and checks that they exist;
//! - `write` prints a config, `template` one with comments, `describe` a mechanism, and `docs`
//!   generates `docs/config.md`.

mod check;
mod describe;
mod docs;
mod error;
mod estimate;
mod files;
mod keys;
mod overrides;
mod renamed;
mod report;
mod resolve;
mod sections;
mod template;
mod tree;
mod write;

use std::path::Path;

use serde::{Deserialize, Serialize};
use zoo_spec::{NotUtf8, closest_path, closest_run};

pub use self::describe::describe;
pub use self::docs::{DOCS_PATH, docs};
pub use self::error::{ConfigError, Diagnostics};
use self::error::{Diagnostic, syntax_error};
pub use self::estimate::DataSizes;
pub use self::overrides::Override;
pub use self::report::{ErrorStyle, wrap};
pub use self::sections::*;
pub use self::template::{TEMPLATES, template};
use self::tree::Node;

/// The config of a training run, with defaults resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name, seed and output folder.
    pub run: Run,
    /// Compute backend.
    pub backend: Backend,
    /// Dataset.
    pub data: Data,
    /// Tokenizer.
    pub tokenizer: Tokenizer,
    /// Model.
    pub model: Model,
    /// Optimizer.
    pub optimizer: Optimizer,
    /// Learning rate schedule.
    pub schedule: Schedule,
    /// Duration, batches, precision, logging and checkpoints.
    pub training: Training,
    /// Validation during training.
    pub validation: Validation,
    /// Text generation; `None` for classifiers.
    pub decoding: Option<Decoding>,
}

impl Config {
    /// Reads a file and applies overrides.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with location, key, allowed values and found value of every problem.
    pub fn read(path: &Path, overrides: &[Override]) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            let is_config = |path: &Path| path.is_file() || path.join("config.toml").is_file();
            let closest = closest_path(path, is_config).or_else(|| closest_run(path, is_config));
            let help = match closest {
                Some(closest) => format!("did you mean {}?", closest.display()),
                None if path.exists() => "check its permissions".to_owned(),
                None => "`zoo new transformer > my.toml` writes a config".to_owned(),
            };
            ConfigError::InvalidInput(format!(
                "cannot read config {name}: {error}\n  help: {help}"
            ))
        })?;
        if let Some(error) = NotUtf8::detect(&bytes) {
            return Err(ConfigError::InvalidInput(format!("{name}, {error}")));
        }
        let text = String::from_utf8_lossy(&bytes);
        Self::parse(&name, &text, overrides)
    }

    /// Parses the text of a file of this name and applies overrides.
    pub fn parse(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ConfigError> {
        let (mut config, tree) = Self::parse_unresolved(name, text, overrides)?;
        let stem = Path::new(name).file_stem();
        config.resolve(&stem.unwrap_or_default().to_string_lossy());
        fail_on(check::check_consistency(&config, &tree))?;
        config.model.resolve_layers();
        Ok(config)
    }

    /// The config before defaults that depend on other keys are set.
    fn parse_unresolved(
        name: &str,
        text: &str,
        overrides: &[Override],
    ) -> Result<(Self, Node), ConfigError> {
        let mut tree = Node::parse_file(name, text)?;
        for change in overrides {
            change.apply(&mut tree);
        }
        let (table, diagnostics) = check::check_schema(&tree);
        fail_on(diagnostics)?;
        let config = Self::deserialize(toml::Value::Table(table));
        let config = config.map_err(|error| syntax_error(&tree.location, error.message()))?;
        Ok((config, tree))
    }
}

fn fail_on(mut list: Vec<Diagnostic>) -> Result<(), ConfigError> {
    if list.is_empty() {
        return Ok(());
    }
    list.sort_by(|a, b| a.location.cmp(&b.location));
    let help = vec![];
    Err(ConfigError::Diagnostics(Diagnostics { list, help }))
}
