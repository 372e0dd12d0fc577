//! Where a layer looks, and how spread out that is.

use burn::tensor::Tensor;

use super::MultiHeadAttention;
use crate::analysis::entropy::Entropies;
use crate::analysis::explain::explain_by;
use crate::analysis::weighing::Weighing;
use crate::mechanisms::{self, Mechanism, Mode};
use crate::{AttentionOptions, AttentionShape, Pattern};

/// The mechanism's weights are not a distribution over the keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mechanism {mechanism} has no entropy: {reason}")]
pub struct NoEntropy {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Why, as its capabilities say.
    pub reason: &'static str,
}

impl MultiHeadAttention {
    /// Where the queries `rows` look, whatever the mechanism: see [`explain`](crate::explain()).
    ///
    /// # Shapes
    ///
    /// - query: `[batch, seq_q, d_model]`
    /// - key: `[batch, seq_k, kdim]`
    /// - rows: any of the queries, from `0` to `seq_q - 1`, in any order
    /// - result: `[batch, heads, rows, seq_k]`
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if a row is no query, or there are none.
    pub fn explain(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        pattern: Pattern,
        rows: &[usize],
    ) -> Tensor<4> {
        let (query, key, weighing, options) = self.looking(query, key, pattern);
        explain_by(&weighing, query, key, &options, rows)
    }

    /// The entropy of the weights of each query, in `f32`, with a gradient; zero for a query that
    /// sees no key. Memory is that of [`head_entropy`](Self::head_entropy).
    ///
    /// # Shapes
    ///
    /// - query: `[batch, seq_q, d_model]`
    /// - key: `[batch, seq_k, kdim]`
    /// - result: `[batch, heads, seq_q]`
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] for `retention` and `local-p`.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn query_entropy(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        pattern: Pattern,
    ) -> Result<Tensor<3>, NoEntropy> {
        Ok(self.entropies(query, key, pattern)?.of_queries())
    }

    /// How spread out each head looks: the mean [`entropy`](crate::entropy()) of the queries
    /// that see anything, in `f32`, with a gradient.
    ///
    /// Memory grows with the length alone, but for `additive`, `hard`, `lsh`, `linear` and
    /// `performer`, and with ALiBi: there the weights are held.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, seq_q, d_model]`
    /// - key: `[batch, seq_k, kdim]`
    /// - result: `[batch, heads]`
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] for `retention` and `local-p`.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn head_entropy(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        pattern: Pattern,
    ) -> Result<Tensor<2>, NoEntropy> {
        Ok(self.entropies(query, key, pattern)?.of_heads())
    }

    /// The mean entropy of all queries that see anything, to be added to a loss: a
    /// regulariser that needs no labels.
    ///
    /// Times a positive coefficient it sharpens attention, times a negative one it spreads
    /// it out. Memory is that of [`head_entropy`](Self::head_entropy).
    ///
    /// # Shapes
    ///
    /// - query: `[batch, seq_q, d_model]`
    /// - key: `[batch, seq_k, kdim]`
    /// - result: `[1]`
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn entropy_penalty(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        pattern: Pattern,
    ) -> Result<Tensor<1>, NoEntropy> {
        Ok(self.entropies(query, key, pattern)?.mean())
    }

    fn entropies(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        pattern: Pattern,
    ) -> Result<Entropies, NoEntropy> {
        let mechanism = self.mechanism.mechanism();
        if let Err(reason) = self.mechanism.capabilities().options.entropy {
            return Err(NoEntropy { mechanism, reason });
        }
        let (query, key, weighing, options) = self.looking(query, key, pattern);
        Ok(Entropies::of(&weighing, query, key, &options))
    }

    /// Queries and keys by head, and how this layer weighs them.
    fn looking(
        &self,
        query: Tensor<3>,
        key: Tensor<3>,
        pattern: Pattern,
    ) -> (Tensor<4>, Tensor<4>, Weighing, AttentionOptions) {
        // The last query is level with the last key.
        let first = key.dims()[1] as i64 - query.dims()[1] as i64;
        let query = self.queries(query, first);
        let key = match &self.key {
            Some(_) => self.keys(key, 0),
            None => query.clone(),
        };
        // Nothing is dropped where one looks.
        let options = AttentionOptions {
            dropout: None,
            ..self.options(&query, pattern)
        };
        let shape = AttentionShape::of("multi-head attention", &query, &key, &key);
        let mechanism = mechanisms::of(&self.mechanism);
        let params = self.params.of_call(Mode::Inference);
        let weighing = mechanism.weighing(&params, &query, &shape);
        let options = mechanism.options(&options, shape.seq_k, shape.d_head);
        (query, key, weighing, options)
    }
}
