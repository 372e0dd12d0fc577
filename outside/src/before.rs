//! Predicts a class for every token of a sequence.

use burn::module::Module;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Bool, Device, Int, Tensor};

#[derive(Module, Debug)]
pub struct Tagger {
    embedding: Embedding,
    encoder: TransformerEncoder,
    head: Linear,
}

impl Tagger {
    pub fn new(vocabulary: usize, classes: usize, device: &Device) -> Self {
        Self {
            embedding: EmbeddingConfig::new(vocabulary, 32).init(device),
            encoder: TransformerEncoderConfig::new(32, 64, 4, 2)
                .with_dropout(0.0)
                .init(device),
            head: LinearConfig::new(32, classes).init(device),
        }
    }

    /// Maps tokens and padding mask, `[batch, seq]`, to logits, `[batch, seq, classes]`.
    pub fn forward(&self, tokens: Tensor<2, Int>, padding: Tensor<2, Bool>) -> Tensor<3> {
        let embedded = self.embedding.forward(tokens);
        let input = TransformerEncoderInput::new(embedded).mask_pad(padding);
        self.head.forward(self.encoder.forward(input))
    }
}
