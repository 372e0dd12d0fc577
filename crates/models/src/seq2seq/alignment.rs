//! Attention of the decoder to the source.

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use zoo_attention::mechanisms::additive::additive_with_weights;
use zoo_attention::mechanisms::local_p::local_predictive_with_weights;
use zoo_attention::mechanisms::{init_matrix, init_vector};
use zoo_attention::{AttentionOptions, Pattern, standard};
use zoo_kernels::{Activation, linear};
use zoo_spec::{Alignment, Window};

use crate::tokens::padding_pattern;

/// Attention from the decoder states to the source, with any score function.
#[derive(Module, Debug)]
pub struct SourceAttention {
    /// `W₁` of the additive score.
    pub query: Option<Linear>,
    /// Key projection, applied once to the source; every score has one except `dot`.
    pub key: Option<Linear>,
    /// `[1, d_hidden]`: `v` of the additive score, or of the predicted position of `local-p`.
    pub vector: Option<Param<Tensor<2>>>,
    /// `[1, d_hidden, d_hidden]`: matrix of the predicted position of `local-p`.
    pub matrix: Option<Param<Tensor<3>>>,
    #[module(skip)]
    kind: Alignment,
}

/// Keys and values of a source.
#[derive(Debug, Clone)]
pub(super) struct ProjectedSource {
    key: Tensor<4>,
    value: Tensor<4>,
    pub(super) lengths: Vec<usize>,
}

impl ProjectedSource {
    pub(super) fn select(&self, rows: &[usize], indices: &Tensor<1, Int>) -> Self {
        Self {
            key: self.key.clone().select(0, indices.clone()),
            value: self.value.clone().select(0, indices.clone()),
            lengths: rows.iter().map(|row| self.lengths[*row]).collect(),
        }
    }
}

impl SourceAttention {
    pub(super) fn new(kind: Alignment, d_hidden: usize, device: &Device) -> Self {
        let linear = |bias: bool| {
            LinearConfig::new(d_hidden, d_hidden)
                .with_bias(bias)
                .init(device)
        };
        let is_additive = kind == Alignment::Additive;
        let is_predictive = matches!(kind, Alignment::LocalP(_));
        let vector = || TensorData::new(init_vector(1, d_hidden), [1, d_hidden]);
        let matrix = || TensorData::new(init_matrix(1, d_hidden), [1, d_hidden, d_hidden]);
        Self {
            query: is_additive.then(|| linear(false)),
            // A key bias shifts all dot products of a query equally, which softmax ignores.
            key: (kind != Alignment::Dot).then(|| linear(is_additive)),
            vector: (is_additive || is_predictive)
                .then(|| Param::from_tensor(Tensor::from_data(vector(), device))),
            matrix: is_predictive.then(|| Param::from_tensor(Tensor::from_data(matrix(), device))),
            kind,
        }
    }

    /// Projects a source `[batch, seq, d_hidden]` to keys and values.
    pub(super) fn project(&self, source: Tensor<3>, lengths: &[usize]) -> ProjectedSource {
        let [batch, seq, d_hidden] = source.dims();
        let key = match &self.key {
            Some(key) => linear(key, Activation::Identity, source.clone()),
            None => source.clone(),
        };
        let one_head = |tensor: Tensor<3>| tensor.reshape([batch, 1, seq, d_hidden]);
        ProjectedSource {
            key: one_head(key),
            value: one_head(source),
            lengths: lengths.to_vec(),
        }
    }

    /// Context `[batch, seq_q, d_hidden]` and attention weights `[batch, seq_q, seq_k]` of decoder
    /// states from target position `first` on.
    pub(super) fn forward(
        &self,
        states: Tensor<3>,
        source: &ProjectedSource,
        first: usize,
    ) -> (Tensor<3>, Tensor<3>) {
        let [batch, seq_q, d_hidden] = states.dims();
        let [_, _, seq_k, _] = source.key.dims();
        let query = match &self.query {
            Some(query) => linear(query, Activation::Identity, states),
            None => states,
        };
        let query = query.reshape([batch, 1, seq_q, d_hidden]);
        let (key, value) = (source.key.clone(), source.value.clone());
        let options = AttentionOptions::new().with_pattern(self.pattern(source, seq_q, first));
        // The paper does not scale dot products.
        let unscaled = || options.clone().with_scale(1.0);
        let output = match (self.kind, &self.vector, &self.matrix) {
            (Alignment::Additive, Some(vector), _) => {
                additive_with_weights(query, key, value, vector.val(), &options)
            }
            (Alignment::LocalP(Window { window }), Some(vector), Some(matrix)) => {
                let params = (vector.val(), matrix.val());
                local_predictive_with_weights(query, key, value, params, window, &unscaled())
            }
            _ => standard(query, key, value, &unscaled()),
        };
        let context = output.context.clone();
        (
            context.reshape([batch, seq_q, d_hidden]),
            output.into_weights().reshape([batch, seq_q, seq_k]),
        )
    }

    /// Pattern of the states from target position `first` on.
    fn pattern(&self, source: &ProjectedSource, seq_q: usize, first: usize) -> Pattern {
        let [_, _, seq_k, _] = source.key.dims();
        let padding = padding_pattern(&source.lengths, seq_k);
        let window = match (self.kind, first) {
            // `Monotonic` counts queries from 0.
            (Alignment::LocalM(Window { window }), 0) => Pattern::Monotonic { window },
            (Alignment::LocalM(Window { window }), _) => {
                let mask = (first..first + seq_q)
                    .flat_map(|query| (0..seq_k).map(move |key| key.abs_diff(query) > window));
                let mask = TensorData::new(mask.collect::<Vec<bool>>(), [1, 1, seq_q, seq_k]);
                let device = &source.key.device();
                Pattern::Dense(Tensor::<4, Bool>::from_data(mask, device))
            }
            _ => return padding,
        };
        match padding {
            Pattern::Full => window,
            padding => padding.and(window),
        }
    }

    /// Floating-point operations of the matmuls for one example.
    pub(super) fn flops(&self, source: usize, target: usize, d_hidden: usize) -> f64 {
        let weight = |linear: &Linear| linear.weight.num_params();
        let elements = |linear: &Option<Linear>| linear.as_ref().map_or(0, weight);
        let query = elements(&self.query) + self.matrix.as_ref().map_or(0, Param::num_params);
        let projections = source * elements(&self.key) + target * query;
        let pairs = match self.kind {
            Alignment::LocalM(Window { window }) => (0..target)
                .map(|query| {
                    let end = source.min(query + window + 1);
                    end.saturating_sub(query.saturating_sub(window))
                })
                .sum(),
            _ => source * target,
        };
        // Scores and weighted sum.
        2.0 * (projections + 2 * pairs * d_hidden) as f64
    }
}
