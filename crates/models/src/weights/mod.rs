//! Weights: reading and writing files, renaming keys, applying them to a model.
//!
//! ```no_run
//! # use zoo_models::{ModelError, weights::Weights};
//! # fn save<M: burn::module::Module>(model: M) -> Result<M, ModelError> {
//! Weights::from_model(&model).write("model.safetensors")?;
//! let model = Weights::read("model.safetensors")?.apply(model)?;
//! # Ok(model)
//! # }
//! ```
//!
//! A model gets all of its weights or none: keys, shapes and dtypes are checked before any is
//! applied.

mod bounds;
mod file;
pub mod hugging_face;
pub mod import;

use std::collections::{BTreeMap, BTreeSet};

use burn::module::Module;
use burn::store::burn_pack::{Error as PackError, Tensor as PackTensor};
use burn::store::{KeyRemapper, ModuleSnapshot, bridge};
use burn::tensor::{DType, TensorData};

use zoo_spec::UnknownName;

use crate::ModelError;

/// Tensors by key, on the host.
#[derive(Debug, Clone)]
pub struct Weights {
    tensors: BTreeMap<String, NamedTensor>,
}

#[derive(Debug, Clone)]
struct NamedTensor {
    /// Key in the file, before renaming.
    origin: String,
    data: TensorData,
    /// Burn's parameter id, the key of the optimizer state.
    param_id: Option<u64>,
}

impl NamedTensor {
    fn load(tensor: PackTensor) -> Result<Self, PackError> {
        Ok(Self {
            origin: tensor.name.clone(),
            param_id: tensor.param_id,
            data: bridge::into_data(tensor)?,
        })
    }

    /// The key, and the one in the file if it differs.
    fn describe_key(&self, key: &str) -> String {
        if self.origin == key {
            key.to_owned()
        } else {
            format!("{key} ({} in the file)", self.origin)
        }
    }
}

impl Weights {
    /// Reads the weights of a model from its device.
    ///
    /// # Panics
    ///
    /// If the device cannot be read.
    pub fn from_model<M: Module>(model: &M) -> Self {
        let tensors = model.collect(None, None, false).into_iter().map(|tensor| {
            let key = tensor.name.clone();
            let tensor = NamedTensor::load(tensor)
                .unwrap_or_else(|error| panic!("weights: {key} cannot be read: {error}"));
            (key, tensor)
        });
        Self {
            tensors: tensors.collect(),
        }
    }

    /// Creates weights from tensors by key.
    pub fn from_tensors(tensors: impl IntoIterator<Item = (String, TensorData)>) -> Self {
        let named = |(key, data): (String, TensorData)| {
            let tensor = NamedTensor {
                origin: key.clone(),
                data,
                param_id: None,
            };
            (key, tensor)
        };
        Self {
            tensors: tensors.into_iter().map(named).collect(),
        }
    }

    /// Keys in sorted order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Tensor with this key.
    pub fn get(&self, key: &str) -> Option<&TensorData> {
        self.tensors.get(key).map(|tensor| &tensor.data)
    }

    /// Key of the first tensor that contains NaN or infinity.
    pub fn first_non_finite(&self) -> Option<&str> {
        let is_finite = |data: &TensorData| match data.as_slice::<f32>() {
            Ok(values) => values.iter().all(|value| value.is_finite()),
            Err(_) => data.iter::<f64>().all(f64::is_finite),
        };
        let mut tensors = self.tensors.iter();
        let found = tensors.find(|(_, tensor)| !is_finite(&tensor.data));
        found.map(|(key, _)| key.as_str())
    }

    /// Burn's parameter ids by key, which identify parameters in the optimizer state. Formats of
    /// other projects do not store them.
    pub fn param_ids(&self) -> BTreeMap<String, u64> {
        let ids = self.tensors.iter();
        ids.filter_map(|(key, tensor)| Some((key.clone(), tensor.param_id?)))
            .collect()
    }

    /// Sets the parameter ids.
    #[must_use]
    pub fn with_param_ids(mut self, ids: &BTreeMap<String, u64>) -> Self {
        for (key, tensor) in &mut self.tensors {
            tensor.param_id = ids.get(key).copied().or(tensor.param_id);
        }
        self
    }

