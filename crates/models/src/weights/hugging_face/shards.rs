//! The weights of a folder: `model.safetensors`, or several files with an index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use serde_json::Value;

use super::json::Keys;
use crate::ModelError;
use crate::weights::{NamedTensor, Weights};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const DOWNLOAD_AGAIN: &str = "get the files again, or save the model again with `save_pretrained`";

/// Reads the weights of a folder.
pub(super) fn read(folder: &Path) -> Result<Weights, ModelError> {
    let (single, index) = (folder.join(SINGLE), folder.join(INDEX));
    if single.is_file() {
        return Weights::read(single);
    }
    if index.is_file() {
        return read_sharded(folder, &index);
    }
    let has_pickle = ["pytorch_model.bin", "pytorch_model.bin.index.json"];
    let has_pickle = has_pickle.iter().any(|name| folder.join(name).is_file());
    Err(ModelError::Folder {
        path: folder.into(),
        reason: format!("there are no weights: no {SINGLE} and no {INDEX}"),
        help: match has_pickle {
            true => "load it with transformers and save it as safetensors with `save_pretrained`",
            false => DOWNLOAD_AGAIN,
        },
    })
}

fn read_sharded(folder: &Path, index: &Path) -> Result<Weights, ModelError> {
    let (shards, total) = read_index(index)?;
    let missing = shards.keys().find(|name| !folder.join(name).is_file());
    if let Some(name) = missing {
        return Err(invalid(index, format!("the file {name} does not exist")));
    }
    let mut tensors: BTreeMap<String, NamedTensor> = BTreeMap::new();
    for (name, keys) in &shards {
        let path = folder.join(name);
        let shard = Weights::read(&path)?;
        for (key, tensor) in shard.tensors {
            if keys.contains(&key) {
                tensors.insert(key, tensor);
                continue;
            }
            let other = shards.iter().find(|(_, keys)| keys.contains(&key));
            let reason = match other {
                Some((other, _)) => {
                    format!("tensor {key} is in this file and, by {INDEX}, in {other}")
                }
                None => format!("tensor {key} is not listed in {INDEX}"),
            };
            return Err(invalid(&path, reason));
        }
        if let Some(key) = keys.iter().find(|key| !tensors.contains_key(*key)) {
            let reason = format!("tensor {key} is missing, which {INDEX} lists for this file");
            return Err(invalid(&path, reason));
        }
    }
    let bytes: usize = tensors.values().map(|it| it.data.as_bytes().len()).sum();
    match total {
        Some(total) if total != bytes as f64 => {
            let reason =
                format!("metadata.total_size is {total}, but the tensors have {bytes} bytes");
            Err(invalid(index, reason))
        }
        _ => Ok(Weights { tensors }),
    }
}

/// The keys of each file of an index, and the bytes of all tensors if they are given.
type Index = (BTreeMap<String, BTreeSet<String>>, Option<f64>);

fn read_index(path: &Path) -> Result<Index, ModelError> {
    let mut keys = Keys::read(path)?;
    let metadata = keys.object("metadata")?;
    let total = match metadata {
        Some(mut metadata) => metadata.number("total_size")?,
        None => None,
    };
    let Some(Value::Object(map)) = keys.take("weight_map") else {
        return Err(invalid(path, "weight_map must be an object".to_owned()));
    };
    let mut shards: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (key, file) in map {
        match file {
            Value::String(file) if is_in_folder(&file) => {
                shards.entry(file).or_default().insert(key);
            }
            other => {
                let reason = format!(
                    "weight_map.{key} must be the name of a .safetensors file in the same folder, got \
                     {other}"
                );
                return Err(invalid(path, reason));
            }
        }
    }
    match shards.is_empty() {
        true => Err(invalid(path, "weight_map has no tensors".to_owned())),
        false => Ok((shards, total)),
    }
}

/// Whether a name is that of a file in the folder itself, on every system.
fn is_in_folder(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let is_one =
        matches!(components.next(), Some(Component::Normal(_))) && components.next().is_none();
    is_one && !name.contains(['/', '\\', ':']) && name.ends_with(".safetensors")
}

fn invalid(path: &Path, reason: String) -> ModelError {
    ModelError::Folder {
        path: path.into(),
        reason,
        help: DOWNLOAD_AGAIN,
    }
}
