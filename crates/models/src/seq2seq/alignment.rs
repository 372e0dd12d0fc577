//! How a decoder looks at a source that was read.

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use zoo_attention::mechanisms::standard::Attended;
use zoo_attention::{
    AttentionOptions, Pattern, additive, drawn_matrix, drawn_vector, local_predictive, standard,
};

use zoo_spec::{Alignment, Window};

use crate::tokens::shown;

/// Attention from the states of a decoder to a source, by any of the scores.
#[derive(Module, Debug)]
pub struct SourceAttention {
    /// The `W₁` of an additive score.
    pub query: Option<Linear>,
    /// The matrix that the source goes through, once: every score has one but `dot`.
    pub key: Option<Linear>,
    /// `[1, d_hidden]`: the `v` of an additive score, or of predicted places.
    pub vector: Option<Param<Tensor<2>>>,
    /// `[1, d_hidden, d_hidden]`: the matrix of predicted places.
    pub matrix: Option<Param<Tensor<3>>>,
    #[module(skip)]
    kind: Alignment,
}

/// A source that was read, as attention needs it.
#[derive(Debug, Clone)]
pub(super) struct Read {
    key: Tensor<4>,
    value: Tensor<4>,
    /// How long each row is.
    pub(super) lengths: Vec<usize>,
}

impl Read {
    pub(super) fn select(&self, rows: &[usize], at: &Tensor<1, Int>) -> Self {
        Self {
            key: self.key.clone().select(0, at.clone()),
            value: self.value.clone().select(0, at.clone()),
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
        let vector = || TensorData::new(drawn_vector(1, d_hidden), [1, d_hidden]);
        let matrix = || TensorData::new(drawn_matrix(1, d_hidden), [1, d_hidden, d_hidden]);
        Self {
            query: is_additive.then(|| linear(false)),
            // What is added to every key alike changes a product's scores alike: nothing.
            key: (kind != Alignment::Dot).then(|| linear(is_additive)),
            vector: (is_additive || is_predictive)
                .then(|| Param::from_tensor(Tensor::from_data(vector(), device))),
            matrix: is_predictive.then(|| Param::from_tensor(Tensor::from_data(matrix(), device))),
            kind,
        }
    }

    /// Takes a source in: `[batch, seq, d_hidden]`, and how long each row is.
    pub(super) fn read(&self, source: Tensor<3>, lengths: &[usize]) -> Read {
        let [batch, seq, d_hidden] = source.dims();
        let key = match &self.key {
            Some(key) => key.forward(source.clone()),
            None => source.clone(),
        };
        let one_head = |tensor: Tensor<3>| tensor.reshape([batch, 1, seq, d_hidden]);
        Read {
            key: one_head(key),
            value: one_head(source),
            lengths: lengths.to_vec(),
        }
    }

    /// What states see of the source, `[batch, seq_q, d_hidden]`, and where they look,
    /// `[batch, seq_q, seq_k]`. The first of them is that of the target's place `first`.
    pub(super) fn forward(
        &self,
        states: Tensor<3>,
        source: &Read,
        first: usize,
    ) -> (Tensor<3>, Tensor<3>) {
        let [batch, seq_q, d_hidden] = states.dims();
        let [_, _, seq_k, _] = source.key.dims();
        let query = match &self.query {
            Some(query) => query.forward(states),
            None => states,
        };
        let query = query.reshape([batch, 1, seq_q, d_hidden]);
        let (key, value) = (source.key.clone(), source.value.clone());
        let options = AttentionOptions::new().with_pattern(self.pattern(source, seq_q, first));
        // Products are not divided by anything in the paper.
        let undivided = || options.clone().with_scale(1.0);
        let Attended { context, weights } = match (self.kind, &self.vector, &self.matrix) {
            (Alignment::Additive, Some(vector), _) => {
                additive(query, key, value, vector.val(), &options)
            }
            (Alignment::LocalP(Window { window }), Some(vector), Some(matrix)) => {
                let learned = (vector.val(), matrix.val());
                local_predictive(query, key, value, learned, window, &undivided())
            }
            _ => standard(query, key, value, &undivided()),
        };
        (
            context.reshape([batch, seq_q, d_hidden]),
            weights.reshape([batch, seq_q, seq_k]),
        )
    }

    /// What states from the target's place `first` on see.
    fn pattern(&self, source: &Read, seq_q: usize, first: usize) -> Pattern {
        let [_, _, seq_k, _] = source.key.dims();
        let own = shown(&source.lengths, seq_k);
        let near = match (self.kind, first) {
            // Its queries are counted from the first on.
            (Alignment::LocalM(Window { window }), 0) => Pattern::Monotonic { window },
            (Alignment::LocalM(Window { window }), _) => {
                let far = (first..first + seq_q)
                    .flat_map(|place| (0..seq_k).map(move |key| key.abs_diff(place) > window));
                let far = TensorData::new(far.collect::<Vec<bool>>(), [1, 1, seq_q, seq_k]);
                let device = &source.key.device();
                Pattern::Dense(Tensor::<4, Bool>::from_data(far, device))
            }
            _ => return own,
        };
        match own {
            Pattern::Full => near,
            own => own.and(near),
        }
    }

    /// Floating-point operations of the matmuls for one example, two for each product.
    pub(super) fn flops(&self, source: usize, target: usize, d_hidden: usize) -> f64 {
        let width = |linear: &Option<Linear>| {
            linear
                .as_ref()
                .map_or(0, |linear| linear.weight.num_params())
        };
        let of_query = width(&self.query) + self.matrix.as_ref().map_or(0, Param::num_params);
        let projections = source * width(&self.key) + target * of_query;
        let pairs = match self.kind {
            Alignment::LocalM(Window { window }) => (0..target)
                .map(|place| {
                    let end = source.min(place + window + 1);
                    end.saturating_sub(place.saturating_sub(window))
                })
                .sum(),
            _ => source * target,
        };
        // Scores, and what they weigh.
        2.0 * (projections + 2 * pairs * d_hidden) as f64
    }
}
