//! Weights of PyTorch's `nn.MultiheadAttention`:
//!
//! | name | shape | |
//! |---|---|---|
//! | `in_proj_weight` | `[3 d, d]` | rows of the query, key and value projections |
//! | `q_proj_weight`, `k_proj_weight`, `v_proj_weight` | `[d, d]`, `[d, kdim]`, `[d, vdim]` | instead, if `kdim` or `vdim` differ from `d` |
//! | `in_proj_bias` | `[3 d]` | in either case |
//! | `out_proj.weight`, `out_proj.bias` | `[d, d]`, `[d]` | |
//!
//! PyTorch stores `[d_out, d_in]`, Burn `[d_in, d_out]`.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Tensor, TensorData};

use super::MultiHeadAttention;
use crate::AttentionError as Error;

/// Weights of an `nn.MultiheadAttention` by their names in its `state_dict`.
#[derive(Debug, Clone, Default)]
pub struct PytorchWeights(BTreeMap<String, TensorData>);

impl<N: Into<String>> FromIterator<(N, TensorData)> for PytorchWeights {
    fn from_iter<I: IntoIterator<Item = (N, TensorData)>>(weights: I) -> Self {
        let weights = weights.into_iter();
        Self(weights.map(|(name, data)| (name.into(), data)).collect())
    }
}

impl MultiHeadAttention {
    /// This module with the weights of PyTorch's. With `standard` or `flash`, and without
    /// positions, QK-norm or a temperature, the outputs are equal.
    ///
    /// # Errors
    ///
    /// [`AttentionError`](crate::AttentionError) if a weight is missing, unknown, or of another
    /// shape than that of this module.
    pub fn with_pytorch_weights(self, mut weights: PytorchWeights) -> Result<Self, Error> {
        let Some(key_projection) = &self.key else {
            return Err(Error::KeysFromQueries {
                mechanism: self.mechanism.mechanism(),
                option: "PyTorch's weights",
            });
        };
        if self.latent.is_some() {
            return Err(Error::ValuesFromKeys {
                mechanism: self.mechanism.mechanism(),
                option: "PyTorch's weights",
            });
        }
        let projections = [
            ("query", &self.query),
            ("key", key_projection),
            ("value", &self.value),
        ];
        let sizes = projections.map(|(_, linear)| sizes(linear));
        let [of_query, of_key, of_value] = sizes;

        // PyTorch packs the three projections if their inputs have the same dimension.
        let is_packed = of_query.d_in == of_key.d_in && of_query.d_in == of_value.d_in;
        let matrices = if is_packed {
            let rows = sizes.iter().map(|size| size.d_out).sum();
            let all = weights.take("in_proj_weight", &[rows, of_query.d_in])?;
            split(&all, sizes.map(|size| size.d_out * size.d_in))
        } else {
            let mut each = |key, size: Sizes| weights.take(key, &[size.d_out, size.d_in]);
            [
                each("q_proj_weight", of_query)?,
                each("k_proj_weight", of_key)?,
                each("v_proj_weight", of_value)?,
            ]
        };
        let [query_bias, key_bias, value_bias] = weights
            .take_bias("in_proj_bias", &projections)?
            .map(|all| split(&all, sizes.map(|size| size.d_out)).map(Some))
            .unwrap_or_default();
        let size = self::sizes(&self.output);
        let output = weights.take("out_proj.weight", &[size.d_out, size.d_in])?;
        let output_bias = weights.take_bias("out_proj.bias", &[("output", &self.output)])?;
        if let Some(key) = weights.0.into_keys().next() {
            return Err(Error::UnknownWeight { key });
        }

        let [query, key, value] = matrices;
        Ok(Self {
            query: with_weights(self.query, query, query_bias),
            key: self.key.map(|linear| with_weights(linear, key, key_bias)),
            value: with_weights(self.value, value, value_bias),
            output: with_weights(self.output, output, output_bias),
            ..self
        })
    }
}

impl PytorchWeights {
    /// Removes the bias of some projections; `None` if neither module has it.
    fn take_bias(
        &mut self,
        key: &'static str,
        projections: &[(&'static str, &Linear)],
    ) -> Result<Option<Vec<f32>>, Error> {
        let without = |(_, linear): &&(&'static str, &Linear)| linear.bias.is_none();
        if !self.0.contains_key(key) && projections.iter().all(|linear| without(&linear)) {
            return Ok(None);
        }
        let rows = projections.iter().map(|(_, linear)| sizes(linear).d_out);
        let bias = self.take(key, &[rows.sum()])?;
        match projections.iter().find(without) {
            Some((projection, _)) => Err(Error::UnexpectedBias { key, projection }),
            None => Ok(Some(bias)),
        }
    }

    /// Removes a weight and returns its elements in row-major order.
    fn take(&mut self, key: &'static str, expected: &[usize]) -> Result<Vec<f32>, Error> {
        let expected = expected.to_vec();
        let Some(data) = self.0.remove(key) else {
            return Err(Error::MissingWeight { key, expected });
        };
        let got = data.shape().to_vec();
        if got != expected {
            return Err(Error::WeightShape { key, expected, got });
        }
        if !data.dtype().is_float() {
            let got = format!("{:?}", data.dtype());
            return Err(Error::WeightDtype { key, got });
        }
        Ok(data.iter::<f32>().collect())
    }
}

/// Consecutive parts with these lengths.
fn split(mut elements: &[f32], lengths: [usize; 3]) -> [Vec<f32>; 3] {
    lengths.map(|length| {
        let (part, others) = elements.split_at(length);
        elements = others;
        part.to_vec()
    })
}

/// Input and output dimension of a projection.
#[derive(Clone, Copy)]
struct Sizes {
    d_in: usize,
    d_out: usize,
}

fn sizes(linear: &Linear) -> Sizes {
    let [d_in, d_out] = linear.weight.lazy_shape().dims();
    Sizes { d_in, d_out }
}

/// The projection with a PyTorch weight, `[d_out, d_in]` in row-major order, and bias.
fn with_weights(linear: Linear, weight: Vec<f32>, bias: Option<Vec<f32>>) -> Linear {
    let Sizes { d_in, d_out } = sizes(&linear);
    let transposed: Vec<f32> = (0..d_in * d_out)
        .map(|index| weight[index % d_out * d_in + index / d_out])
        .collect();
    Linear {
        weight: replace(linear.weight, TensorData::new(transposed, [d_in, d_out])),
        bias: linear.bias.map(|param| match bias {
            Some(bias) => replace(param, TensorData::new(bias, [d_out])),
            None => param,
        }),
    }
}

/// The parameter with other values; its id and whether it requires gradients stay.
fn replace<const D: usize>(param: Param<Tensor<D>>, data: TensorData) -> Param<Tensor<D>> {
    param.map(|old| {
        let new = Tensor::from_data(data, (&old.device(), old.dtype()));
        new.set_require_grad(old.is_require_grad())
    })
}
