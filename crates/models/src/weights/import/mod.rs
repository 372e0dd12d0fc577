//! Weights of models that were trained elsewhere, by the names of ours.
//!
//! | function | of |
//! |---|---|
//! | [`nn_transformer`] | PyTorch's `nn.Transformer`, between embeddings and an output |
//! | [`burn_encoder`] | burn-nn's `TransformerEncoder` |
//! | [`gpt2`] | GPT-2 as it was published, and models that are named like it |
//! | [`nn_gru_han`] | hierarchical attention over PyTorch's `nn.GRU` |
//!
//! Each takes what [`Weights::read`] gives, and gives what [`Weights::apply`] takes. A file
//! with other names is [renamed](Weights::renamed) first.
//!
//! ```no_run
//! # use zoo_models::weights::{Weights, WeightsError, import};
//! # use zoo_models::Gpt;
//! # fn load(model: Gpt) -> Result<Gpt, WeightsError> {
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

use burn::tensor::TensorData;

pub use self::burn_encoder::burn_encoder;
pub use self::gpt2::gpt2;
pub use self::han::nn_gru_han;
use self::matrix::{one_row, rows_in_parts, turned};
pub use self::nn_transformer::nn_transformer;
use super::{Held, Weights, WeightsError};

/// Tensors on their way from their names in a file to ours.
struct Import {
    from: Weights,
    to: BTreeMap<String, Held>,
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

    /// Leaves out what is not learned, or there twice.
    fn leave_out(&mut self, is_needless: impl Fn(&str) -> bool) {
        self.from.tensors.retain(|key, _| !is_needless(key));
    }

    /// A tensor as it is.
    fn keep(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        let held = self.from.take(from)?;
        self.put(to, held);
        Ok(())
    }

    /// A matrix with rows for columns.
    fn turn(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        let held = self.from.take(from)?;
        let data = turned(&held)?;
        self.put(to, Held { data, ..held });
        Ok(())
    }

    /// A vector as a matrix of one row.
    fn row(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        let held = self.from.take(from)?;
        let data = one_row(&held.data);
        self.put(to, Held { data, ..held });
        Ok(())
    }

    /// `nn.Linear`: its matrix the other way round, and its bias if it has one.
    fn linear(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        self.turn(&format!("{from}.weight"), &format!("{to}.weight"))?;
        self.bias(from, to)
    }

    /// The bias of a layer, if it has one.
    fn bias(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        let from = format!("{from}.bias");
        match self.has(&from) {
            true => self.keep(&from, &format!("{to}.bias")),
            false => Ok(()),
        }
    }

    /// `nn.LayerNorm`.
    fn norm(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        self.keep(&format!("{from}.weight"), &format!("{to}.gamma"))?;
        let bias = format!("{from}.bias");
        match self.has(&bias) {
            true => self.keep(&bias, &format!("{to}.beta")),
            false => Ok(()),
        }
    }

    /// The projections of queries, keys and values that lie one below the other, as
    /// `nn.Linear` has its rows.
    fn projections(&mut self, weight: &str, bias: &str, to: &str) -> Result<(), WeightsError> {
        let parts = ["query", "key", "value"];
        let held = self.from.take(weight)?;
        for (part, data) in parts.iter().zip(rows_in_parts(&held, parts.len())?) {
            let own = Held {
                data,
                ..held.clone()
            };
            let data = turned(&own)?;
            self.put(&format!("{to}.{part}.weight"), Held { data, ..own });
        }
        if !self.has(bias) {
            return Ok(());
        }
        let held = self.from.take(bias)?;
        for (part, data) in parts.iter().zip(rows_in_parts(&held, parts.len())?) {
            let own = Held {
                data,
                ..held.clone()
            };
            self.put(&format!("{to}.{part}.bias"), own);
        }
        Ok(())
    }

    /// `nn.MultiheadAttention`.
    fn multi_head(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        let [weight, bias] = ["weight", "bias"].map(|part| format!("{from}.in_proj_{part}"));
        self.projections(&weight, &bias, to)?;
        self.linear(&format!("{from}.out_proj"), &format!("{to}.output"))
    }

    /// `nn.GRU` or `nn.LSTM`, all layers and directions.
    fn recurrent(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        for layer in 0.. {
            let mut found = false;
            for (suffix, direction) in [("", "forward"), ("_reverse", "reverse")] {
                let name = |kind: &str| format!("{from}.{kind}_l{layer}{suffix}");
                let kinds = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"];
                let is_there = kinds.iter().any(|kind| self.has(&name(kind)));
                // There is a first one, in part at least.
                if !is_there && (layer, suffix) != (0, "") {
                    continue;
                }
                found = true;
                let to = format!("{to}.layers.{layer}.{direction}");
                for (kind, part) in [("ih", "input"), ("hh", "hidden")] {
                    self.turn(
                        &name(&format!("weight_{kind}")),
                        &format!("{to}.{part}.weight"),
                    )?;
                    let bias = name(&format!("bias_{kind}"));
                    if self.has(&bias) {
                        self.keep(&bias, &format!("{to}.{part}.bias"))?;
                    }
                }
            }
            if !found {
                break;
            }
        }
        Ok(())
    }

    /// Layers that are there, in part at least: `0, 1, …` after a prefix and before a dot.
    fn layers(&self, prefix: &str) -> usize {
        let is_there = |layer: &usize| {
            let start = format!("{prefix}{layer}.");
            self.from.keys().any(|key| key.starts_with(&start))
        };
        (0..).take_while(is_there).count()
    }

    fn put(&mut self, to: &str, held: Held) {
        self.to.insert(to.to_owned(), held);
    }

    /// Everything that was asked for.
    ///
    /// # Errors
    ///
    /// [`WeightsError::Unexpected`] if something else is left.
    fn finish(self) -> Result<Weights, WeightsError> {
        self.from.none_left()?;
        Ok(Weights { tensors: self.to })
    }
}

/// Whether two tensors are the same.
fn are_equal(one: Option<&TensorData>, other: Option<&TensorData>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one == other)
}
