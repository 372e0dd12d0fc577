//! Attention weights of a trained model, as an HTML page and as heatmaps.
//!
//! - Transformer: encoder, decoder and cross-attention, every layer and head;
//! - GPT, classifier: every layer and head, and the classifier's pooling weights, if they are
//!   learned;
//! - Seq2Seq: the alignment;
//! - HAN: word and sentence weights.
//!
//! The weights are the ones that the layers compute with, for every mechanism: see
//! [`Transformer::attention_weights`](zoo_models::Transformer::attention_weights).

use burn::tensor::Tensor;
use zoo_config::Model;
use zoo_data::Tokenizer;
use zoo_viz::{AttentionPage, HeadMaps, Heatmap, Matrix, Part, VizError};

use crate::queries::Queries;
use crate::{Result, TrainError, TrainedRun};

/// The attention layers of a Transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AttentionKind {
    /// Encoder self-attention.
    #[value(help = "Show the self-attention of the encoder")]
    Encoder,
    /// Decoder self-attention.
    #[value(help = "Show the self-attention of the decoder")]
    Decoder,
    /// Cross-attention of the decoder to the encoder.
    #[value(help = "Show the attention of the decoder to the encoder")]
    Cross,
}

/// What to show the attention of.
#[derive(Debug, Clone, Default)]
pub struct AttentionRequest<'a> {
    /// The text that the model reads.
    pub text: &'a str,
    /// For sequence-to-sequence models, the decoder's text instead of the model's own output.
    pub target: Option<&'a str>,
    /// The expected output, which is shown with the model's own.
    pub reference: Option<&'a str>,
    /// The attention of a Transformer to show instead of all.
    pub kind: Option<AttentionKind>,
    /// The queries to show.
    pub queries: Queries,
}

/// The attention weights of a model for a text.
#[derive(Debug, Clone)]
pub struct AttentionMaps {
    /// All weights. The most informative are first: those of the cross-attention.
    pub page: AttentionPage,
    /// Which queries are shown, if not all.
    pub selection: Vec<String>,
}

impl TrainedRun {
    /// Computes the attention weights for a text. For sequence-to-sequence models, `target` is the
    /// decoder's text; if it is not given, the model's own output is used. A text that is empty or
    /// too long, a target for other models, and a kind that the model does not have are errors.
    pub fn attention_maps(
        &self,
        text: &str,
        target: Option<&str>,
        kind: Option<AttentionKind>,
    ) -> Result<AttentionMaps> {
        self.attention(&AttentionRequest {
            text,
            target,
            kind,
            ..AttentionRequest::default()
        })
    }

    /// [`attention_maps`](Self::attention_maps) of a request.
    pub fn attention(&self, request: &AttentionRequest<'_>) -> Result<AttentionMaps> {
        let AttentionRequest { target, kind, .. } = *request;
        let model = self.config.model.name();
        let has_heads = match self.config.model {
            Model::Transformer(_) | Model::Gpt(_) | Model::Classifier(_) => true,
            Model::Seq2Seq(_) | Model::Han(_) => false,
        };
        if !request.queries.is_default() && !has_heads {
            return Err(TrainError::Refused(format!(
                "--queries is for models with attention heads; this run is a {model}\n  help: omit \
                 it"
            )));
        }
        if target.is_some() && self.translator().is_err() {
            return Err(TrainError::Refused(format!(
                "--target is for sequence-to-sequence models; this run is a {model}\n  help: omit \
                 it"
            )));
        }
        let has_kinds = matches!(self.config.model, Model::Transformer(_));
        if kind.is_some() && !has_kinds {
            return Err(TrainError::Refused(format!(
                "--attention is for a transformer; this run is a {model}\n  help: omit it"
            )));
        }
        let view = self.model.attention_view(self, request)?;
        let mut parts = view.parts;
        if let Some(kind) = kind {
            parts = vec![parts.swap_remove(kind as usize)];
        } else if has_kinds {
            // The cross-attention is the most informative.
            parts.rotate_left(AttentionKind::Cross as usize);
        }
        let mut notes = vec![self.page_subtitle()];
        notes.extend(view.notes);
        notes.extend(request.reference.map(|text| format!("reference: {text}")));
        notes.extend(view.selection.clone());
        let name = self.config.run.name.as_deref().unwrap_or("the model");
        Ok(AttentionMaps {
            page: AttentionPage {
                title: format!("Attention weights of {name}"),
                notes,
                parts,
            },
            selection: view.selection,
        })
    }

