//! Where a model that was trained looks, as a page and as pictures.
//!
//! - Transformer: encoder, decoder and cross-attention, every layer and head;
//! - GPT, classifier: every layer and head, and what the classifier pools by, if it learned that;
//! - Seq2Seq: the alignment;
//! - HAN: words and sentences, shaded.
//!
//! Weights are those that the layers compute with, whatever the mechanism: see
//! [`Transformer::look`](zoo_models::Transformer::look).

use burn::tensor::Tensor;
use zoo_data::Tokenizer;
use zoo_viz::{AttentionPage, HeadMaps, Heat, Matrix, Part, PictureError};

use crate::{Result, TrainError, Trained};

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
    ) -> Result<Attention> {
        let word = self.config.model.word();
        if target.is_some() && self.model.translator().is_none() {
            return Err(TrainError::Refused(format!(
                "--target is for models that make one text of another, and this is a {word}: leave \
                 it out"
            )));
        }
        let seen = self.model.look(self, text, target)?;
        let mut parts = seen.parts;
        let has_sides = self.model.translator().is_some() && parts.len() == 3;
        // Of two texts, what lies between them says most.
        let chosen = match (has_sides, side) {
            (true, None) => Side::Cross as usize,
            (true, Some(side)) => {
                parts = vec![parts.swap_remove(side as usize)];
                0
            }
            (false, None) => 0,
            (false, Some(_)) => {
                return Err(TrainError::Refused(format!(
                    "--part is for a transformer, which has several, and this is a {word}: leave \
                     it out"
                )));
            }
        };
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
        let title = summary.lines().next().unwrap_or_default();
        format!("{title}, {step}, {}", self.opened)
    }
}

/// What a model of some task shows.
pub(crate) struct Seen {
    pub(crate) notes: Vec<String>,
    pub(crate) parts: Vec<Part>,
}

impl Attention {
    /// One matrix of it: of a layer and a head, counted from 1, where there are any.
    ///
    /// # Errors
    ///
    /// [`TrainError::Picture`] if there is no such layer or head, [`TrainError::Refused`] if there
    /// are none at all.
    pub fn heat(&self, layer: Option<usize>, head: Option<usize>) -> Result<Heat<'_>> {
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

pub(crate) fn not_empty(what: &str, ids: &[u32]) -> Result<()> {
    match ids.is_empty() {
        true => Err(nothing(what)),
        false => Ok(()),
    }
}

pub(crate) fn nothing(what: &str) -> TrainError {
    TrainError::Refused(format!("there is nothing to look at: {what} has no tokens"))
}

pub(crate) fn written(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    let token = |id: &u32| tokenizer.token(*id).unwrap_or_else(|| format!("#{id}"));
    ids.iter().map(token).collect()
}

/// The heads of layers, `[1, heads, queries, keys]` each.
pub(crate) fn maps(
    title: &str,
    queries: &[String],
    keys: &[String],
    layers: Vec<Tensor<4>>,
) -> Result<Part, PictureError> {
    let layers = layers.into_iter().map(of_heads);
    let layers = layers.collect::<Result<_, _>>()?;
    HeadMaps::new(title, queries.to_vec(), keys.to_vec(), layers).map(Part::Heads)
}

/// `[1, heads, queries, keys]` as a matrix a head.
fn of_heads(weights: Tensor<4>) -> Result<Vec<Matrix>, PictureError> {
    let [_, _, queries, keys] = weights.dims();
    let numbers: Vec<f32> = weights.into_data().iter::<f32>().collect();
    numbers
        .chunks(queries * keys)
        .map(|head| Matrix::new(queries, keys, head.to_vec()))
        .collect()
}

/// `[1, queries, keys]` as a matrix.
pub(crate) fn matrix(weights: Tensor<3>) -> Result<Matrix, PictureError> {
    let [_, queries, keys] = weights.dims();
    Matrix::new(queries, keys, weights.into_data().iter::<f32>().collect())
}
