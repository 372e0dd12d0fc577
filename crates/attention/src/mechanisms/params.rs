//! Parameters of mechanisms, besides the projections of a module.

use burn::module::{Module, Param};
use burn::nn::{Linear, RmsNorm};
use burn::tensor::{Device, Tensor, TensorData};
use zoo_kernels::rms_norm;

use super::ShortConvolution;
use crate::counter::Normals;
use crate::memo::Memo;
use crate::scan::{FeatureMap, ResampledFeatures};

/// Parameters of a mechanism, besides the projections of a module.
#[derive(Module, Debug, Default)]
pub struct MechanismParams {
    /// `[heads, d_head]`: the vectors of an additive score, or of a predicted position.
    pub vector: Option<Param<Tensor<2>>>,
    /// `[heads, d_head, d_head]`: the matrices of a multiplicative score, or of a predicted
    /// position.
    pub matrix: Option<Param<Tensor<3>>>,
    /// Random features that are resampled; not trained, but part of the record.
    pub features: Option<ResampledFeatures>,
    /// `[heads]`: scores without a value.
    pub sink: Option<Param<Tensor<1>>>,
    /// `[heads, num_buckets]`: biases of relative positions.
    pub table: Option<Param<Tensor<2>>>,
    /// `d_input -> heads`: the logits of decays. With a second projection before it or without,
    /// `n_heads_kv * d_head` logits for some mechanisms.
    pub decay: Option<Linear>,
    /// The first of two projections of decays, which is narrow.
    pub decay_input: Option<Linear>,
    /// `[n_heads_kv]`: the logarithms of the rates of decay.
    pub log_rate: Option<Param<Tensor<1>>>,
    /// `d_input -> n_heads_kv`: the logits of strengths.
    pub strength: Option<Linear>,
    /// `d_input -> n_heads * 3`: the logits of the gates of branches.
    pub branches: Option<Linear>,
    /// `[4, d_head / 2]`: the vectors of the λ of differential attention.
    pub differential: Option<Param<Tensor<2>>>,
    /// `[2, rank, length]`: projections of keys and of values along the sequence.
    pub projection: Option<Param<Tensor<3>>>,
    /// Causal convolution of queries, keys and values.
    pub short_conv: Option<ShortConvolution>,
    /// The norm of each head's output.
    pub head_norm: Option<RmsNorm>,
}

impl MechanismParams {
    /// Normalises the output of each head, if the layer has a norm.
    pub(crate) fn normalize_heads(&self, context: Tensor<4>) -> Tensor<4> {
        match &self.head_norm {
            Some(norm) => rms_norm(norm.gamma.val(), norm.epsilon, context),
            None => context,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadSizes {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) d_head: usize,
    /// Dimension of the input that the keys are computed from.
    pub(crate) d_input: usize,
}

impl MechanismParams {
    pub(crate) fn for_mode(&self, mode: Mode) -> Params {
        Params {
            vector: self.vector.as_ref().map(Param::val),
            matrix: self.matrix.as_ref().map(Param::val),
            features: self.features.as_ref().map(|features| match mode {
                Mode::Training => features.training_features(),
                Mode::Inference | Mode::Function => features.features(),
            }),
            sink: self.sink.as_ref().map(Param::val),
            table: self.table.as_ref().map(Param::val),
            differential: self.differential.as_ref().map(Param::val),
            projection: self.projection.as_ref().map(Param::val),
            mode,
        }
    }
}

/// The context of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// A pure function of the arguments: a mechanism that samples uses its own seed.
    #[default]
    Function,
    /// A training pass of a module.
    Training,
    /// An inference pass of a module.
    Inference,
}

/// The parameters of one call; missing ones have their initial values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params {
    vector: Option<Tensor<2>>,
    matrix: Option<Tensor<3>>,
    pub(crate) features: Option<FeatureMap>,
    sink: Option<Tensor<1>>,
    pub(crate) table: Option<Tensor<2>>,
    differential: Option<Tensor<2>>,
    projection: Option<Tensor<3>>,
    pub(crate) mode: Mode,
}

impl Params {
    pub(crate) fn vector(&self, query: &Tensor<4>) -> Tensor<2> {
        let [_, heads, _, d_head] = query.dims();
        self.vector.clone().unwrap_or_else(|| {
            let vector = TensorData::new(init_vector(heads, d_head), [heads, d_head]);
            Tensor::from_data(vector, (&query.device(), query.dtype()))
        })
    }

