//! What training asks of every model: how far it is from what it should say.

use std::fmt::Display;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use zoo_attention::MultiHeadAttention;
use zoo_data::{DocumentIds, LabelledIds, PairIds};
use zoo_kernels::smoothed_cross_entropy;
use zoo_models::{
    Classifier, Documents, Gpt, Han, ModelError, Seq2Seq, Tokens, Transformer, token_loss,
};

use super::{Example, TextWindow};

/// A model that can be trained here.
pub trait Learns: Module + Display + Sync + 'static {
    /// What it learns from.
    type Example: Example;

    /// The mean cross-entropy of what is to be said of the examples, `[1]` in `f32`.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if the model cannot take one of them.
    fn loss(
        &self,
        examples: &[&Self::Example],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError>;

    /// Its multi-head attentions.
    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        vec![]
    }
}

impl Learns for Transformer {
    type Example = PairIds;

    fn loss(
        &self,
        examples: &[&PairIds],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let limits = [self.source_limits(), self.target_limits()];
        let [source, target, wanted] = pair_tokens(examples, limits, device)?;
        Ok(token_loss(
            self.forward(&source, &target),
            &wanted,
            smoothing,
        ))
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        let encoder = self.encoder.layers.iter().map(|layer| &layer.attention);
        let decoder = self.decoder.layers.iter();
        let decoder = decoder.flat_map(|layer| [&layer.attention, &layer.cross_attention]);
        encoder.chain(decoder).collect()
    }
}

impl Learns for Seq2Seq {
    type Example = PairIds;

    fn loss(
        &self,
        examples: &[&PairIds],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let limits = [self.source_limits(), self.target_limits()];
        let [source, target, wanted] = pair_tokens(examples, limits, device)?;
        let said = self.forward(&source, &target, 1.0, 0).logits;
        Ok(token_loss(said, &wanted, smoothing))
    }
}

impl Learns for Gpt {
    type Example = TextWindow;

    fn loss(
        &self,
        examples: &[&TextWindow],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let inputs: Vec<&[u32]> = examples.iter().map(|it| it.input.as_slice()).collect();
        let targets: Vec<&[u32]> = examples.iter().map(|it| it.target.as_slice()).collect();
        let inputs = Tokens::new(&inputs, self.limits(), device)?;
        let wanted = Tokens::new(&targets, self.limits(), device)?;
        Ok(token_loss(self.forward(&inputs), &wanted, smoothing))
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }
}

impl Learns for Classifier {
    type Example = LabelledIds;

    fn loss(
        &self,
        examples: &[&LabelledIds],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let texts: Vec<&[u32]> = examples.iter().map(|it| it.ids.as_slice()).collect();
        let classes: Vec<usize> = examples.iter().map(|it| it.label).collect();
        let said = self.forward(&Tokens::new(&texts, self.limits(), device)?);
        Ok(class_loss(said, &classes, smoothing))
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }
}

impl Learns for Han {
    type Example = DocumentIds;

    fn loss(
        &self,
        examples: &[&DocumentIds],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let documents: Vec<&[Vec<u32>]> = examples.iter().map(|it| &*it.sentences).collect();
        let classes: Vec<usize> = examples.iter().map(|it| it.label).collect();
        let said = self.forward(&Documents::new(&documents, self.limits(), device)?);
        Ok(class_loss(said.logits, &classes, smoothing))
    }
}

/// What is given, what a decoder is given, and what it is to say.
fn pair_tokens(
    examples: &[&PairIds],
    [of_source, of_target]: [zoo_models::Limits; 2],
    device: &Device,
) -> Result<[Tokens; 3], ModelError> {
    let sources: Vec<&[u32]> = examples.iter().map(|it| it.source.as_slice()).collect();
    let inputs: Vec<Vec<u32>> = examples.iter().map(|it| it.decoder_input()).collect();
    let outputs: Vec<Vec<u32>> = examples.iter().map(|it| it.decoder_output()).collect();
    Ok([
        Tokens::new(&sources, of_source, device)?,
        Tokens::new(&inputs, of_target, device)?,
        Tokens::new(&outputs, of_target, device)?,
    ])
}

/// The mean cross-entropy of predictions with the classes that are right, `[1]` in `f32`.
///
/// # Shapes
///
/// - logits: `[batch, classes]`
fn class_loss(logits: Tensor<2>, classes: &[usize], smoothing: f64) -> Tensor<1> {
    let rows = classes.len();
    let right: Vec<i64> = classes.iter().map(|class| *class as i64).collect();
    let right = Tensor::from_data(TensorData::new(right, [rows]), &logits.device());
    smoothed_cross_entropy(logits, right, &vec![true; rows], smoothing)
}
