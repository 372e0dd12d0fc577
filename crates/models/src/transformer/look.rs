//! Where a Transformer looks.

use burn::tensor::Tensor;

use super::Transformer;
use crate::Tokens;
use crate::blocks::Sight;

/// Where the layers of a [`Transformer`] look.
#[derive(Debug, Clone)]
pub struct TransformerLook {
    /// `[batch, heads, seq_k, seq_k]` for each layer of the encoder.
    pub encoder: Vec<Tensor<4>>,
    /// `[batch, heads, seq_q, seq_q]` for each layer of the decoder.
    pub decoder: Vec<Tensor<4>>,
    /// `[batch, heads, seq_q, seq_k]` for each layer of the decoder: where it looks in what was
    /// encoded.
    pub cross: Vec<Tensor<4>>,
}

impl Transformer {
    /// Where each token looks: the weights of every layer, whatever the mechanisms, as
    /// [`explain`](zoo_attention::explain()) has them.
    ///
    /// # Shapes
    ///
    /// - source: `[batch, seq_k]`
    /// - target: `[batch, seq_q]`, with its beginning
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if rows differ in length, or are empty.
    pub fn look(&self, source: &Tokens, target: &Tokens) -> TransformerLook {
        for tokens in [source, target] {
            tokens.assert_whole("Transformer");
        }
        assert!(
            source.dims()[0] == target.dims()[0],
            "Transformer: a target must be [batch = {}, seq] as the source is, got {:?}",
            source.dims()[0],
            target.dims()
        );
        let sight = Sight {
            lengths: source.lengths(),
            is_causal: false,
            entropies: None,
        };
        let [mut encoder, mut decoder, mut cross] = [const { Vec::new() }; 3];
        let mut places = self.embedded_source(source);
        for layer in &self.encoder.layers {
            places = layer.look(places, sight, &mut encoder);
        }
        let encoded = self.normed(places, &self.encoder.norm);
        let sight = Sight {
            lengths: target.lengths(),
            is_causal: true,
            entropies: None,
        };
        let vectors = &self.target_embedding;
        let mut places = self.embedded(vectors, &self.target_positions, target.ids(), 0);
        for layer in &self.decoder.layers {
            places = layer.look(places, sight, &encoded, [&mut decoder, &mut cross]);
        }
        TransformerLook {
            encoder,
            decoder,
            cross,
        }
    }
}
