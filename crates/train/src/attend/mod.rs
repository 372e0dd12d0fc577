//! Where a model that was trained looks, as a page and as pictures.
//!
//! - Transformer: encoder, decoder and cross-attention, every layer and head;
//! - GPT, classifier: every layer and head, and what the classifier pools by, if it learned that;
//! - Seq2Seq: the alignment;
//! - HAN: words and sentences, shaded.
//!
//! Weights are those that the layers compute with, whatever the mechanism: see
//! [`Transformer::look`](zoo_models::Transformer::look).

mod classes;
mod heads;
mod pairs;
mod text;

use zoo_viz::{AttentionPage, Heat, Part};

use crate::{AnyModel, TrainError, Trained};

/// Which attention of a Transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// Of the source to itself.
    Encoder,
    /// Of the target to itself.
    Decoder,
    /// Of the target to the source.
    Cross,
}

/// Where a model looks.
#[derive(Debug, Clone)]
pub struct Attention {
    /// All of it.
    pub page: AttentionPage,
    /// The part that a picture is made of if nobody says which.
    chosen: usize,
}

impl Trained {
    /// Where the model looks when it reads a text. For models of two texts the second is the
    /// target; if none is given, it is what the model writes by itself.
    ///
    /// # Errors
    ///
    /// [`TrainError::Refused`] if there is nothing in the text, or a target or a side is asked
    /// for where there is none; [`TrainError::Model`] if it is too long.
    pub fn attend(
        &self,
        text: &str,
        target: Option<&str>,
        side: Option<Side>,
    ) -> Result<Attention, TrainError> {
        let word = self.config.model.word();
        let of_pairs = matches!(self.model, AnyModel::Transformer(_) | AnyModel::Seq2Seq(_));
        if target.is_some() && !of_pairs {
            return Err(TrainError::Refused(format!(
                "--target is for models that make one text of another, and this is a {word}: leave \
                 it out"
            )));
        }
        if side.is_some() && !matches!(self.model, AnyModel::Transformer(_)) {
            return Err(TrainError::Refused(format!(
                "--part is for a transformer, which has several, and this is a {word}: leave it out"
            )));
        }
        let seen = match &self.model {
            AnyModel::Transformer(model) => pairs::transformer(self, model, text, target)?,
            AnyModel::Seq2Seq(model) => pairs::seq2seq(self, model, text, target)?,
            AnyModel::Gpt(model) => text::gpt(self, model, text)?,
            AnyModel::Classifier(model) => classes::classifier(self, model, text)?,
            AnyModel::Han(model) => classes::han(self, model, text)?,
        };
        let mut parts = seen.parts;
        // Of two texts, what lies between them says most.
        let mut chosen = match self.model {
            AnyModel::Transformer(_) => 2,
            _ => 0,
        };
        if let Some(side) = side {
            let at = match side {
                Side::Encoder => 0,
                Side::Decoder => 1,
                Side::Cross => 2,
            };
            parts = vec![parts.swap_remove(at)];
            chosen = 0;
        }
        let mut notes = vec![self.made_by()];
        notes.extend(seen.notes);
        let name = self.config.run.name.as_deref().unwrap_or("the model");
        Ok(Attention {
            page: AttentionPage {
                title: format!("Where {name} looks"),
                notes,
                parts,
            },
            chosen,
        })
    }

    /// Which weights these are, and what computed with them.
    fn made_by(&self) -> String {
        let step = match self.step {
            Some(step) => format!("step {}", zoo_viz::units::count(step)),
            None => "averaged weights".to_owned(),
        };
        let summary = self.model.summary();
        format!("{}, {step}, {}", summary.title, self.opened)
    }
}

/// What a model of some kind shows.
struct Seen {
    notes: Vec<String>,
    parts: Vec<Part>,
}

impl Attention {
    /// One matrix of it: of a layer and a head, counted from 1, where there are any.
    ///
    /// # Errors
    ///
    /// [`TrainError::Picture`] if there is no such layer or head, [`TrainError::Refused`] if there
    /// are none at all.
    pub fn heat(&self, layer: Option<usize>, head: Option<usize>) -> Result<Heat<'_>, TrainError> {
        match &self.page.parts[self.chosen] {
            Part::Heads(heads) => Ok(heads.head(layer.unwrap_or(1), head.unwrap_or(1))?),
            Part::Alignment(_) if layer.is_some() || head.is_some() => Err(TrainError::Refused(
                "an alignment has no layers and heads: leave --layer and --head out".to_owned(),
            )),
            Part::Alignment(alignment) => Ok(alignment.heat()),
            Part::Document(_) => Err(TrainError::Refused(
                "a document is shown as a page, and has no heat map: leave --svg and --png out"
                    .to_owned(),
            )),
        }
    }
}

/// That there is something to look at.
fn not_empty(what: &str, ids: &[u32]) -> Result<(), TrainError> {
    match ids.is_empty() {
        true => Err(TrainError::Refused(format!(
            "there is nothing to look at: {what} has no tokens"
        ))),
        false => Ok(()),
    }
}
