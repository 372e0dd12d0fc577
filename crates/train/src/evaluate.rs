//! How good a run is at texts: its own that it has not learned from, or others.

use zoo_data::{Encoded, Parts, Windows};

use crate::learn::TextWindow;
use crate::write::generate_config;
use crate::{
    AnyModel, Exam, Examples, Judge, Judged, Judgement, Speech, Texts, Tokenizers, TrainError,
    Trained,
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
        bleu: zoo_metrics::Bleu,
        samples: usize,
    ) -> Result<(Judgement, Vec<String>), TrainError> {
        let texts = only(texts, part);
        if texts.sizes()[2] == 0 {
            return Err(TrainError::Refused(format!(
                "the {} data has no examples: give another --part, or texts of another file",
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
        let judge = Judge {
            generate: self.config.decoding.as_ref().map(|_| generate_config(&self.config)),
            bleu,
            samples,
            device: &self.opened.device,
        };
        let pairs = match &texts {
            Texts::Pairs(parts) => parts.test.as_slice(),
            Texts::Labelled(_) | Texts::Plain(_) => &[],
        };
        let speech = match &self.tokenizers {
            Tokenizers::Pair(pair) => Speech::Pair(pair),
            Tokenizers::Labelled(tokenizer, labels) => Speech::Labelled(tokenizer, labels),
            Tokenizers::Plain(tokenizer) => Speech::Plain(tokenizer),
        };
        macro_rules! judged {
            ($model:expr, $examples:expr) => {{
                let examples = $examples;
                let exam = Exam {
                    examples,
                    texts: pairs,
                    speech,
                };
                $model.judge(&exam, &judge)?
            }};
        }
        let judgement = match (&self.model, &examples) {
            (AnyModel::Transformer(model), Examples::Pairs(parts)) => {
                let longest = model.source_limits().longest;
                fit(part, longest, &parts.test)?;
                judged!(model, parts.test.as_slice())
            }
            (AnyModel::Seq2Seq(model), Examples::Pairs(parts)) => {
                judged!(model, parts.test.as_slice())
            }
            (AnyModel::Classifier(model), Examples::Labelled(parts)) => {
                fit(part, model.limits().longest, &parts.test)?;
                judged!(model, parts.test.as_slice())
            }
            (AnyModel::Han(model), Examples::Documents(parts)) => {
                judged!(model, parts.test.as_slice())
            }
            (AnyModel::Gpt(model), Examples::Plain(parts)) => {
                judged!(model, windows(&self.config, &parts.test).as_slice())
            }
            _ => unreachable!("the model is the config's, and its examples are of its kind"),
        };
        Ok((judgement, notes))
    }
}

/// A part alone, in the place of the test: the others need not become tokens.
fn only(texts: Texts, part: DataPart) -> Texts {
    fn chosen<T: Default>(parts: Parts<T>, part: DataPart) -> Parts<T> {
        Parts {
            train: T::default(),
            valid: T::default(),
            test: match part {
                DataPart::Valid => parts.valid,
                DataPart::Test => parts.test,
            },
        }
    }
    match texts {
        Texts::Pairs(parts) => Texts::Pairs(chosen(parts, part)),
        Texts::Labelled(parts) => Texts::Labelled(chosen(parts, part)),
        Texts::Plain(parts) => Texts::Plain(chosen(parts, part)),
    }
}

/// Whether the model has a place for every token.
fn fit<E: Encoded>(
    part: DataPart,
    longest: Option<usize>,
    examples: &[E],
) -> Result<(), TrainError> {
    let length = examples.iter().map(|example| example.extent().width).max();
    match (longest, length) {
        (Some(longest), Some(length)) if length > longest => Err(TrainError::TooLong {
            part: part.word(),
            length,
            longest,
        }),
        _ => Ok(()),
    }
}

/// The whole text in windows, as it was learned from.
fn windows(config: &zoo_config::Config, ids: &[u32]) -> Vec<TextWindow> {
    let context = match &config.model {
        zoo_config::Model::Gpt(model) => model.context,
        _ => unreachable!("running text is for a GPT"),
    };
    let windows = Windows::new(context, 1, 0);
    let own = windows.all(ids).map(|window| TextWindow {
        input: window.input.to_vec(),
        target: window.target.to_vec(),
    });
    own.collect()
}
