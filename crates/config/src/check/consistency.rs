//! Consistency between the keys of a config.

use std::fmt::Display;

use zoo_spec::{Backend, BackendId, Dtype, Precision};

use super::attention;
use crate::error::{Diagnostic, invalid_value};
use crate::resolve::model_task;
use crate::tree::Node;
use crate::{
    Config, Data, Files, LossScale, Metric, Model, Pooling, Strategy, Task, Tokenizer, Tying,
    Vocabulary,
};

const MAX_BEAMS: usize = 1024;

/// Number of special tokens of every tokenizer of `zoo-data`.
const SPECIAL_TOKENS: usize = 4;

/// Number of tokens that `byte_fallback` adds.
const BYTE_TOKENS: usize = 256;

pub(crate) fn check_consistency(config: &Config, tree: &Node) -> Vec<Diagnostic> {
    let mut checker = Checker {
        tree,
        diagnostics: vec![],
    };
    checker.run(config);
    checker.model_and_data(config);
    checker.data(config);
    checker.tokenizer(config);
    checker.model(&config.model, config.vocabulary());
    attention::check(&mut checker, config);
    checker.training(config);
    checker.decoding(config);
    checker.diagnostics
}

pub(super) struct Checker<'a> {
    tree: &'a Node,
    diagnostics: Vec<Diagnostic>,
}