    pub(crate) fn matrix(&self, query: &Tensor<4>) -> Tensor<3> {
        let [_, heads, _, d_head] = query.dims();
        self.matrix.clone().unwrap_or_else(|| {
            let matrix = TensorData::new(init_matrix(heads, d_head), [heads, d_head, d_head]);
            Tensor::from_data(matrix, (&query.device(), query.dtype()))
        })
    }

    pub(crate) fn sink(&self, query: &Tensor<4>) -> Tensor<1> {
        let [_, heads, ..] = query.dims();
        let zeros = || Tensor::zeros([heads], (&query.device(), query.dtype()));
        self.sink.clone().unwrap_or_else(zeros)
    }

    pub(crate) fn projection(&self, query: &Tensor<4>, sizes: [usize; 2]) -> Tensor<3> {
        let [rank, length] = sizes;
        self.projection.clone().unwrap_or_else(|| {
            let projection = TensorData::new(init_projection(rank, length), [2, rank, length]);
            Tensor::from_data(projection, (&query.device(), query.dtype()))
        })
    }

    pub(crate) fn differential(&self, query: &Tensor<4>) -> Tensor<2> {
        let [.., d_head] = query.dims();
        self.differential.clone().unwrap_or_else(|| {
            let vectors = TensorData::new(init_differential(d_head / 2), [4, d_head / 2]);
            Tensor::from_data(vectors, (&query.device(), query.dtype()))
        })
    }
}

/// The initial projections of [`linformer`](mod@crate::mechanisms::linformer), `[2, rank, length]`: normal,
/// with a variance of `1 / length`, so that projected keys and values have the size of the keys and
/// values of the longest sequence.
pub fn init_projection(rank: usize, length: usize) -> Vec<f32> {
    normal(5, 2 * rank, length)
}

/// [`init_vector`] as a parameter.
pub(crate) fn vector_param(sizes: HeadSizes, device: &Device) -> Param<Tensor<2>> {
    let HeadSizes { heads, d_head, .. } = sizes;
    let vector = TensorData::new(init_vector(heads, d_head), [heads, d_head]);
    Param::from_tensor(Tensor::from_data(vector, device))
}

/// [`init_matrix`] as a parameter.
pub(crate) fn matrix_param(sizes: HeadSizes, device: &Device) -> Param<Tensor<3>> {
    let HeadSizes { heads, d_head, .. } = sizes;
    let matrix = TensorData::new(init_matrix(heads, d_head), [heads, d_head, d_head]);
    Param::from_tensor(Tensor::from_data(matrix, device))
}

/// The initial vectors of [`additive`](crate::mechanisms::additive::additive()) and
/// [`local_predictive`](crate::mechanisms::local_p::local_predictive) attention, `[heads, d_head]`: normal, with a
/// variance of `1 / d_head`.
pub fn init_vector(heads: usize, d_head: usize) -> Vec<f32> {
    normal(0, heads, d_head)
}

/// The initial matrices of [`multiplicative`](crate::mechanisms::multiplicative::multiplicative()) and
/// [`local_predictive`](crate::mechanisms::local_p::local_predictive) attention, `[heads, d_head, d_head]`: normal,
/// with a variance of `1 / d_head²`, so that scores have the size of scaled dot products.
pub fn init_matrix(heads: usize, d_head: usize) -> Vec<f32> {
    let mut matrix = normal(1, heads * d_head, d_head);
    let factor = 1.0 / (d_head as f32).sqrt();
    matrix.iter_mut().for_each(|value| *value *= factor);
    matrix
}

/// The initial biases of [`relative`](mod@crate::mechanisms::relative) attention,
/// `[heads, num_buckets]`: normal, with a variance of `1 / num_buckets`.
pub fn init_table(heads: usize, num_buckets: usize) -> Vec<f32> {
    normal(3, heads, num_buckets)
}

/// The initial vectors of [`differential`](mod@crate::mechanisms::differential) attention, `[4, half]`:
/// normal, with a standard deviation of 0.1.
pub fn init_differential(half: usize) -> Vec<f32> {
    let mut vectors = normal(4, 4, half);
    let factor = 0.1 * (half as f32).sqrt();
    vectors.iter_mut().for_each(|value| *value *= factor);
    vectors
}

fn normal(stream: u64, rows: usize, width: usize) -> Vec<f32> {
    static MEMO: Memo<(u64, usize, usize), Vec<f32>> = Memo::new();
    let std = 1.0 / (width as f64).sqrt();
    let sample_row = |row: usize| {
        let mut normals = Normals::new([stream, row as u64, width as u64]);
        (0..width).map(move |_| (std * normals.next()) as f32)
    };
    let key = (stream, rows, width);
    MEMO.get(key, |_| (0..rows).flat_map(sample_row).collect())
        .to_vec()
}
