//! Model folders of Hugging Face's transformers, as saved by `save_pretrained`.
//!
//! | file | |
//! |---|---|
//! | `config.json` | the architecture: `model_type` selects the family |
//! | `generation_config.json` | end tokens, if it exists |
//! | `model.safetensors`, or `model.safetensors.index.json` with its files | weights in f32, f16 or bf16 |
//!
//! | `model_type` | models |
//! |---|---|
//! | `gpt2` | GPT-2 |
//! | `llama` | Llama 2 and 3, SmolLM and others |
//! | `mistral` | Mistral, with a sliding window |
//! | `qwen2` | Qwen2 and Qwen2.5 |
//! | `qwen3` | Qwen3, dense |
//!
//! The config is translated exactly or not at all: an unknown architecture or key, or a value that is
//! not implemented, is an error that names it. All tensors are checked against the config before a
//! model is created.
//!
//! ```no_run
//! # use burn::tensor::Device;
//! # use zoo_models::{Gpt, ModelError};
//! # use zoo_models::weights::hugging_face::ModelFolder;
//! # fn load(device: &Device) -> Result<Gpt, ModelError> {
//! let folder = ModelFolder::open("SmolLM2-135M")?;
//! let model = folder.load(device)?;
//! # Ok(model)
//! # }
//! ```

mod config;
mod json;
mod names;
mod rope;
mod shards;

use std::path::{Path, PathBuf};

use burn::tensor::Device;

use self::json::Keys;
use super::Weights;
use crate::{Gpt, GptConfig, ModelError};

/// Name of the file that makes a folder a model folder.
const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";

/// An architecture, as `model_type` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// GPT-2.
    Gpt2,
    /// Llama 2 and 3, SmolLM and others.
    Llama,
    /// Mistral: Llama with a sliding window.
    Mistral,
    /// Qwen2 and Qwen2.5: Llama with biases of queries, keys and values.
    Qwen2,
    /// Qwen3: Llama with QK-norm.
    Qwen3,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 5] = [
        Self::Gpt2,
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
    ];

    /// The `model_type` of a `config.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// The class of transformers whose weights are read.
    const fn architecture(self) -> &'static str {
        match self {
            Self::Gpt2 => "GPT2LMHeadModel",
            Self::Llama => "LlamaForCausalLM",
            Self::Mistral => "MistralForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
        }
    }
}

/// A model folder whose config has been read and checked.
#[derive(Debug, Clone)]
pub struct ModelFolder {
    path: PathBuf,
    family: Family,
    config: GptConfig,
    end_tokens: Vec<u32>,
}

impl ModelFolder {
    /// Whether a folder has a `config.json`.
    pub fn is_model_folder(path: impl AsRef<Path>) -> bool {
        path.as_ref().join(CONFIG).is_file()
    }

    /// Reads the config of a folder. The weights are read by [`weights`](Self::weights) and
    /// [`load`](Self::load).
    ///
    /// # Errors
    ///
    /// [`ModelError`] if a file cannot be read, or the architecture is not supported exactly.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let (family, config, ends) = config::parse(Keys::read(&path.join(CONFIG))?)?;
        config.check().map_err(|error| ModelError::Folder {
            path: path.join(CONFIG),
            reason: error.to_string(),
            help: "get the file again; if it is intact, the model cannot be loaded",
        })?;
        let generation = path.join(GENERATION_CONFIG);
        let of_generation = match generation.is_file() {
            true => Keys::read(&generation)?.ids("eos_token_id")?,
            false => None,
        };
        // An id outside of the vocabulary is never generated.
        let is_token = |id: &u32| (*id as usize) < config.vocabulary;
        let ends = of_generation.unwrap_or(ends).into_iter();
        let end_tokens = ends
            .filter_map(|id| u32::try_from(id).ok())
            .filter(is_token);
        Ok(Self {
            path: path.into(),
            family,
            end_tokens: end_tokens.collect(),
            config,
        })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The architecture.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The config of the model.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// The tokens that end a text: `eos_token_id` of `generation_config.json`, otherwise of
    /// `config.json`.
    pub fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// Reads the weights as they are in the files.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if a file is missing, invalid, truncated, or not as its index describes it.
    pub fn file_weights(&self) -> Result<Weights, ModelError> {
        shards::read(&self.path)
    }

    /// Reads the weights, with the names and layouts of a [`Gpt`]. Their dtype is that of the files.
    ///
    /// # Errors
    ///
    /// As [`file_weights`](Self::file_weights); if a tensor is missing or unexpected, or has another
    /// shape than the config determines, or another dtype than f32, f16 or bf16.
    pub fn weights(&self) -> Result<Weights, ModelError> {
        names::convert(self.file_weights()?, self.family, &self.config)
    }

    /// Creates the model with its weights, in the device's dtype.
    ///
    /// # Errors
    ///
    /// As [`weights`](Self::weights).
    pub fn load(&self, device: &Device) -> Result<Gpt, ModelError> {
        // Read first: sizes that the files do not have are never allocated.
        let weights = self.weights()?;
        weights.apply(self.config.try_init(device)?)
    }
}
