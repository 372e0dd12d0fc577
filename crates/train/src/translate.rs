//! Texts made of texts by a run that was trained.

use zoo_data::{PairTokenizers, UNKNOWN};
use zoo_models::{GenerateConfig, Limits};

use crate::{AnyModel, Tokenizers, TrainError, Trained, Translates};

/// What became of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Translated {
    /// What was written for it, the best first.
    Texts(Vec<Translation>),
    /// There is nothing in it, and so nothing was written.
    Empty,
    /// It has more tokens than the model has places, and nothing was written.
    TooLong {
        /// Its tokens.
        length: usize,
        /// Places there are.
        longest: usize,
    },
}

/// A text that was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Translation {
    /// The text.
    pub text: String,
    /// What texts are compared by: the logarithm of how likely the model thinks it, divided by
    /// the length penalty.
    pub score: f64,
}

impl Trained {
    /// What the model writes for each of the texts, in their order.
    ///
    /// # Errors
    ///
    /// [`TrainError::WrongModel`] if it writes none, [`TrainError::Model`] if the strategy cannot
    /// be.
    pub fn translate(
        &self,
        texts: &[&str],
        config: &GenerateConfig,
    ) -> Result<Vec<Translated>, TrainError> {
        let (model, tokenizers, limits) = self.translator()?;
        let ids = tokenizers.source().encode_all(texts.iter().copied())?;
        let too_long = |ids: &[u32]| limits.longest.filter(|longest| ids.len() > *longest);
        let sources: Vec<&[u32]> = ids
            .iter()
            .map(Vec::as_slice)
            .filter(|ids| !ids.is_empty() && too_long(ids).is_none())
            .collect();
        // Also where there is nothing to write: a strategy that cannot be is an error then, too.
        config
            .check(tokenizers.target().vocabulary())
            .map_err(TrainError::model("decoding"))?;
        let written = model
            .translate(&sources, config, &self.opened.device)
            .map_err(TrainError::model("decoding"))?;
        let mut written = written.into_iter();
        ids.iter()
            .map(|ids| {
                if ids.is_empty() {
                    return Ok(Translated::Empty);
                }
                if let Some(longest) = too_long(ids) {
                    let length = ids.len();
                    return Ok(Translated::TooLong { length, longest });
                }
                let texts = written.next().unwrap_or_default();
                let texts = texts.into_iter().map(|text| {
                    Ok(Translation {
                        score: text.score,
                        text: one_line(&tokenizers.target().decode(&text.tokens)?),
                    })
                });
                Ok(Translated::Texts(texts.collect::<Result<_, TrainError>>()?))
            })
            .collect()
    }

    /// How many tokens each of these texts becomes, and how many of them are unknown: the model
    /// sees that there is something, and not what.
    ///
    /// # Errors
    ///
    /// [`TrainError::WrongModel`] if the model translates nothing.
    pub fn unknown_tokens(&self, texts: &[&str]) -> Result<Vec<(usize, usize)>, TrainError> {
        let (_, tokenizers, _) = self.translator()?;
        let ids = tokenizers.source().encode_all(texts.iter().copied())?;
        let counts = ids.iter().map(|ids| {
            let unknown = ids.iter().filter(|id| **id == UNKNOWN).count();
            (ids.len(), unknown)
        });
        Ok(counts.collect())
    }

    /// The model that writes texts for texts, its tokenizers, and what it takes.
    pub(crate) fn translator(
        &self,
    ) -> Result<(&dyn Translates, &PairTokenizers, Limits), TrainError> {
        match (&self.model, &self.tokenizers) {
            (AnyModel::Transformer(model), Tokenizers::Pair(pair)) => {
                Ok((model, pair, model.source_limits()))
            }
            (AnyModel::Seq2Seq(model), Tokenizers::Pair(pair)) => {
                Ok((model, pair, model.source_limits()))
            }
            _ => Err(self.cannot("translate")),
        }
    }

    /// What to say to somebody who asks for what the model is not for.
    pub(crate) fn cannot(&self, verb: &'static str) -> TrainError {
        TrainError::WrongModel {
            folder: self.folder.path().into(),
            model: self.config.model.word(),
            verb,
            instead: match self.model {
                AnyModel::Transformer(_) | AnyModel::Seq2Seq(_) => {
                    "`zoo translate` writes texts with it"
                }
                AnyModel::Gpt(_) => "`zoo generate` goes on with a text by it",
                AnyModel::Classifier(_) | AnyModel::Han(_) => {
                    "`zoo classify` tells classes of texts by it"
                }
            },
        }
    }
}

/// A text in one line: what is written for a line must be one.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
