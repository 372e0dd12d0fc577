//! The output of attention.

use burn::tensor::Tensor;

/// The output of an attention function, or of a module (`D = 3`).
#[derive(Debug, Clone)]
pub struct AttentionOutput<const D: usize = 4> {
    /// For each query, the weighted mean of the values: `[batch, heads, seq_q, d_value]`, or
    /// `[batch, seq_q, d_model]` of a module.
    pub context: Tensor<D>,
    /// The attention weights before dropout, `[batch, heads, seq_q, seq_k]`, if the mechanism
    /// computes them as a matrix: `standard`, `additive`, `hard` and `local-p` do.
    pub weights: Option<Tensor<4>>,
}

impl<const D: usize> AttentionOutput<D> {
    /// The attention weights.
    ///
    /// # Panics
    ///
    /// If the mechanism does not compute them as a matrix.
    pub fn into_weights(self) -> Tensor<4> {
        self.weights.expect(
            "attention output: this mechanism does not materialise its weights\n  help: use \
             `explain`, which computes the weights of chosen queries for every mechanism",
        )
    }
}

impl<const D: usize> From<Tensor<D>> for AttentionOutput<D> {
    fn from(context: Tensor<D>) -> Self {
        Self {
            context,
            weights: None,
        }
    }
}