    fn page_subtitle(&self) -> String {
        let step = match self.step {
            Some(step) => format!("step {}", zoo_viz::units::count(step)),
            None => self.weights_without_step().to_owned(),
        };
        let summary = self.model.summary();
        let title = summary.lines().next().unwrap_or_default();
        format!("{title}, {step}, {}", self.opened)
    }
}

#[derive(Debug, Default)]
pub(crate) struct AttentionView {
    pub(crate) notes: Vec<String>,
    /// See [`AttentionMaps::selection`].
    pub(crate) selection: Vec<String>,
    pub(crate) parts: Vec<Part>,
}

impl AttentionMaps {
    /// The heatmap of a layer and a head, counted from 1, or of the sharpest head; an error if there
    /// is none.
    pub fn heatmap(&self, layer: Option<usize>, head: Option<usize>) -> Result<Heatmap<'_>> {
        match &self.page.parts[0] {
            Part::Heads(heads) => {
                let sharpest = heads.sharpest(layer, head).unwrap_or((1, 1));
                let (layer, head) = (layer.unwrap_or(sharpest.0), head.unwrap_or(sharpest.1));
                let exists = |layer: usize, head: usize| heads.head(layer, head).is_ok();
                let layers = (1..).take_while(|layer| exists(*layer, 1)).count();
                check_index(heads.title(), "layer", layer, layers)?;
                let num_heads = (1..).take_while(|head| exists(layer, *head)).count();
                check_index(heads.title(), "head", head, num_heads)?;
                Ok(heads.head(layer, head)?)
            }
            Part::Alignment(_) if layer.is_some() || head.is_some() => Err(TrainError::Refused(
                "a seq2seq alignment has no layers or heads\n  help: omit --layer and --head"
                    .to_owned(),
            )),
            Part::Alignment(alignment) => Ok(alignment.heatmap()),
            Part::Document(_) => Err(TrainError::Refused(
                "a HAN has no heatmap, only an HTML page\n  help: omit --svg and --png".to_owned(),
            )),
        }
    }
}

fn check_index(title: &str, unit: &str, index: usize, count: usize) -> Result<()> {
    let (plural, allowed) = match count {
        _ if (1..=count).contains(&index) => return Ok(()),
        1 => ("", "1".to_owned()),
        2 => ("s", "1 or 2".to_owned()),
        _ => ("s", format!("from 1 to {count}")),
    };
    Err(TrainError::Refused(format!(
        "{} has {count} {unit}{plural}; --{unit} must be {allowed}",
        title.to_lowercase()
    )))
}

pub(crate) fn check_not_empty(what: &str, ids: &[u32]) -> Result<()> {
    if ids.is_empty() {
        return Err(no_tokens(what));
    }
    Ok(())
}

pub(crate) fn no_tokens(what: &str) -> TrainError {
    TrainError::Refused(format!("{what} has no tokens"))
}

pub(crate) fn token_texts(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    let token = |id: &u32| tokenizer.token(*id).unwrap_or_else(|| format!("#{id}"));
    ids.iter().map(token).collect()
}

/// Titles of the axes of self-attention.
pub(crate) const AXES: [&str; 2] = ["query", "key"];

/// Maps of the weights of some `rows` of the queries.
pub(crate) fn head_maps(
    title: &str,
    [query, key]: [&str; 2],
    (queries, rows): (&[String], &[usize]),
    keys: &[String],
    layers: Vec<Tensor<4>>,
) -> Result<Part, VizError> {
    let layers = layers.into_iter().map(head_matrices);
    let layers = layers.collect::<Result<_, _>>()?;
    let selected = rows.iter().map(|row| queries[*row].clone()).collect();
    let maps = HeadMaps::new(title, selected, keys.to_vec(), layers)?;
    let maps = maps.with_query_positions(rows.to_vec())?;
    Ok(Part::Heads(maps.with_axes(query, key)))
}

/// One matrix per head of `[1, heads, queries, keys]`.
fn head_matrices(weights: Tensor<4>) -> Result<Vec<Matrix>, VizError> {
    let [_, _, queries, keys] = weights.dims();
    let values: Vec<f32> = weights.into_data().iter::<f32>().collect();
    let heads = values.chunks(queries * keys).map(<[f32]>::to_vec);
    heads.map(|head| Matrix::new(queries, keys, head)).collect()
}

/// The matrix of `[1, queries, keys]`.
pub(crate) fn to_matrix(weights: Tensor<3>) -> Result<Matrix, VizError> {
    let [_, queries, keys] = weights.dims();
    Matrix::new(queries, keys, weights.into_data().iter::<f32>().collect())
}
