//! The weights of PyTorch's `nn.MultiheadAttention`, by its names:
//!
//! | name | shape | |
//! |---|---|---|
//! | `in_proj_weight` | `[3 d, d]` | rows of queries, keys and values, one below the other |
//! | `q_proj_weight`, `k_proj_weight`, `v_proj_weight` | `[d, d]`, `[d, kdim]`, `[d, vdim]` | instead, where `kdim` or `vdim` differ |
//! | `in_proj_bias` | `[3 d]` | in both cases |
//! | `out_proj.weight`, `out_proj.bias` | `[d, d]`, `[d]` | |
//!
//! PyTorch multiplies by the transpose of a weight, Burn by the weight.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Tensor, TensorData};

use super::MultiHeadAttention;
use crate::mechanisms::Mechanism;

/// The weights of an `nn.MultiheadAttention` by their names in its `state_dict`.
#[derive(Debug, Clone, Default)]
pub struct PytorchWeights(BTreeMap<String, TensorData>);

impl<N: Into<String>> FromIterator<(N, TensorData)> for PytorchWeights {
    fn from_iter<I: IntoIterator<Item = (N, TensorData)>>(weights: I) -> Self {
        let weights = weights.into_iter();
        Self(weights.map(|(name, data)| (name.into(), data)).collect())
    }
}

/// Weights that are not those of a module like this one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PytorchWeightsError {
    /// One is not there.
    #[error("{key} is missing; it must be {expected:?}")]
    Missing {
        /// Its name.
        key: &'static str,
        /// What it must be.
        expected: Vec<usize>,
    },
    /// One is of another size.
    #[error("{key} must be {expected:?}, got {got:?}")]
    Shape {
        /// Its name.
        key: &'static str,
        /// What it must be.
        expected: Vec<usize>,
        /// What it is.
        got: Vec<usize>,
    },
    /// One is no list of floating-point numbers.
    #[error("{key} must be floating-point numbers, got {got}")]
    NumberType {
        /// Its name.
        key: &'static str,
        /// What it is.
        got: String,
    },
    /// There is a bias for what was made without one.
    #[error("{key} is there, but {projection} was made without a bias")]
    NoBias {
        /// Its name.
        key: &'static str,
        /// What has none: `query`, `key`, `value` or `output`.
        projection: &'static str,
    },
    /// This module makes its keys of its queries, which PyTorch's does not.
    #[error("mechanism {mechanism} makes its keys of its queries: there is no place for PyTorch's")]
    NoKeys {
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// One has no place here.
    #[error("{key} is none of the weights this module has")]
    Unknown {
        /// Its name.
        key: String,
    },
}

use PytorchWeightsError as Error;

impl MultiHeadAttention {
    /// The same module with the weights of PyTorch's: by `standard` or `flash`, without
    /// positions, QK-norm or a temperature, it gives the same numbers.
    ///
    /// # Errors
    ///
    /// [`PytorchWeightsError`] if weights are missing, too many, or of other sizes than
    /// this module's.
    pub fn with_pytorch_weights(self, weights: PytorchWeights) -> Result<Self, Error> {
        let mut weights = weights;
        let Some(own_key) = &self.key else {
            let mechanism = self.mechanism.mechanism();
            return Err(Error::NoKeys { mechanism });
        };
        let projections = [
            ("query", &self.query),
            ("key", own_key),
            ("value", &self.value),
        ];
        let sizes = projections.map(|(_, linear)| sizes(linear));
        let [own, of_keys, of_values] = sizes;
        let rows = own.to + of_keys.to + of_values.to;

        // PyTorch keeps one matrix where all three are made of places of one size.
        let is_packed = own.from == of_keys.from && own.from == of_values.from;
        let matrices = if is_packed {
            let all = weights.take("in_proj_weight", &[rows, own.from])?;
            let mut all = all.as_slice();
            sizes.map(|size| {
                let (these, others) = all.split_at(size.to * size.from);
                all = others;
                these.to_vec()
            })
        } else {
            let mut each = |key, size: Sizes| weights.take(key, &[size.to, size.from]);
            [
                each("q_proj_weight", own)?,
                each("k_proj_weight", of_keys)?,
                each("v_proj_weight", of_values)?,
            ]
        };
        let key = "in_proj_bias";
        let mut biases = [None, None, None];
        if weights.has(key) || projections.iter().any(|(_, linear)| linear.bias.is_some()) {
            let all = weights.take(key, &[rows])?;
            let without = projections.iter().find(|(_, linear)| linear.bias.is_none());
            if let Some((projection, _)) = without {
                return Err(Error::NoBias { key, projection });
            }
            let mut all = all.as_slice();
            biases = sizes.map(|size| {
                let (these, others) = all.split_at(size.to);
                all = others;
                Some(these.to_vec())
            });
        }
        let size = self::sizes(&self.output);
        let output = weights.take("out_proj.weight", &[size.to, size.from])?;
        let key = "out_proj.bias";
        let output_bias = match (weights.has(key), &self.output.bias) {
            (false, None) => None,
            (true, None) => {
                let projection = "output";
                return Err(Error::NoBias { key, projection });
            }
            (_, Some(_)) => Some(weights.take(key, &[size.to])?),
        };
        if let Some(key) = weights.0.into_keys().next() {
            return Err(Error::Unknown { key });
        }

        let [query, key, value] = matrices;
        let [query_bias, key_bias, value_bias] = biases;
        Ok(Self {
            query: with(self.query, query, query_bias),
            key: self.key.map(|own| with(own, key, key_bias)),
            value: with(self.value, value, value_bias),
            output: with(self.output, output, output_bias),
            ..self
        })
    }
}

impl PytorchWeights {
    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The numbers of one, row by row, which is then no longer here.
    fn take(&mut self, key: &'static str, expected: &[usize]) -> Result<Vec<f32>, Error> {
        let expected = expected.to_vec();
        let Some(data) = self.0.remove(key) else {
            return Err(Error::Missing { key, expected });
        };
        let got = data.shape().to_vec();
        if got != expected {
            return Err(Error::Shape { key, expected, got });
        }
        if !data.dtype().is_float() {
            let got = format!("{:?}", data.dtype());
            return Err(Error::NumberType { key, got });
        }
        Ok(data.iter::<f32>().collect())
    }
}

/// What goes into a projection, and what comes out.
#[derive(Clone, Copy)]
struct Sizes {
    from: usize,
    to: usize,
}

fn sizes(linear: &Linear) -> Sizes {
    let [from, to] = linear.weight.lazy_shape().dims();
    Sizes { from, to }
}

/// The projection with a PyTorch weight, `[to, from]` row by row, and bias.
fn with(linear: Linear, weight: Vec<f32>, bias: Option<Vec<f32>>) -> Linear {
    let Sizes { from, to } = sizes(&linear);
    let turned: Vec<f32> = (0..from * to)
        .map(|at| weight[at % to * from + at / to])
        .collect();
    Linear {
        weight: replaced(linear.weight, TensorData::new(turned, [from, to])),
        bias: linear.bias.map(|own| match bias {
            Some(bias) => replaced(own, TensorData::new(bias, [to])),
            None => own,
        }),
    }
}

/// A parameter with other numbers: the same one to an optimizer, as learned as before.
fn replaced<const D: usize>(param: Param<Tensor<D>>, data: TensorData) -> Param<Tensor<D>> {
    param.map(|old| {
        let new = Tensor::from_data(data, (&old.device(), old.dtype()));
        match old.is_require_grad() {
            true => new.require_grad(),
            false => new,
        }
    })
}
