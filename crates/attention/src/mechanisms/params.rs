//! Parameters of mechanisms, besides the projections of a module.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};

use crate::counter::Normals;
use crate::kept::Kept;
use crate::scan::{FeatureMap, RedrawnFeatures};

/// Parameters of a mechanism, besides the projections of a module.
#[derive(Module, Debug)]
pub struct MechanismParams {
    /// `[heads, d_head]`: the vectors of an additive score, or of a predicted position.
    pub vector: Option<Param<Tensor<2>>>,
    /// `[heads, d_head, d_head]`: the matrices of a multiplicative score, or of a predicted
    /// position.
    pub matrix: Option<Param<Tensor<3>>>,
    /// Random features that are resampled; not trained, but part of the record.
    pub features: Option<RedrawnFeatures>,
}

/// Heads of a module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadSizes {
    pub(crate) heads: usize,
    pub(crate) d_head: usize,
}

impl MechanismParams {
    pub(crate) fn none() -> Self {
        Self {
            vector: None,
            matrix: None,
            features: None,
        }
    }

    /// The parameters of one call.
    pub(crate) fn of_call(&self, mode: Mode) -> Params {
        Params {
            vector: self.vector.as_ref().map(Param::val),
            matrix: self.matrix.as_ref().map(Param::val),
            features: self.features.as_ref().map(|features| match mode {
                Mode::Training => features.features_of_training_pass(),
                Mode::Inference | Mode::Function => features.features(),
            }),
            mode,
        }
    }
}

/// What a call is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// As a function of its arguments: a mechanism that samples uses its own seed.
    #[default]
    Function,
    /// A training pass of a module.
    Training,
    /// A pass of a module without gradients.
    Inference,
}

/// The parameters of one call; those that are missing are as they are initialised.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params {
    vector: Option<Tensor<2>>,
    matrix: Option<Tensor<3>>,
    pub(crate) features: Option<FeatureMap>,
    pub(crate) mode: Mode,
}

impl Params {
    pub(crate) fn vector(&self, query: &Tensor<4>) -> Tensor<2> {
        let [_, heads, _, d_head] = query.dims();
        let initial = || TensorData::new(drawn_vector(heads, d_head), [heads, d_head]);
        let options = (&query.device(), query.dtype());
        let vector = self.vector.clone();
        vector.unwrap_or_else(|| Tensor::from_data(initial(), options))
    }

    pub(crate) fn matrix(&self, query: &Tensor<4>) -> Tensor<3> {
        let [_, heads, _, d_head] = query.dims();
        let initial = || TensorData::new(drawn_matrix(heads, d_head), [heads, d_head, d_head]);
        let options = (&query.device(), query.dtype());
        let matrix = self.matrix.clone();
        matrix.unwrap_or_else(|| Tensor::from_data(initial(), options))
    }
}

/// [`drawn_vector`] as a parameter.
pub(crate) fn init_vector(sizes: HeadSizes, device: &Device) -> Param<Tensor<2>> {
    let HeadSizes { heads, d_head } = sizes;
    let vector = TensorData::new(drawn_vector(heads, d_head), [heads, d_head]);
    Param::from_tensor(Tensor::from_data(vector, device))
}

/// [`drawn_matrix`] as a parameter.
pub(crate) fn init_matrix(sizes: HeadSizes, device: &Device) -> Param<Tensor<3>> {
    let HeadSizes { heads, d_head } = sizes;
    let matrix = TensorData::new(drawn_matrix(heads, d_head), [heads, d_head, d_head]);
    Param::from_tensor(Tensor::from_data(matrix, device))
}

/// The initial vectors of [`additive`](crate::additive()) and
/// [`local_predictive`](crate::local_predictive) attention, `[heads, d_head]`: normal, with a
/// variance of `1 / d_head`.
pub fn drawn_vector(heads: usize, d_head: usize) -> Vec<f32> {
    drawn(0, heads, d_head)
}

/// The initial matrices of [`multiplicative`](crate::multiplicative()) and
/// [`local_predictive`](crate::local_predictive) attention, `[heads, d_head, d_head]`: normal,
/// with a variance of `1 / d_head²`, so that scores have the size of scaled dot products.
pub fn drawn_matrix(heads: usize, d_head: usize) -> Vec<f32> {
    let mut matrix = drawn(1, heads * d_head, d_head);
    let shrink = 1.0 / (d_head as f32).sqrt();
    matrix.iter_mut().for_each(|number| *number *= shrink);
    matrix
}

fn drawn(stream: u64, rows: usize, width: usize) -> Vec<f32> {
    static KEPT: Kept<(u64, usize, usize), Vec<f32>> = Kept::new();
    let kept = KEPT.get((stream, rows, width), |_| draw(stream, rows, width));
    kept.to_vec()
}

fn draw(stream: u64, rows: usize, width: usize) -> Vec<f32> {
    let spread = 1.0 / (width as f64).sqrt();
    let row = |row: usize| {
        let mut normals = Normals::new([stream, row as u64, width as u64]);
        (0..width)
            .map(move |_| (spread * normals.next()) as f32)
            .collect::<Vec<_>>()
    };
    (0..rows).flat_map(row).collect()
}