    /// Renames keys: applies each pattern of the remapper in order.
    ///
    /// # Errors
    ///
    /// [`ModelError::DuplicateKey`] if two tensors get the same key.
    pub fn remap_keys(self, patterns: &KeyRemapper) -> Result<Self, ModelError> {
        let patterns = patterns.to_regex_pairs();
        self.map_keys(|key| {
            patterns.iter().fold(key.to_owned(), |key, (pattern, new)| {
                pattern.replace_all(&key, new).into_owned()
            })
        })
    }

    fn map_keys(self, rename: impl Fn(&str) -> String) -> Result<Self, ModelError> {
        let mut tensors = BTreeMap::new();
        for (old, tensor) in self.tensors {
            let key = rename(&old);
            let second = tensor.origin.clone();
            if let Some(first) = tensors.insert(key.clone(), tensor) {
                return Err(ModelError::DuplicateKey {
                    key,
                    first: first.origin,
                    second,
                });
            }
        }
        Ok(Self { tensors })
    }

    /// Loads the weights into a model.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if a key is missing or unexpected, or has another shape or dtype.
    pub fn apply<M: Module>(self, mut model: M) -> Result<M, ModelError> {
        let tensors = self.match_to(&model)?;
        let applied = model.apply(tensors, None, None, false);
        // Everything was checked above.
        assert!(applied.is_success(), "weights: {applied}");
        Ok(model)
    }

    /// Converts the tensors to the model's dtypes; checks that the keys and shapes are the same.
    fn match_to<M: Module>(mut self, model: &M) -> Result<Vec<PackTensor>, ModelError> {
        let all = model.collect(None, None, false);
        let names: BTreeSet<String> = all.iter().map(|it| it.name.clone()).collect();
        let mut matched = vec![];
        for parameter in all {
            let Some(tensor) = self.take_parameter(&parameter.name) else {
                return Err(self.missing(&parameter.name, &names));
            };
            let mismatch = |expected, got, help| ModelError::Tensor {
                key: tensor.describe_key(&parameter.name),
                expected,
                got,
                help,
            };
            let (expected, got) = (parameter.shape.to_vec(), tensor.data.shape().to_vec());
            if expected != got {
                let help = "create the model with the config that the weights were trained with";
                let expected = format!("shape {expected:?}");
                return Err(mismatch(expected, format!("{got:?}"), help));
            }
            let (expected, got) = (parameter.dtype, tensor.data.dtype());
            if kind(expected) != kind(got) {
                let help = "convert the tensor before saving it";
                let expected = format!("dtype {expected:?}");
                return Err(mismatch(expected, format!("{got:?}"), help));
            }
            let data = tensor.data.convert_dtype(expected);
            matched.push(bridge::from_data(data, parameter.name, tensor.param_id));
        }
        self.check_all_used()?;
        Ok(matched)
    }

    fn check_all_used(&self) -> Result<(), ModelError> {
        if self.tensors.is_empty() {
            return Ok(());
        }
        let describe = |(key, tensor): (&String, &NamedTensor)| tensor.describe_key(key);
        let keys = self.tensors.iter().take(MAX_LISTED).map(describe);
        Err(ModelError::Unexpected {
            keys: keys.collect(),
            more: self.tensors.len().saturating_sub(MAX_LISTED),
        })
    }

    /// Takes the tensor of a model's parameter. Files of earlier versions have no `params` in the
    /// keys of a mechanism's parameters: `attention.vector` instead of `attention.params.vector`.
    fn take_parameter(&mut self, name: &str) -> Option<NamedTensor> {
        let former = || name.replacen(".params.", ".", 1);
        let tensor = self.tensors.remove(name);
        tensor.or_else(|| self.tensors.remove(&former()))
    }

    fn take(&mut self, key: &str) -> Result<NamedTensor, ModelError> {
        let tensor = self.tensors.remove(key);
        tensor.ok_or_else(|| ModelError::Missing {
            key: key.to_owned(),
            nearest: None,
        })
    }

    /// Error for a missing key, with the closest key that the model does not use.
    fn missing(&self, key: &str, model_keys: &BTreeSet<String>) -> ModelError {
        let others = self.keys().filter(|key| !model_keys.contains(*key));
        let unknown = UnknownName::new("key", key, others);
        ModelError::Missing {
            key: key.to_owned(),
            nearest: unknown.nearest().map(str::to_owned),
        }
    }
}

/// Maximum number of keys in an error message.
const MAX_LISTED: usize = 4;

/// Whether a dtype is a float or a bool. Dtypes of the same kind are converted into each other.
fn kind(dtype: DType) -> [bool; 2] {
    [dtype.is_float(), dtype.is_bool()]
}
