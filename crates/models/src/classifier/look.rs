//! Where a classifier looks.

use burn::tensor::Tensor;

use super::Classifier;
use crate::Tokens;
use crate::blocks::Sight;

/// Where a [`Classifier`] looks, and what it says.
#[derive(Debug, Clone)]
pub struct ClassifierLook {
    /// `[batch, heads, places, places]` for each layer; with `pooling: cls` there is one place
    /// more, before the others.
    pub layers: Vec<Tensor<4>>,
    /// `[batch, seq]`: how much of each place is in the vector that is classified, where that is
    /// learned.
    pub pooling: Option<Tensor<2>>,
    /// `[batch, classes]`.
    pub logits: Tensor<2>,
}

impl Classifier {
    /// Where each token looks: the weights of every layer, whatever the mechanism, as
    /// [`explain`](zoo_attention::explain()) has them; and what
    /// [`forward`](Self::forward) says.
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if rows differ in length, or are empty.
    pub fn look(&self, tokens: &Tokens) -> ClassifierLook {
        tokens.assert_whole("classifier");
        let (mut places, lengths) = self.embedded(tokens);
        let sight = Sight {
            lengths: &lengths,
            is_causal: false,
            entropies: None,
        };
        let mut layers = Vec::new();
        for layer in &self.layers {
            places = layer.look(places, sight, &mut layers);
        }
        let places = self.normed(places);
        let pooling = self.pooling.as_ref();
        ClassifierLook {
            layers,
            pooling: pooling.map(|pooling| {
                let pooled = pooling.forward(places.clone(), tokens.pattern());
                pooled.weights
            }),
            logits: self.head.forward(self.pooled(places, tokens)),
        }
    }
}
