//! Weights in and out: files, names, and the tensors of a model.
//!
//! ```no_run
//! # use zoo_models::weights::{Weights, WeightsError};
//! # fn keep<M: burn::module::Module>(model: M) -> Result<M, WeightsError> {
//! Weights::of(&model).write("model.safetensors")?;
//! let model = Weights::read("model.safetensors")?.apply(model)?;
//! # Ok(model)
//! # }
//! ```
//!
//! A model gets all of its weights or stays as it is: names, shapes and numbers are looked
//! at before any of them is used.

mod bounds;
mod error;
mod file;
pub mod import;

use std::collections::{BTreeMap, BTreeSet};

use burn::module::Module;
use burn::store::{KeyRemapper, ModuleSnapshot, bridge};
use burn::tensor::{DType, TensorData};

pub use self::error::WeightsError;
use zoo_spec::UnknownWord;

/// Tensors by name, on the host.
#[derive(Debug, Clone)]
pub struct Weights {
    tensors: BTreeMap<String, Held>,
}

/// A tensor, and where it comes from.
#[derive(Debug, Clone)]
struct Held {
    /// What it was called first: in a file, before it was renamed.
    origin: String,
    data: TensorData,
    /// Which parameter it is, for an optimizer's memory of it.
    param_id: Option<u64>,
}

impl Held {
    fn new(origin: impl Into<String>, data: TensorData, param_id: Option<u64>) -> Self {
        Self {
            origin: origin.into(),
            data,
            param_id,
        }
    }
}

impl Weights {
    /// Those of a model, read from its device.
    ///
    /// # Panics
    ///
    /// If the device cannot be read.
    pub fn of<M: Module>(model: &M) -> Self {
        let tensors = model.collect(None, None, false).into_iter().map(|tensor| {
            let (key, param_id) = (tensor.name.clone(), tensor.param_id);
            let data = bridge::into_data(tensor)
                .unwrap_or_else(|error| panic!("weights: {key} cannot be read: {error}"));
            (key.clone(), Held::new(key, data, param_id))
        });
        Self {
            tensors: tensors.collect(),
        }
    }

    /// Tensors that are there already, by name.
    pub fn of_tensors(tensors: impl IntoIterator<Item = (String, TensorData)>) -> Self {
        let tensors = tensors.into_iter();
        Self {
            tensors: tensors
                .map(|(key, data)| (key.clone(), Held::new(key, data, None)))
                .collect(),
        }
    }

    /// The names there are, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The tensor of that name.
    pub fn get(&self, key: &str) -> Option<&TensorData> {
        self.tensors.get(key).map(|held| &held.data)
    }

    /// The name of a tensor that has NaN or infinity in it, the first if there are several.
    pub fn first_non_finite(&self) -> Option<&str> {
        let is_finite = |data: &TensorData| match data.as_slice::<f32>() {
            Ok(values) => values.iter().all(|value| value.is_finite()),
            Err(_) => data.iter::<f64>().all(f64::is_finite),
        };
        let mut tensors = self.tensors.iter();
        let found = tensors.find(|(_, held)| !is_finite(&held.data));
        found.map(|(key, _)| key.as_str())
    }

    /// The numbers by which a model knows its parameters, which an optimizer's memory goes by.
    /// Formats of other projects have no place for them.
    pub fn param_ids(&self) -> BTreeMap<String, u64> {
        let ids = self.tensors.iter();
        ids.filter_map(|(key, held)| Some((key.clone(), held.param_id?)))
            .collect()
    }

    /// The same tensors, known by these numbers to the model that gets them.
    #[must_use]
    pub fn with_param_ids(mut self, ids: &BTreeMap<String, u64>) -> Self {
        for (key, held) in &mut self.tensors {
            held.param_id = ids.get(key).copied().or(held.param_id);
        }
        self
    }

    /// The same tensors by other names: each pattern's matches are replaced, one pattern
    /// after the other.
    ///
    /// # Errors
    ///
    /// [`WeightsError::SameName`] if two get one name.
    pub fn renamed(self, patterns: &KeyRemapper) -> Result<Self, WeightsError> {
        let patterns = patterns.to_regex_pairs();
        self.with_keys(|key| {
            let mut key = key.to_owned();
            for (pattern, replacement) in &patterns {
                key = pattern.replace_all(&key, replacement).into_owned();
            }
            key
        })
    }

