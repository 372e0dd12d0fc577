//! Import of weights from other libraries.
//!
//! | function | source |
//! |---|---|
//! | [`nn_transformer`] | PyTorch's `nn.Transformer` with embeddings and output layer |
//! | [`burn_encoder`] | burn-nn's `TransformerEncoder` |
//! | [`gpt2`] | GPT-2 checkpoints, and models with the same keys |
//! | [`nn_gru_han`] | hierarchical attention network with PyTorch's `nn.GRU` |
//!
//! Each converts weights from [`Weights::read`] for [`Weights::apply`]. Rename other keys first
//! with [`Weights::remap_keys`].
//!
//! ```no_run
//! # use zoo_models::weights::{Weights, import};
//! # use zoo_models::{Gpt, ModelError};
//! # fn load(model: Gpt) -> Result<Gpt, ModelError> {
//! let weights = Weights::read("gpt2/model.safetensors")?;
//! let model = import::gpt2(weights)?.apply(model)?;
//! # Ok(model)
//! # }
//! ```

mod burn_encoder;
mod gpt2;
mod han;
mod matrix;
mod nn_transformer;

use std::collections::BTreeMap;

pub use self::burn_encoder::burn_encoder;
pub use self::gpt2::gpt2;
pub use self::han::nn_gru_han;
use self::matrix::split_rows;
pub(super) use self::matrix::{split_columns, transpose};
pub use self::nn_transformer::nn_transformer;
use super::{NamedTensor, Weights};
use crate::ModelError;

/// A conversion in progress.
struct Import {
    from: Weights,
    to: BTreeMap<String, NamedTensor>,
}

impl Import {
    fn new(from: Weights) -> Self {
        Self {
            from,
            to: BTreeMap::new(),
        }
    }

    fn has(&self, from: &str) -> bool {
        self.from.tensors.contains_key(from)
    }

    fn are_equal(&self, one: &str, other: &str) -> bool {
        self.has(one) && self.from.get(one) == self.from.get(other)
    }

    fn discard(&mut self, is_unused: impl Fn(&str) -> bool) {
        self.from.tensors.retain(|key, _| !is_unused(key));
    }

    fn map(
        &mut self,
        from: &str,
        to: &str,
        convert: impl FnOnce(NamedTensor) -> Result<NamedTensor, ModelError>,
    ) -> Result<(), ModelError> {
        let tensor = self.from.take(from)?;
        self.to.insert(to.to_owned(), convert(tensor)?);
        Ok(())
    }

    fn copy(&mut self, from: &str, to: &str) -> Result<(), ModelError> {
        self.map(from, to, Ok)
    }

    fn copy_if_present(&mut self, from: &str, to: &str) -> Result<(), ModelError> {
        if self.has(from) {
            self.copy(from, to)?;
        }
        Ok(())
    }

    /// `nn.Linear`: the transposed weight, and the bias if any.
    fn linear(&mut self, from: &str, to: &str) -> Result<(), ModelError> {
        let [from_weight, to_weight] = [from, to].map(|layer| format!("{layer}.weight"));
        self.map(&from_weight, &to_weight, transpose)?;
        self.copy_if_present(&format!("{from}.bias"), &format!("{to}.bias"))
    }

    /// `nn.LayerNorm`.
    fn norm(&mut self, from: &str, to: &str) -> Result<(), ModelError> {
        self.copy(&format!("{from}.weight"), &format!("{to}.gamma"))?;
        self.copy_if_present(&format!("{from}.bias"), &format!("{to}.beta"))
    }

    /// Query, key and value projections stacked along the output features of an `nn.Linear`.
    fn projections(&mut self, weight: &str, bias: &str, to: &str) -> Result<(), ModelError> {
        let parts = ["query", "key", "value"];
        for (from, name) in [(weight, "weight"), (bias, "bias")] {
            if name == "bias" && !self.has(from) {
                continue;
            }
            let tensor = self.from.take(from)?;
            for (part, mut projection) in parts.iter().zip(split_rows(&tensor, parts.len())?) {
                if name == "weight" {
                    projection = transpose(projection)?;
                }
                self.to.insert(format!("{to}.{part}.{name}"), projection);
            }
        }
        Ok(())
    }

    /// `nn.MultiheadAttention`.
    fn multi_head(&mut self, from: &str, to: &str) -> Result<(), ModelError> {
        let [weight, bias] = ["weight", "bias"].map(|part| format!("{from}.in_proj_{part}"));
        self.projections(&weight, &bias, to)?;
        self.linear(&format!("{from}.out_proj"), &format!("{to}.output"))
    }

    /// `nn.GRU` or `nn.LSTM`, all layers and directions.
    fn recurrent(&mut self, from: &str, to: &str) -> Result<(), ModelError> {
        for layer in 0.. {
            let mut found = false;
            for (suffix, direction) in [("", "forward"), ("_reverse", "reverse")] {
                let name = |kind: &str| format!("{from}.{kind}_l{layer}{suffix}");
                let kinds = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"];
                let exists = kinds.iter().any(|kind| self.has(&name(kind)));
                // The first layer is required.
                if !exists && (layer, suffix) != (0, "") {
                    continue;
                }
                found = true;
                let to = format!("{to}.layers.{layer}.{direction}");
                for (kind, part) in [("ih", "input"), ("hh", "hidden")] {
                    let [weight, bias] = ["weight", "bias"].map(|it| name(&format!("{it}_{kind}")));
                    self.map(&weight, &format!("{to}.{part}.weight"), transpose)?;
                    self.copy_if_present(&bias, &format!("{to}.{part}.bias"))?;
                }
            }
            if !found {
                break;
            }
        }
        Ok(())
    }

    /// Number of consecutive layers with at least one key `{prefix}{layer}.…`.
    fn num_layers(&self, prefix: &str) -> usize {
        let exists = |layer: &usize| {
            let start = format!("{prefix}{layer}.");
            self.from.keys().any(|key| key.starts_with(&start))
        };
        (0..).take_while(exists).count()
    }

    /// The converted weights, if every key was used.
    fn finish(self) -> Result<Weights, ModelError> {
        self.from.check_all_used()?;
        Ok(Weights { tensors: self.to })
    }
}