impl Checker<'_> {
    /// Whether the file or a flag sets this key.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.tree.find(key).is_some()
    }

    /// The location of a key, or of the closest enclosing table.
    fn location_of(&self, key: &str) -> crate::error::Location {
        let mut path = key;
        loop {
            match (self.tree.find(path), path.rsplit_once('.')) {
                (Some(entry), _) if path == key => return entry.node.location.clone(),
                (Some(entry), _) => return entry.location.clone(),
                (None, Some((section, _))) => path = section,
                (None, None) => return self.tree.location.clone(),
            }
        }
    }

    /// The first of the keys that is set, else the first.
    fn first_set<'a>(&self, keys: &[&'a str]) -> &'a str {
        let set = keys.iter().find(|key| self.is_set(key));
        set.or(keys.first()).copied().unwrap_or_default()
    }

    /// Adds a diagnostic at the first of the keys that is set.
    pub(super) fn report(&mut self, keys: &[&str], why: impl Display) {
        let key = self.first_set(keys);
        self.diagnostics.push(Diagnostic {
            location: self.location_of(key),
            message: format!("{key}: {why}"),
        });
    }

    /// Adds a diagnostic about the value of the first key unless `is_valid`.
    pub(super) fn require(
        &mut self,
        keys: &[&str],
        is_valid: bool,
        allowed: &str,
        found: impl Display,
    ) {
        if !is_valid {
            self.diagnostics.push(Diagnostic {
                location: self.location_of(self.first_set(keys)),
                message: invalid_value(keys[0], allowed, &found.to_string()),
            });
        }
    }

    fn run(&mut self, config: &Config) {
        let name = config.run.name.as_deref().unwrap_or_default();
        let is_folder = !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0']);
        let allowed = "a folder name without slashes";
        self.require(&["run.name"], is_folder, allowed, format!("{name:?}"));

        let backend = &config.backend;
        for (i, device) in backend.devices.iter().enumerate() {
            let name = backend.name.backend;
            let is_duplicate = backend.devices[..i].contains(device);
            let why = match format!("{name}:{device}").parse::<BackendId>() {
                Err(error) => error.to_string(),
                Ok(_) if is_duplicate => format!("duplicate device {device}"),
                Ok(_) if backend.name.index.is_some() => format!(
                    "backend.name = \"{}\" already selects a device; write \"{name}\", or remove devices",
                    backend.name
                ),
                Ok(_) => continue,
            };
            return self.report(&["backend.devices"], why);
        }
    }

    fn model_and_data(&mut self, config: &Config) {
        let datasets = match config.model {
            Model::Transformer(_) | Model::Seq2Seq(_) => {
                "copy, reverse, sort, dates, recall, phrases or parallel"
            }
            Model::Han(_) => "documents or labelled",
            Model::Classifier(_) => "recall, listops, documents or labelled",
            Model::Gpt(_) => "plain",
        };
        let (model, data) = (config.model.name(), config.data.name());
        let has_sentences = config.data.has_sentences();
        let is_han = matches!(config.model, Model::Han(_));
        let is_supported = config.data.tasks().contains(&model_task(&config.model));
        if !is_supported || (is_han && !has_sentences) {
            let is_recall = matches!(config.data, Data::Recall(_));
            let (kind, models) = match config.data.tasks()[0] {
                Task::SequenceToSequence if is_recall => (
                    "source and target texts, or texts without sentences and their classes",
                    "transformer, seq2seq or classifier",
                ),
                Task::SequenceToSequence => ("source and target texts", "transformer or seq2seq"),
                Task::Classification if has_sentences => ("labelled texts", "han or classifier"),
                Task::Classification if is_han => {
                    ("labelled texts without sentences", "classifier")
                }
                Task::Classification => ("labelled texts", "classifier"),
                Task::LanguageModelling => ("unlabelled text", "gpt"),
            };
            let why = format!(
                "{model} cannot be trained on data.kind = \"{data}\" ({kind}); \
                 use {models}, or change data.kind to {datasets}"
            );
            self.report(&["model.kind"], why);
        }
        let (metric, task) = (config.metric(), config.task());
        if !metric.applies_to(task) {
            let supported = Metric::ALL.iter().filter(|metric| metric.applies_to(task));
            let supported: Vec<_> = supported.map(|metric| metric.name()).collect();
            let why = format!(
                "{metric} is not defined for {model} with data.kind = \"{data}\" (supported: {})",
                supported.join(", ")
            );
            self.report(&["validation.metric"], why);
        }
        if self.is_set("validation.bleu_tokenizer") && task != Task::SequenceToSequence {
            let why =
                format!("bleu is not defined for {model} with data.kind = \"{data}\"; remove it");
            self.report(&["validation.bleu_tokenizer"], why);
        }
    }

    fn tokenizer(&mut self, config: &Config) {
        let has_target = config.task() == Task::SequenceToSequence;
        if self.is_set("tokenizer.vocabulary") && !has_target {
            let (model, data) = (config.model.name(), config.data.name());
            let why = format!(
                "{model} with data.kind = \"{data}\" has no target text, so there is one \
                 vocabulary; remove it"
            );
            self.report(&["tokenizer.vocabulary"], why);
        }
        self.tokenizer_size(&config.tokenizer);
        let why = match (config.tokenizer.load(), config.vocabulary()) {
            (Some(Files::Two(_)), Some(Vocabulary::Joint)) => {
                "the vocabulary is joint, so there is one tokenizer; write one path"
            }
            (Some(Files::One(_)), Some(Vocabulary::Separate)) => {
                "source and target have separate vocabularies; write a list of two paths"
            }
            (Some(Files::Two(_)), None) => {
                "there is no target text, so there is one tokenizer; write one path"
            }
            _ => return,
        };
        self.report(&["tokenizer.load"], why);
    }

    /// The vocabulary must hold the special tokens, the bytes of `byte_fallback` and at least one
    /// more. Without bytes, the minimum of the key itself is enough.
    fn tokenizer_size(&mut self, tokenizer: &Tokenizer) {
        let (size, byte_fallback) = match tokenizer {
            Tokenizer::Char(tokens) => (tokens.vocab_size, tokens.byte_fallback),
            Tokenizer::Word(tokens) => (tokens.vocab_size, false),
            Tokenizer::Bpe(tokens) => (Some(tokens.vocab_size), tokens.byte_fallback),
        };
        let min = SPECIAL_TOKENS + BYTE_TOKENS + 1;
        if byte_fallback
            && tokenizer.load().is_none()
            && let Some(size) = size
        {
            let allowed = format!("at least {min} (4 special tokens, 256 bytes and 1 other token)");
            self.require(&["tokenizer.vocab_size"], size >= min, &allowed, size);
        }
    }

    fn model(&mut self, model: &Model, vocabulary: Option<Vocabulary>) {
        if model.tie_embeddings() == Some(Tying::All) && vocabulary == Some(Vocabulary::Separate) {
            let why = "all requires tokenizer.vocabulary = \"joint\"";
            self.report(&["model.tie_embeddings"], why);
        }
        let layers = match model {
            Model::Transformer(model) => Some((model.layers, model.encoder_and_decoder_layers())),
            Model::Seq2Seq(model) => Some((model.layers, model.encoder_and_decoder_layers())),
            Model::Han(_) | Model::Gpt(_) | Model::Classifier(_) => None,
        };
        // For example when a flag changes one of three keys of a file.
        if let Some((both, layers)) = layers
            && self.is_set("model.layers")
            && !layers.contains(&both)
        {
            let why = "conflicts with encoder_layers and decoder_layers; remove them";
            self.report(&["model.layers"], why);
        }
        match model {
            Model::Seq2Seq(model) => {
                let is_even = model.d_hidden.is_multiple_of(2);
                let allowed = "even (half for each direction of the encoder)";
                self.require(&["model.d_hidden"], is_even, allowed, model.d_hidden);
                if model.tie_embeddings != Tying::None && model.d_embedding != model.d_hidden {
                    let why = format!(
                        "{} requires d_embedding = d_hidden, found d_embedding = {} and d_hidden = {}",
                        model.tie_embeddings.name(),
                        model.d_embedding,
                        model.d_hidden
                    );
                    self.report(&["model.tie_embeddings"], why);
                }
            }
            Model::Gpt(model) => {
                let max = model.positions.max_positions().unwrap_or(usize::MAX);
                let allowed = format!("at most positions.max_positions = {max}");
                let is_valid = model.context <= max;
                let keys = ["model.context", "model.positions.max_positions"];
                self.require(&keys, is_valid, &allowed, model.context);
                if let Some(max) = model.attention.max_length() {
                    let allowed = format!("at most the length of its attention, {max}");
                    let is_valid = model.context <= max;
                    self.require(&["model.context"], is_valid, &allowed, model.context);
                }
            }
            Model::Classifier(model) if model.causal && model.pooling == Pooling::Cls => {
                let why = "cls is a token before the sequence, which attends to no other token with \
                           model.causal = true; use last, mean or attention";
                self.report(&["model.pooling"], why);
            }
            Model::Transformer(_) | Model::Han(_) | Model::Classifier(_) => {}
        }
    }

    fn training(&mut self, config: &Config) {
        let training = &config.training;
        if training.steps.is_some() && training.epochs.is_some() {
            let why = "training.steps is also set; remove one of them";
            self.report(&["training.epochs"], why);
        }
        let (dtype, precision) = (config.backend.dtype, config.precision());
        if dtype != Dtype::F32 && precision != dtype.into() {
            let why = format!(
                "{precision} is not supported with backend.dtype = \"{dtype}\"; mixed precision \
                 requires backend.dtype = \"f32\""
            );
            self.report(&["training.precision"], why);
        }
        let backend = config.backend.name.backend;
        if precision == Precision::Tf32 && backend != Backend::Cuda {
            let why = format!(
                "tf32 is not supported by {backend} (only by cuda); help: remove the key to train \
                 in {dtype}"
            );
            self.report(&["training.precision"], why);
        }
        if precision.dtype() == Dtype::F32 && config.loss_scale() != LossScale::None {
            let why = format!(
                "not used with {precision}; loss scaling is for training.precision = \"f16\""
            );
            self.report(&["training.loss_scale"], why);
        }
    }

    fn decoding(&mut self, config: &Config) {
        let Some(decoding) = &config.decoding else {
            if self.is_set("decoding") {
                let model = config.model.name();
                let why = format!("{model} generates no text; remove the section");
                self.report(&["decoding"], why);
            }
            return;
        };
        let (min, max) = (decoding.min_length, decoding.max_length);
        let allowed = format!("at most max_length = {max}");
        let keys = ["decoding.min_length", "decoding.max_length"];
        self.require(&keys, min <= max, &allowed, min);
        if let Some(Strategy::Beam(beam)) = &decoding.strategy {
            let allowed = format!("at most {MAX_BEAMS}");
            let is_valid = beam.beams <= MAX_BEAMS;
            self.require(&["decoding.strategy.beams"], is_valid, &allowed, beam.beams);
            let allowed = format!("at most beams = {}", beam.beams);
            let keys = ["decoding.strategy.n_best", "decoding.strategy.beams"];
            self.require(&keys, beam.n_best <= beam.beams, &allowed, beam.n_best);
        }
    }
}
