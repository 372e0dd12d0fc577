//! What keys are that were left out and follow from others.

use zoo_spec::Dtype;

use crate::sections::data::USUAL_VALID_SHARE;
use crate::sections::training::USUAL_STEPS;
use crate::{
    BleuTokenizer, Config, Data, Direction, LossScale, Metric, Model, Sample, Sentences, Strategy,
    Task, Tying, Vocabulary, WordRule,
};

impl Config {
    /// What a model is judged by.
    pub fn metric(&self) -> Metric {
        self.validation.metric.unwrap_or(match self.data.task() {
            Task::Pairs if self.data.is_made_up() => Metric::Exact,
            Task::Pairs => Metric::Bleu,
            Task::Classes => Metric::Accuracy,
            Task::Continuation => Metric::Loss,
        })
    }

    /// How BLEU splits texts into words, for tasks whose models write texts to be compared.
    pub fn bleu_tokenizer(&self) -> Option<BleuTokenizer> {
        let default = match (&self.data, self.tokenizer.words()) {
            (data, _) if data.task() != Task::Pairs => None,
            // Splitting such words again would count others.
            (_, Some(WordRule::Spaces)) => Some(BleuTokenizer::None),
            (Data::Phrases(data), _) if data.direction == Direction::EnglishToChinese => {
                Some(BleuTokenizer::Zh)
            }
            _ => Some(BleuTokenizer::V13a),
        };
        self.validation.bleu_tokenizer.or(default)
    }

    /// The numbers that a pass computes in.
    pub fn precision(&self) -> Dtype {
        self.training.precision.unwrap_or(self.backend.dtype)
    }

    /// What the loss is multiplied by.
    pub fn loss_scale(&self) -> LossScale {
        let usual = match self.precision() {
            Dtype::F16 => LossScale::Dynamic,
            Dtype::F32 | Dtype::Bf16 => LossScale::None,
        };
        self.training.loss_scale.clone().unwrap_or(usual)
    }

    /// Whether source and target have one vocabulary, if there are both.
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        let usual = match (&self.model, self.data.task()) {
            (_, Task::Classes | Task::Continuation) => None,
            (model, Task::Pairs) => Some(match model.tying() {
                Some(Tying::All) => Vocabulary::Joint,
                _ => Vocabulary::Separate,
            }),
        };
        self.tokenizer.vocabulary().or(usual)
    }

    /// How tokens are chosen, by models that write text.
    pub fn strategy(&self) -> Option<Strategy> {
        let decoding = self.decoding.as_ref()?;
        let usual = match self.model {
            Model::Gpt(_) => Strategy::Sample(Sample::default()),
            _ => Strategy::Greedy,
        };
        Some(decoding.strategy.clone().unwrap_or(usual))
    }

    /// Writes everything out that was left out.
    pub(crate) fn resolve(&mut self, file: &str) {
        self.run.name.get_or_insert_with(|| file.to_owned());
        if self.training.steps.is_none() && self.training.epochs.is_none() {
            self.training.steps = Some(USUAL_STEPS);
        }
        self.training.precision = Some(self.precision());
        self.training.loss_scale = Some(self.loss_scale());
        self.validation.metric = Some(self.metric());
        *self.tokenizer.vocabulary_mut() = self.vocabulary();
        if let Some(rule) = self.tokenizer.words_mut() {
            rule.get_or_insert(match self.data.is_made_up() {
                true => WordRule::Spaces,
                false => WordRule::Marks,
            });
        }
        self.validation.bleu_tokenizer = self.bleu_tokenizer();
        if self.data.task() == Task::Classes {
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
        let usual = |is_given: bool| (!is_given).then_some(USUAL_VALID_SHARE);
        match &mut self.data {
            Data::Parallel(data) => {
                data.valid_share = data.valid_share.or(usual(data.valid.is_some()));
            }
            Data::Labelled(data) => {
                data.valid_share = data.valid_share.or(usual(data.valid.is_some()));
                if matches!(self.model, Model::Han(_)) {
                    data.sentences.get_or_insert(Sentences::Marks);
                }
            }
            Data::Plain(data) => {
                data.valid_share = data.valid_share.or(usual(data.valid.is_some()));
            }
            _ => {}
        }
    }
}
