//! The TOML file of a training run.
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
//! let four = Override::set("model.layers=4")?;
//! let config = Config::parse("reverse.toml", text, &[four])?;
//! let Model::Transformer(model) = &config.model else { panic!("{:?}", config.model) };
//! assert_eq!((model.layers, model.d_model), (4, 128));
//!
//! let error = Config::parse("a.toml", &text.replace("reverse", "revrse"), &[]).unwrap_err();
//! assert!(error.to_string().starts_with("a.toml:3:8: data.kind: unknown word \"revrse\""));
//! # Ok::<(), zoo_config::ConfigError>(())
//! ```
//!
//! - `keys` has what a key is; `sections` has every key, with its default and a sentence;
//! - `tree` is a file as it was written, with lines and columns, and `overrides` changes it;
//! - `check` compares the two: key by key first, then what has to go together;
//! - `resolve` fills in what follows from other keys;
//! - `estimate` counts the memory that a run takes at least;
//! - `files` says which files a run reads, and whether they are there;
//! - `write` prints a config, `template` one with comments, and `docs` is `docs/config.md`.

mod check;
mod docs;
mod error;
mod estimate;
mod files;
mod keys;
mod overrides;
mod resolve;
mod sections;
mod template;
mod tree;
mod write;

use std::path::Path;

use serde::{Deserialize, Serialize};
use zoo_spec::NotUtf8;

pub use self::docs::{DOCS_PATH, docs};
pub use self::error::ConfigError;
use self::error::{Mistake, joined, no_toml};
pub use self::estimate::DataSizes;
pub use self::overrides::Override;
pub use self::sections::*;
pub use self::template::{TEMPLATES, template};
use self::tree::Node;

/// A training run, with every default in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What the run is called, and where it is written.
    pub run: Run,
    /// What computes.
    pub backend: Backend,
    /// What is learned from.
    pub data: Data,
    /// How text becomes tokens.
    pub tokenizer: Tokenizer,
    /// What learns.
    pub model: Model,
    /// How weights follow their gradients.
    pub optimizer: Optimizer,
    /// How the learning rate goes.
    pub schedule: Schedule,
    /// How long, in which batches, and what is written on the way.
    pub training: Training,
    /// How it is seen what was learned.
    pub validation: Validation,
    /// How text is written; nothing for models that write none.
    pub decoding: Option<Decoding>,
}

impl Config {
    /// Reads a file, with the changes of flags.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the line, the key, what it may be and what it is, for every
    /// mistake that can be told apart.
    pub fn read(path: &Path, overrides: &[Override]) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            ConfigError::Refused(format!("{name}: the config cannot be read: {error}"))
        })?;
        if let Some(wrong) = NotUtf8::of(&bytes) {
            return Err(ConfigError::Refused(format!("{name}, {wrong}")));
        }
        let text = String::from_utf8_lossy(&bytes);
        Self::parse(&name, &text, overrides)
    }

    /// Reads the text of a file of this name, with the changes of flags.
    pub fn parse(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ConfigError> {
        let (mut config, tree) = Self::as_written(name, text, overrides)?;
        let stem = Path::new(name).file_stem();
        config.resolve(&stem.unwrap_or_default().to_string_lossy());
        refuse(check::check_fit(&config, &tree))?;
        config.model.settle_layers();
        Ok(config)
    }

    /// The config before anything is filled in that follows from other keys.
    fn as_written(
        name: &str,
        text: &str,
        overrides: &[Override],
    ) -> Result<(Self, Node), ConfigError> {
        let mut tree = Node::parse_file(name, text)?;
        for change in overrides {
            change.apply(&mut tree);
        }
        let (table, mistakes) = check::check_shape(&tree);
        refuse(mistakes)?;
        let config = Self::deserialize(toml::Value::Table(table));
        let config = config.map_err(|error| no_toml(&tree.place, error.message()))?;
        Ok((config, tree))
    }
}

fn refuse(mut mistakes: Vec<Mistake>) -> Result<(), ConfigError> {
    if mistakes.is_empty() {
        return Ok(());
    }
    mistakes.sort_by(|a, b| a.place.cmp(&b.place));
    Err(ConfigError::Mistakes(joined(&mistakes)))
}
