//! Where a GPT looks.

use burn::tensor::Tensor;

use super::Gpt;
use crate::Tokens;
use crate::blocks::Sight;

impl Gpt {
    /// Where each token looks: the weights of every layer, whatever the mechanism, as
    /// [`explain`](zoo_attention::explain()) has them.
    ///
    /// # Shapes
    ///
    /// - tokens: `[batch, seq]`
    /// - result: `[batch, heads, seq, seq]` for each layer
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if rows differ in length, or are empty.
    pub fn look(&self, tokens: &Tokens) -> Vec<Tensor<4>> {
        tokens.assert_whole("GPT");
        let sight = Sight {
            lengths: tokens.lengths(),
            is_causal: true,
            entropies: None,
        };
        let mut looked = Vec::new();
        let mut places = self.embedded(tokens.ids(), 0);
        for layer in &self.layers {
            places = layer.look(places, sight, &mut looked);
        }
        looked
    }
}
