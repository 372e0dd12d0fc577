//! Defaults that depend on other keys.

use zoo_spec::{Dtype, Precision};

use crate::sections::data::DEFAULT_VALID_SHARE;
use crate::sections::training::DEFAULT_STEPS;
use crate::{
    BleuTokenizer, Config, Data, Direction, LossScale, Metric, Model, PreTokenization, Sample,
    Sentences, Strategy, Task, Tying, Vocabulary,
};

impl Config {
    /// The task of the model. In an inconsistent config, whose data is for another task, that of the
    /// data.
    pub fn task(&self) -> Task {
        let own = model_task(&self.model);
        let tasks = self.data.tasks();
        if tasks.contains(&own) { own } else { tasks[0] }
    }

    /// The validation metric.
    pub fn metric(&self) -> Metric {
        self.validation.metric.unwrap_or(match self.task() {
            Task::SequenceToSequence if self.data.is_synthetic() => Metric::Exact,
            Task::SequenceToSequence => Metric::Bleu,
            Task::Classification => Metric::Accuracy,
            Task::LanguageModelling => Metric::Loss,
        })
    }

    /// The BLEU tokenizer, for sequence-to-sequence tasks.
    pub fn bleu_tokenizer(&self) -> Option<BleuTokenizer> {
        let default = match (&self.data, self.tokenizer.pre_tokenizer()) {
            _ if self.task() != Task::SequenceToSequence => None,
            // The text is already tokenized.
            (_, Some(PreTokenization::Whitespace)) => Some(BleuTokenizer::None),
            (Data::Phrases(data), _) if data.direction == Direction::EnglishToChinese => {
                Some(BleuTokenizer::Zh)
            }
            _ => Some(BleuTokenizer::V13a),
        };
        self.validation.bleu_tokenizer.or(default)
    }

    /// The compute precision.
    pub fn precision(&self) -> Precision {
        let default = self.backend.dtype.into();
        self.training.precision.unwrap_or(default)
    }

    /// The loss scaling.
    pub fn loss_scale(&self) -> LossScale {
        let default = match self.precision().dtype() {
            Dtype::F16 => LossScale::Dynamic,
            Dtype::F32 | Dtype::Bf16 => LossScale::None,
        };
        self.training.loss_scale.clone().unwrap_or(default)
    }

    /// Joint or separate vocabulary, for sequence-to-sequence tasks.
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        let default = match self.model.tie_embeddings() {
            _ if self.task() != Task::SequenceToSequence => None,
            Some(Tying::All) => Some(Vocabulary::Joint),
            _ => Some(Vocabulary::Separate),
        };
        self.tokenizer.vocabulary().or(default)
    }

    /// The decoding strategy, for models that generate text.
    pub fn strategy(&self) -> Option<Strategy> {
        let decoding = self.decoding.as_ref()?;
        let default = match self.model {
            Model::Gpt(_) => Strategy::Sample(Sample::default()),
            _ => Strategy::Greedy,
        };
        Some(decoding.strategy.clone().unwrap_or(default))
    }

    /// Sets every omitted key. `file_stem` is the default name of the run.
    pub(crate) fn resolve(&mut self, file_stem: &str) {
        self.run.name.get_or_insert_with(|| file_stem.to_owned());
        if self.training.steps.is_none() && self.training.epochs.is_none() {
            self.training.steps = Some(DEFAULT_STEPS);
        }
        self.training.precision = Some(self.precision());
        self.training.loss_scale = Some(self.loss_scale());
        self.validation.metric = Some(self.metric());
        let rule = if self.data.is_synthetic() {
            PreTokenization::Whitespace
        } else {
            PreTokenization::Punctuation
        };
        self.tokenizer.resolve(self.vocabulary(), rule);
        self.validation.bleu_tokenizer = self.bleu_tokenizer();
        if self.task() == Task::Classification {
            self.decoding = None;
        }
        let strategy = self.strategy();
        if let Some(decoding) = &mut self.decoding {
            decoding.strategy = strategy;
        }
        self.resolve_data();
        self.model.resolve();
    }

    fn resolve_data(&mut self) {
        let default = |has_file: bool| (!has_file).then_some(DEFAULT_VALID_SHARE);
        match &mut self.data {
            Data::Parallel(data) => {
                data.valid_fraction = data.valid_fraction.or(default(data.valid.is_some()));
            }
            Data::Labelled(data) => {
                data.valid_fraction = data.valid_fraction.or(default(data.valid.is_some()));
                if matches!(self.model, Model::Han(_)) {
                    data.sentences.get_or_insert(Sentences::Punctuation);
                }
            }
            Data::Plain(data) => {
                data.valid_fraction = data.valid_fraction.or(default(data.valid.is_some()));
            }
            _ => {}
        }
    }
}

/// The task that a model is for.
pub(crate) fn model_task(model: &Model) -> Task {
    match model {
        Model::Transformer(_) | Model::Seq2Seq(_) => Task::SequenceToSequence,
        Model::Han(_) | Model::Classifier(_) => Task::Classification,
        Model::Gpt(_) => Task::LanguageModelling,
    }
}
