//! Whether what a file says goes together.

use std::fmt::Display;

use zoo_spec::{BackendWord, Dtype};

use super::sight;
use crate::error::{Mistake, wrong_value};
use crate::tree::Node;
use crate::{
    Config, Files, LossScale, Metric, Model, Strategy, Task, Tokenizer, Tying, Vocabulary,
};

/// Texts that models follow at most.
const MOST_BEAMS: usize = 1024;

/// Tokens of every tokenizer that stand for no text, as `zoo-data` has them.
const SPECIAL: usize = 4;

/// Tokens that `byte_fallback` brings.
const BYTES: usize = 256;

/// What does not go together.
pub(crate) fn check_fit(config: &Config, tree: &Node) -> Vec<Mistake> {
    let mut fit = Fit {
        tree,
        mistakes: vec![],
    };
    fit.run(config);
    fit.model_and_data(config);
    fit.data(config);
    fit.tokenizer(config);
    fit.model(&config.model, config.vocabulary());
    sight::check(&mut fit, config);
    fit.training(config);
    fit.decoding(config);
    fit.mistakes
}

pub(super) struct Fit<'a> {
    tree: &'a Node,
    mistakes: Vec<Mistake>,
}

impl Fit<'_> {
    /// Whether the file, or a flag, says it.
    pub(super) fn says(&self, key: &str) -> bool {
        self.tree.find(key).is_some()
    }

    /// Where a key is, or what it would be in.
    fn entry_place(&self, key: &str) -> crate::error::Place {
        let mut path = key;
        loop {
            match (self.tree.find(path), path.rsplit_once('.')) {
                (Some(entry), _) if path == key => return entry.node.place.clone(),
                (Some(entry), _) => return entry.place.clone(),
                (None, Some((section, _))) => path = section,
                (None, None) => return self.tree.place.clone(),
            }
        }
    }

    /// The first of the keys that the file has, or of all.
    fn said<'a>(&self, keys: &[&'a str]) -> &'a str {
        let said = keys.iter().find(|key| self.says(key));
        said.or(keys.first()).copied().unwrap_or_default()
    }

    /// Something does not fit; it is told at the first of the keys that the file has.
    pub(super) fn misfit(&mut self, keys: &[&str], why: impl Display) {
        let key = self.said(keys);
        self.mistakes.push(Mistake {
            place: self.entry_place(key),
            what: format!("{key}: {why}"),
        });
    }

    /// The same of a value that the first key may not have.
    pub(super) fn range(&mut self, keys: &[&str], fits: bool, allowed: &str, found: impl Display) {
        if !fits {
            self.mistakes.push(Mistake {
                place: self.entry_place(self.said(keys)),
                what: wrong_value(keys[0], allowed, &found.to_string()),
            });
        }
    }

    fn run(&mut self, config: &Config) {
        let name = config.run.name.as_deref().unwrap_or_default();
        let is_folder = !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0']);
        let allowed = "the name of a folder, without slashes";
        self.range(&["run.name"], is_folder, allowed, format!("{name:?}"));

        let backend = &config.backend;
        for (at, device) in backend.devices.iter().enumerate() {
            let word = backend.word.backend;
            let is_twice = backend.devices[..at].contains(device);
            let why = match format!("{word}:{device}").parse::<BackendWord>() {
                Err(error) => error.to_string(),
                Ok(_) if is_twice => format!("device {device} is in the list twice"),
                Ok(_) if backend.word.index.is_some() => format!(
                    "backend.word = \"{}\" says which device already; write \"{word}\", or no list",
                    backend.word
                ),
                Ok(_) => continue,
            };
            return self.misfit(&["backend.devices"], why);
        }
    }

    fn model_and_data(&mut self, config: &Config) {
        let (task, what) = match config.model {
            Model::Transformer(_) | Model::Seq2Seq(_) => (
                Task::Pairs,
                "copy, reverse, sort, dates, recall, phrases or parallel",
            ),
            Model::Han(_) => (Task::Classes, "documents or labelled"),
            Model::Classifier(_) => (Task::Classes, "listops, documents or labelled"),
            Model::Gpt(_) => (Task::Continuation, "plain"),
        };
        let (model, data) = (config.model.word(), config.data.word());
        let models = match config.data.task() {
            Task::Pairs => "transformer or seq2seq",
            Task::Classes if config.data.has_sentences() => "han or classifier",
            Task::Classes => "classifier",
            Task::Continuation => "gpt",
        };
        let has_no_sentences =
            matches!(config.model, Model::Han(_)) && !config.data.has_sentences();
        if config.data.task() != task || has_no_sentences {
            let learns = match config.data.task() {
                Task::Pairs => "pairs of texts",
                Task::Classes if has_no_sentences => "classes of texts without sentences",
                Task::Classes => "classes of texts",
                Task::Continuation => "text alone",
            };
            let why = format!(
                "{model} does not fit data.kind = \"{data}\", which has {learns}: \
                 that is for {models}, and {model} is for {what}"
            );
            self.misfit(&["model.kind"], why);
        }
        let metric = config.metric();
        if !metric.fits(config.data.task()) {
            let task = config.data.task();
            let fitting = Metric::ALL.into_iter().filter(|metric| metric.fits(task));
            let fitting: Vec<&str> = fitting.map(Metric::word).collect();
            let why = format!(
                "there is no {} of data.kind = \"{data}\"; it can be {}",
                metric.word(),
                fitting.join(", ")
            );
            self.misfit(&["validation.metric"], why);
        }
        if self.says("validation.bleu_tokenizer") && config.data.task() != Task::Pairs {
            let why = format!("there is no bleu of data.kind = \"{data}\"; leave it out");
            self.misfit(&["validation.bleu_tokenizer"], why);
        }
    }

    fn tokenizer(&mut self, config: &Config) {
        let is_pairs = config.data.task() == Task::Pairs;
        if self.says("tokenizer.vocabulary") && !is_pairs {
            let data = config.data.word();
            let why =
                format!("data.kind = \"{data}\" has one text, and so one vocabulary; leave it out");
            self.misfit(&["tokenizer.vocabulary"], why);
        }
        self.tokenizer_size(&config.tokenizer);
        let why = match (config.tokenizer.load(), config.vocabulary()) {
            (Some(Files::Two(_)), Some(Vocabulary::Joint)) => {
                "source and target have one vocabulary, and so one tokenizer: write one path"
            }
            (Some(Files::One(_)), Some(Vocabulary::Separate)) => {
                "source and target have a vocabulary each: write a list of two paths"
            }
            (Some(Files::Two(_)), None) => {
                "there is one text, and so one tokenizer: write one path"
            }
            _ => return,
        };
        self.misfit(&["tokenizer.load"], why);
    }

    /// Tokens that are always there, and one more: what the data adds is known when it is read.
    /// Without bytes among them, the key's own least is enough.
    fn tokenizer_size(&mut self, tokenizer: &Tokenizer) {
        let (size, byte_fallback) = match tokenizer {
            Tokenizer::Char(tokens) => (tokens.size, tokens.byte_fallback),
            Tokenizer::Word(tokens) => (tokens.size, false),
            Tokenizer::Bpe(tokens) => (Some(tokens.size), tokens.byte_fallback),
        };
        let least = SPECIAL + BYTES + 1;
        if byte_fallback
            && tokenizer.load().is_none()
            && let Some(size) = size
        {
            let allowed = format!("at least {least} (4 special ones, 256 bytes and one)");
            self.range(&["tokenizer.size"], size >= least, &allowed, size);
        }
    }

    fn model(&mut self, model: &Model, vocabulary: Option<Vocabulary>) {
        if model.tying() == Some(Tying::All) && vocabulary == Some(Vocabulary::Separate) {
            let why = "all vectors can be shared only where tokenizer.vocabulary = \"joint\"";
            self.misfit(&["model.tying"], why);
        }
        let layers = match model {
            Model::Transformer(model) => Some((model.layers, model.encoder_and_decoder_layers())),
            Model::Seq2Seq(model) => Some((model.layers, model.encoder_and_decoder_layers())),
            Model::Han(_) | Model::Gpt(_) | Model::Classifier(_) => None,
        };
        // After a change of a file that has all three.
        if let Some((both, layers)) = layers
            && self.says("model.layers")
            && !layers.contains(&both)
        {
            let why = "encoder_layers and decoder_layers both say otherwise; leave them out";
            self.misfit(&["model.layers"], why);
        }
        match model {
            Model::Seq2Seq(model) => {
                let is_even = model.d_hidden.is_multiple_of(2);
                let allowed = "even, half for each direction of the encoder";
                self.range(&["model.d_hidden"], is_even, allowed, model.d_hidden);
                if model.tying != Tying::None && model.d_embedding != model.d_hidden {
                    let why = format!(
                        "{} needs vectors of one size, and d_embedding = {}, d_hidden = {}; \
                         make them the same, or write none",
                        model.tying.word(),
                        model.d_embedding,
                        model.d_hidden
                    );
                    self.misfit(&["model.tying"], why);
                }
            }
            Model::Gpt(model) => {
                let longest = model.positions.longest().unwrap_or(usize::MAX);
                let allowed = format!("at most positions.longest = {longest}");
                let fits = model.context <= longest;
                let keys = ["model.context", "model.positions.longest"];
                self.range(&keys, fits, &allowed, model.context);
            }
            Model::Transformer(_) | Model::Han(_) | Model::Classifier(_) => {}
        }
    }

    fn training(&mut self, config: &Config) {
        let training = &config.training;
        if training.steps.is_some() && training.epochs.is_some() {
            self.misfit(
                &["training.epochs"],
                "training.steps says how long already; leave one of them out",
            );
        }
        let (dtype, precision) = (config.backend.dtype, config.precision());
        if dtype != Dtype::F32 && precision != dtype {
            let why = format!(
                "weights are kept as backend.dtype = \"{dtype}\", so nothing is computed in \
                 {precision}; write backend.dtype = \"f32\" for mixed precision"
            );
            self.misfit(&["training.precision"], why);
        }
        if precision == Dtype::F32 && config.loss_scale() != LossScale::None {
            let why = "gradients in f32 are not lost; it is for training.precision = \"f16\"";
            self.misfit(&["training.loss_scale"], why);
        }
    }

    fn decoding(&mut self, config: &Config) {
        let Some(decoding) = &config.decoding else {
            if self.says("decoding") {
                let why = format!(
                    "{} says a class and writes no text; leave the section out",
                    config.model.word()
                );
                self.misfit(&["decoding"], why);
            }
            return;
        };
        let (least, most) = (decoding.min_length, decoding.max_length);
        let allowed = format!("at most max_length = {most}");
        let keys = ["decoding.min_length", "decoding.max_length"];
        self.range(&keys, least <= most, &allowed, least);
        if let Some(Strategy::Beam(beam)) = &decoding.strategy {
            let allowed = format!("at most {MOST_BEAMS}");
            let fits = beam.beams <= MOST_BEAMS;
            self.range(&["decoding.strategy.beams"], fits, &allowed, beam.beams);
            let allowed = format!("at most beams = {}", beam.beams);
            let keys = ["decoding.strategy.n_best", "decoding.strategy.beams"];
            self.range(&keys, beam.n_best <= beam.beams, &allowed, beam.n_best);
        }
    }
}
