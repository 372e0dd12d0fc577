//! Model folders of Hugging Face's transformers, used like trained runs.

use std::path::Path;

use zoo_backend::BackendId;
use zoo_config::{Config, Model, Override};
use zoo_data::Tokenizer;
use zoo_models::GenerateConfig;
use zoo_models::weights::hugging_face::ModelFolder;

use crate::generate::generate_config;
use crate::task::LanguageModelling;
use crate::trained::TrainedTask;
use crate::{CheckpointChoice, Result, RunFolder, TrainError, TrainedRun};

pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// What a model folder has and a run has not.
#[derive(Debug)]
pub(crate) struct Pretrained {
    end_tokens: Vec<u32>,
}

/// Sections of a config that apply to pretrained weights.
const SECTIONS: [&str; 2] = ["decoding.", "backend."];

impl TrainedRun {
    /// Loads a model folder: its weights, and its tokenizer unchanged.
    pub(crate) fn open_model_folder(
        path: &Path,
        choice: CheckpointChoice,
        backend: Option<BackendId>,
        overrides: &[Override],
    ) -> Result<Self> {
        if choice != CheckpointChoice::Best {
            return Err(TrainError::Refused(format!(
                "--checkpoint: {} has pretrained weights and no checkpoints\n  help: omit --checkpoint",
                path.display()
            )));
        }
        let folder = ModelFolder::open(path)?;
        let config = config(&folder, overrides)?;
        let tokenizer = tokenizer(path)?;
        let backend = backend.unwrap_or_else(|| available(config.backend.name));
        let opened = zoo_backend::open(backend, config.backend.dtype)?;
        let model = folder.load(&opened.device)?;
        Ok(Self {
            folder: RunFolder::of_model(path),
            config,
            model: Box::new(TrainedTask {
                task: LanguageModelling { tokenizer },
                model,
            }),
            opened,
            step: None,
            pretrained: Some(Pretrained {
                end_tokens: folder.end_tokens().to_vec(),
            }),
        })
    }

    /// The decoding options of the config. Pretrained weights end a text at the tokens of their folder.
    pub(crate) fn generate_config(&self) -> Result<GenerateConfig> {
        let config = generate_config(&self.config)?;
        let Some(pretrained) = &self.pretrained else {
            return Ok(config);
        };
        let mut ends = pretrained.end_tokens.iter().copied();
        Ok(config
            .with_never(vec![])
            .with_end(ends.next())
            .with_other_ends(ends.collect()))
    }

    /// What the weights are, if they are not those of a step.
    pub(crate) fn weights_without_step(&self) -> &'static str {
        match self.pretrained {
            Some(_) => "pretrained weights",
            None => "averaged weights",
        }
    }

    /// An error for a command or flag that reads the data of the run.
    pub(crate) fn check_has_data(&self, what: &str, help: &str) -> Result<()> {
        match self.pretrained {
            None => Ok(()),
            Some(_) => Err(TrainError::Refused(format!(
                "{what}: {} has pretrained weights, and no data\n  help: {help}",
                self.folder.path().display()
            ))),
        }
    }
}

/// Whether this is the folder of pretrained weights, and not that of a run.
pub(crate) fn is_model_folder(path: &Path) -> bool {
    !path.join("config.toml").is_file() && ModelFolder::is_model_folder(path)
}

/// The tokenizer of a model folder.
pub(crate) fn tokenizer(folder: &Path) -> Result<Tokenizer> {
    let path = folder.join(TOKENIZER);
    if !path.is_file() {
        return Err(TrainError::Refused(format!(
            "{} has no {TOKENIZER}\n  help: get it from the page of the model, or save it with \
             `AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)`",
            folder.display()
        )));
    }
    Ok(Tokenizer::load_pretrained(&path)?)
}

/// The config of a run with this model, for its decoding and its backend.
fn config(folder: &ModelFolder, overrides: &[Override]) -> Result<Config> {
    let has_effect = |change: &&Override| {
        let key = change.key();
        SECTIONS.iter().any(|section| key.starts_with(section))
    };
    if let Some(change) = overrides.iter().find(|change| !has_effect(change)) {
        return Err(TrainError::Refused(format!(
            "--set {}: {} has pretrained weights, whose config.json cannot be overridden\n  help: set \
             keys of [decoding] or [backend]",
            change.key(),
            folder.path().display()
        )));
    }
    let text = "[data]\nkind = \"plain\"\ntrain = \"-\"\n\n[model]\nkind = \"gpt\"\n";
    let mut config = Config::parse("config.json", text, overrides)?;
    let path = folder.path();
    let name = path.canonicalize().unwrap_or_else(|_| path.into());
    let name = name
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    config.run.name = name.or(config.run.name);
    config.model = Model::Gpt(folder.config().spec.clone());
    Ok(config)
}

/// The backend, if it is compiled in; otherwise any other.
fn available(id: BackendId) -> BackendId {
    let features = zoo_backend::compiled_features();
    if features.contains(&id.backend.feature()) {
        return id;
    }
    let mut others = features.iter().filter_map(|name| name.parse().ok());
    others.next().unwrap_or(id)
}
