//! Attention weights and entropy of a layer.

use burn::tensor::Tensor;

use super::{AttentionInput, MultiHeadAttention};
use crate::analysis::entropy::Entropies;
use crate::analysis::explain::explain_with;
use crate::analysis::weights::WeightFunction;
use crate::mechanisms::{self, Call, Inputs, Mode};
use crate::{AttentionError, AttentionOptions, AttentionShape};

impl MultiHeadAttention {
    /// Attention weights of the queries `rows`, for any mechanism: see
    /// [`explain`](crate::explain()). The value input is ignored.
    ///
    /// # Shapes
    ///
    /// - rows: indices below `seq_q`, in any order
    /// - output: `[batch, n_heads, rows, seq_k]`
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward); if `rows` is empty or an index is out of range.
    pub fn explain(&self, input: AttentionInput, rows: &[usize]) -> Tensor<4> {
        let (query, key, weight_fn, options) = self.scoring(input);
        explain_with(&weight_fn, query, key, &options, rows)
    }

    /// Entropy of the attention weights of each query, in `f32`, differentiable; zero for a fully
    /// masked query. The value input is ignored. Memory is that of
    /// [`head_entropy`](Self::head_entropy).
    ///
    /// # Shapes
    ///
    /// - output: `[batch, n_heads, seq_q]`
    ///
    /// # Errors
    ///
    /// [`AttentionError::Unsupported`] if the weights do not sum to one, as those of `sink`, `sigmoid`,
    /// `differential`, `retention` and `local-p`.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn query_entropy(&self, input: AttentionInput) -> Result<Tensor<3>, AttentionError> {
        Ok(self.entropies(input)?.entropy)
    }

    /// Mean [`entropy`](crate::entropy()) of each head over the queries that are not fully masked,
    /// in `f32`, differentiable. The value input is ignored.
    ///
    /// Memory is O(n), except for `additive`, `hard`, `lsh`, `linear` and `performer`, and with
    /// ALiBi, where the weights are materialised. The output is `[batch, n_heads]`; errors and
    /// panics are those of [`query_entropy`](Self::query_entropy).
    pub fn head_entropy(&self, input: AttentionInput) -> Result<Tensor<2>, AttentionError> {
        Ok(self.entropies(input)?.per_head())
    }

    /// Mean entropy of all queries that are not fully masked, `[1]`, as a regularisation term: a
    /// positive coefficient sharpens attention, a negative one flattens it. The value input is
    /// ignored. Memory, errors and panics are those of [`head_entropy`](Self::head_entropy).
    pub fn entropy_penalty(&self, input: AttentionInput) -> Result<Tensor<1>, AttentionError> {
        Ok(self.entropies(input)?.mean())
    }

    fn entropies(&self, input: AttentionInput) -> Result<Entropies, AttentionError> {
        if let Err(reason) = self.mechanism.capabilities().options.entropy {
            return Err(AttentionError::Unsupported {
                mechanism: self.mechanism.mechanism(),
                option: "entropy",
                reason,
            });
        }
        let (query, key, weight_fn, options) = self.scoring(input);
        Ok(Entropies::new(&weight_fn, query, key, &options))
    }

    /// Queries and keys by head, and how the mechanism computes weights from them.
    fn scoring(
        &self,
        input: AttentionInput,
    ) -> (Tensor<4>, Tensor<4>, WeightFunction, AttentionOptions) {
        // The last query is aligned with the last key.
        let first = input.key.dims()[1] as i64 - input.query.dims()[1] as i64;
        let gates = self.gates(&input.key);
        let [query, key] = self.query_and_key([input.query, input.key], [first, 0]);
        let options = AttentionOptions {
            dropout: None,
            ..self.options(&query, input.pattern)
        };
        AttentionShape::from_tensors("multi-head attention", &query, &key, &key);
        let mechanism = mechanisms::implementation(&self.mechanism);
        let params = &self.params.for_mode(Mode::Inference);
        let inputs = Inputs {
            gates,
            ..Inputs::new([query, key.clone(), key])
        };
        let weight_fn = mechanism.weight_fn(&inputs, params);
        let options = &options;
        let options = mechanism.options(&inputs, Call { params, options });
        (inputs.query, inputs.key, weight_fn, options)
    }
}
