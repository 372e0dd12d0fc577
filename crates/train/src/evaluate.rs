//! How good a run is at texts: its own that it has not learned from, or others.

use zoo_config::Model;
use zoo_data::{Pair, Parts};

use crate::learn::{check_lengths, pieces_of};
use crate::write::generate_config;
use crate::{
    AnyModel, Exam, Examples, Judge, Judged, Judgement, Texts, Tokenizers, TrainError, Trained,
};

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DataPart {
    /// What the run was validated with.
    Valid,
    /// What nobody looked at while it was trained.
    Test,
}

impl DataPart {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Valid => "validation",
            Self::Test => "test",
        }
    }
}

impl Trained {
    /// How good the model is at a part of texts, and what was cut off of them: lines to show.
    ///
    /// # Errors
    ///
    /// [`TrainError::Refused`] if there is nothing in that part, or these are no texts for this
    /// model; [`TrainError::TooLong`] and [`TrainError::Data`] for texts it cannot take.
    pub fn evaluate(
        &self,
        texts: Texts,
        part: DataPart,
        bleu: zoo_data::metrics::Bleu,
        samples: usize,
    ) -> Result<(Judgement, Vec<String>), TrainError> {
        let texts = only(texts, part);
        if texts.sizes() == [0; 3] {
            return Err(TrainError::Refused(format!(
                "the {} data has no examples: choose another --part, or give texts of your own",
                part.word()
            )));
        }
        let fits = matches!(
            (&self.tokenizers, &texts),
            (Tokenizers::Pair(_), Texts::Pairs(_))
                | (Tokenizers::Labelled(..), Texts::Labelled(_))
                | (Tokenizers::Plain(_), Texts::Plain(_))
        );
        if !fits {
            return Err(TrainError::Refused(format!(
                "a {} cannot be judged by such texts: it takes {}",
                self.config.model.word(),
                match self.tokenizers {
                    Tokenizers::Pair(_) => "--source FILE with --target FILE",
                    Tokenizers::Labelled(..) => "--labelled FILE",
                    Tokenizers::Plain(_) => "--text FILE",
                }
            )));
        }
        let (examples, notes) = self.tokenizers.encode(&self.config, &texts)?;
        check_lengths(&self.config, &examples)?;
        let decoding = self.config.decoding.as_ref();
        let asking = Asking {
            trained: self,
            texts: match &texts {
                Texts::Pairs(parts) => of(parts, part),
                Texts::Labelled(_) | Texts::Plain(_) => &[],
            },
            judge: Judge {
                generate: decoding.map(|_| generate_config(&self.config)),
                bleu,
                samples,
                device: self.opened.device.clone(),
            },
        };
        let judgement = match (&self.model, &examples) {
            (AnyModel::Transformer(model), Examples::Pairs(parts)) => {
                asking.ask(model, of(parts, part))
            }
            (AnyModel::Seq2Seq(model), Examples::Pairs(parts)) => {
                asking.ask(model, of(parts, part))
            }
            (AnyModel::Classifier(model), Examples::Labelled(parts)) => {
                asking.ask(model, of(parts, part))
            }
            (AnyModel::Han(model), Examples::Documents(parts)) => {
                asking.ask(model, of(parts, part))
            }
            (AnyModel::Gpt(model), Examples::Plain(parts)) => {
                let Model::Gpt(said) = &self.config.model else {
                    unreachable!("the model is the config's");
                };
                asking.ask(model, &pieces_of(of(parts, part), said.context, None))
            }
            _ => unreachable!("the model is the config's, and its examples are of its kind"),
        };
        Ok((judgement?, notes))
    }
}

/// Everything but a model and its examples.
struct Asking<'a> {
    trained: &'a Trained,
    texts: &'a [Pair],
    judge: Judge,
}

impl Asking<'_> {
    fn ask<M: Judged>(&self, model: &M, examples: &[M::Example]) -> Result<Judgement, TrainError> {
        let exam = Exam {
            examples,
            texts: self.texts,
            speech: self.trained.tokenizers.speech(),
        };
        model.judge(&exam, &self.judge)
    }
}

/// A part alone: the others need not become tokens.
fn only(texts: Texts, part: DataPart) -> Texts {
    fn alone<T: Default>(parts: Parts<T>, part: DataPart) -> Parts<T> {
        let (train, none) = (T::default(), T::default());
        let (valid, test) = match part {
            DataPart::Valid => (parts.valid, none),
            DataPart::Test => (none, parts.test),
        };
        Parts { train, valid, test }
    }
    match texts {
        Texts::Pairs(parts) => Texts::Pairs(alone(parts, part)),
        Texts::Labelled(parts) => Texts::Labelled(alone(parts, part)),
        Texts::Plain(parts) => Texts::Plain(alone(parts, part)),
    }
}

fn of<T>(parts: &Parts<Vec<T>>, part: DataPart) -> &[T] {
    match part {
        DataPart::Valid => &parts.valid,
        DataPart::Test => &parts.test,
    }
}