    /// The same by the names that `rename` gives.
    fn with_keys(self, rename: impl Fn(&str) -> String) -> Result<Self, WeightsError> {
        let mut tensors = BTreeMap::new();
        for (old, held) in self.tensors {
            let key = rename(&old);
            let second = held.origin.clone();
            if let Some(first) = tensors.insert(key.clone(), held) {
                return Err(WeightsError::SameName {
                    key,
                    first: first.origin,
                    second,
                });
            }
        }
        Ok(Self { tensors })
    }

    /// The model with these weights for its own.
    ///
    /// # Errors
    ///
    /// [`WeightsError`] if one is missing, has another shape or kind, or is not the model's.
    pub fn apply<M: Module>(self, mut model: M) -> Result<M, WeightsError> {
        let tensors = self.fitted(&model)?;
        let applied = model.apply(tensors, None, None, false);
        // Everything that could be wrong was looked at.
        assert!(applied.is_success(), "weights: {applied}");
        Ok(model)
    }

    /// The tensors as the model has them, if they are all there, and no others.
    fn fitted<M: Module>(
        mut self,
        model: &M,
    ) -> Result<Vec<burn::store::burn_pack::Tensor>, WeightsError> {
        let all = model.collect(None, None, false);
        let names: BTreeSet<String> = all.iter().map(|own| own.name.clone()).collect();
        let mut fitted = vec![];
        for own in all {
            let Some(held) = self.take_parameter(&own.name) else {
                return Err(self.missing(&own.name, &names));
            };
            let named = held.named(&own.name);
            let (expected, got) = (own.shape.to_vec(), held.data.shape().to_vec());
            if expected != got {
                return Err(WeightsError::Shape {
                    key: named,
                    expected,
                    got,
                });
            }
            let (expected, got) = (own.dtype, held.data.dtype());
            if kind(expected) != kind(got) {
                return Err(WeightsError::Kind {
                    key: named,
                    expected: format!("{expected:?}"),
                    got: format!("{got:?}"),
                });
            }
            let data = match expected == got {
                true => held.data,
                false => held.data.convert_dtype(expected),
            };
            fitted.push(bridge::from_data(data, own.name, held.param_id));
        }
        self.none_left()?;
        Ok(fitted)
    }

    /// Whether every tensor was taken.
    fn none_left(&self) -> Result<(), WeightsError> {
        if self.tensors.is_empty() {
            return Ok(());
        }
        let named = |(key, held): (&String, &Held)| held.named(key);
        Err(WeightsError::Unexpected {
            keys: self.tensors.iter().take(SHOWN).map(named).collect(),
            more: self.tensors.len().saturating_sub(SHOWN),
        })
    }

    /// The tensor of a model's parameter. Files of earlier versions have no `params` in the names
    /// of a mechanism's parameters: `attention.vector` instead of `attention.params.vector`.
    fn take_parameter(&mut self, name: &str) -> Option<Held> {
        let former = || name.replacen(".params.", ".", 1);
        let held = self.tensors.remove(name);
        held.or_else(|| self.tensors.remove(&former()))
    }

    /// The tensor of that name, which is there no longer.
    fn take(&mut self, key: &str) -> Result<Held, WeightsError> {
        let held = self.tensors.remove(key);
        held.ok_or_else(|| WeightsError::Missing {
            key: key.to_owned(),
            nearest: None,
        })
    }

    /// The missing key, with the nearest of those that nobody asks for.
    fn missing(&self, key: &str, asked_for: &BTreeSet<String>) -> WeightsError {
        let others = self.keys().filter(|key| !asked_for.contains(*key));
        let known = UnknownWord::new("key", key, others);
        WeightsError::Missing {
            key: key.to_owned(),
            nearest: known.nearest().map(str::to_owned),
        }
    }
}

/// Names that are shown of many.
const SHOWN: usize = 4;

impl Held {
    /// What it is called, and was in its file.
    fn named(&self, key: &str) -> String {
        match self.origin == key {
            true => key.to_owned(),
            false => format!("{key} ({} in the file)", self.origin),
        }
    }
}

/// Which numbers stand for each other.
fn kind(dtype: DType) -> &'static str {
    if dtype.is_float() {
        "real numbers"
    } else if dtype.is_bool() {
        "truths"
    } else {
        "whole numbers"
    }
}
