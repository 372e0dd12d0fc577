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
use self::matrix::{rows_in_parts, turned};
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

    /// A tensor, after `change`.
    fn changed(
        &mut self,
        from: &str,
        to: &str,
        change: impl FnOnce(Held) -> Result<Held, WeightsError>,
    ) -> Result<(), WeightsError> {
        let held = self.from.take(from)?;
        self.to.insert(to.to_owned(), change(held)?);
        Ok(())
    }

    /// A tensor as it is.
    fn keep(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        self.changed(from, to, Ok)
    }

    /// The same, if it is there.
    fn keep_any(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        match self.has(from) {
            true => self.keep(from, to),
            false => Ok(()),
        }
    }

    /// `nn.Linear`: its matrix the other way round, and its bias if it has one.
    fn linear(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        self.changed(&format!("{from}.weight"), &format!("{to}.weight"), turned)?;
        self.keep_any(&format!("{from}.bias"), &format!("{to}.bias"))
    }

    /// `nn.LayerNorm`.
    fn norm(&mut self, from: &str, to: &str) -> Result<(), WeightsError> {
        self.keep(&format!("{from}.weight"), &format!("{to}.gamma"))?;
        self.keep_any(&format!("{from}.bias"), &format!("{to}.beta"))
    }

    /// The projections of queries, keys and values that lie one below the other, as
    /// `nn.Linear` has its rows.
    fn projections(&mut self, weight: &str, bias: &str, to: &str) -> Result<(), WeightsError> {
        let parts = ["query", "key", "value"];
        for (from, name) in [(weight, "weight"), (bias, "bias")] {
            if name == "bias" && !self.has(from) {
                continue;
            }
            let held = self.from.take(from)?;
            for (part, data) in parts.iter().zip(rows_in_parts(&held, parts.len())?) {
                let (origin, param_id) = (held.origin.clone(), held.param_id);
                let mut own = Held::new(origin, data, param_id);
                if name == "weight" {
                    own = turned(own)?;
                }
                self.to.insert(format!("{to}.{part}.{name}"), own);
            }
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
                    let [weight, bias] = ["weight", "bias"].map(|of| name(&format!("{of}_{kind}")));
                    self.changed(&weight, &format!("{to}.{part}.weight"), turned)?;
                    self.keep_any(&bias, &format!("{to}.{part}.bias"))?;
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

    /// Everything that was asked for, if nothing else is left.
    fn finish(self) -> Result<Weights, WeightsError> {
        self.from.none_left()?;
        Ok(Weights { tensors: self.to })
    }
}

fn are_equal(one: Option<&TensorData>, other: Option<&TensorData>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one == other)
}
