//! Weight files: round trips, conversions and errors.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::store::KeyRemapper;
use burn::tensor::{Device, TensorData};
use zoo_attention::mechanisms::{Additive, MechanismConfig, Performer};
use zoo_attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use zoo_models::weights::{Weights, WeightsError};

use crate::support::*;

type Test = fn(&Device, &Path);

const TESTS: [(&str, Test); 9] = [
    ("round-trip", round_trip),
    ("files-are-not-overwritten", does_not_overwrite),
    ("unknown-format-is-rejected", rejects_unknown_formats),
    ("mismatches-are-named", names_mismatches),
    ("truncated-file-is-rejected", rejects_truncated_files),
    ("changed-values-are-detected", detects_changes),
    ("keys-can-be-renamed", renames_keys),
    ("dtypes-are-converted", converts_dtypes),
    ("former-names-are-accepted", accepts_former_names),
];

pub(crate) fn trials(suite: &mut Suite) {
    for (index, (name, test)) in TESTS.into_iter().enumerate() {
        suite.add(format!("weights/{name}"), move |device| {
            test(device, &TempFolder::new(index).0);
        });
    }
}

/// A temporary folder that is deleted on drop.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(index: usize) -> Self {
        let name = format!("zoo-weights-{}-{index}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[derive(Module, Debug)]
struct Two {
    first: Linear,
    second: Linear,
}

fn two(device: &Device) -> Two {
    Two {
        first: LinearConfig::new(3, 4).init(device),
        second: LinearConfig::new(4, 2).with_bias(false).init(device),
    }
}

fn values(model: &Two) -> Vec<(String, Vec<f32>)> {
    tensors(&Weights::from_model(model))
        .into_iter()
        .map(|(key, data)| (key, data.try_to_vec().expect("f32")))
        .collect()
}

fn assert_rejected(result: Result<Two, WeightsError>, message: &str) {
    let error = result.err().map(|error| error.to_string());
    let matches = error.as_ref().is_some_and(|error| error.contains(message));
    assert!(matches, "{error:?} does not contain {message:?}");
}

fn read(path: &Path, device: &Device) -> Result<Two, WeightsError> {
    Weights::read(path)?.apply(two(device))
}

fn round_trip(device: &Device, folder: &Path) {
    let model = two(device);
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        must(Weights::from_model(&model).write(&path));
        assert_ne!(values(&two(device)), values(&model));
        let read = must(read(&path, device));
        assert_eq!(values(&read), values(&model), "{name}");
    }
    let left = must(fs::read_dir(folder)).count();
    assert_eq!(left, 2, "temporary files were not deleted");
}

fn does_not_overwrite(device: &Device, folder: &Path) {
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        let (old, new) = (two(device), two(device));
        must(Weights::from_model(&old).write(&path));
        let error = Weights::from_model(&new)
            .write(&path)
            .expect_err("an existing file");
        assert!(matches!(error, WeightsError::Exists { .. }), "{error}");
        assert_eq!(values(&must(read(&path, device))), values(&old));
        must(Weights::from_model(&new).replace(&path));
        assert_eq!(values(&must(read(&path, device))), values(&new));
    }
}

fn rejects_unknown_formats(device: &Device, folder: &Path) {
    for name in ["model", "model.onnx", "model.pt"] {
        let error = Weights::from_model(&two(device)).write(folder.join(name));
        let error = error.expect_err("an unsupported format");
        let text = error.to_string();
        assert!(text.contains(".safetensors or .bpk"), "{text}");
    }
    let error = Weights::read(folder.join("none.safetensors")).expect_err("a missing file");
    assert!(error.to_string().contains("none.safetensors"), "{error}");
    let error = Weights::read(folder.join("none.pt")).expect_err("a missing file");
    assert!(matches!(error, WeightsError::File { .. }), "{error}");
}

fn names_mismatches(device: &Device, _: &Path) {
    let changed = |change: fn(&mut Vec<(String, TensorData)>)| {
        let mut all = tensors(&Weights::from_model(&two(device)));
        change(&mut all);
        Weights::from_tensors(all).apply(two(device))
    };
    let missing = changed(|all| all.retain(|(key, _)| key != "first.bias"));
    assert_rejected(missing, "key first.bias is missing");
    let misspelt = changed(|all| {
        let keys = all.iter_mut().map(|(key, _)| key);
        keys.for_each(|key| *key = key.replace("first.bias", "frist.bias"));
    });
    assert_rejected(
        misspelt,
        "key first.bias is missing (closest unused key: frist.bias)",
    );
    let transposed = changed(|all| {
        let weights = all.iter_mut().filter(|(key, _)| key == "first.weight");
        weights.for_each(|(_, data)| *data = TensorData::zeros::<f32, _>([4, 3]));
    });
    assert_rejected(transposed, "key first.weight must be [3, 4], got [4, 3]");
    let more = changed(|all| {
        all.push(("third.bias".to_owned(), TensorData::new(vec![0.0_f32], [1])));
    });
    assert_rejected(more, "unexpected keys: third.bias");
    must(changed(|_| {}));
}

fn rejects_truncated_files(device: &Device, folder: &Path) {
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        must(Weights::from_model(&two(device)).write(&path));
        let bytes = must(fs::read(&path));
        let truncated = folder.join(format!("part-{name}"));
        for length in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
            must(fs::write(&truncated, &bytes[..length]));
            assert_rejected(read(&truncated, device), "invalid or truncated");
        }
    }
    let path = folder.join("model.pt");
    let bytes = b"PK\x03\x04 and then nothing that torch.save wrote";
    must(fs::write(&path, bytes));
    assert_rejected(read(&path, device), "invalid or truncated PyTorch file");
}

fn detects_changes(device: &Device, folder: &Path) {
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        must(Weights::from_model(&two(device)).write(&path));
        let mut bytes = must(fs::read(&path));
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        must(fs::write(&path, bytes));
        let message = "checksum mismatch";
        assert_rejected(read(&path, device), message);
    }
}

fn renames_keys(device: &Device, _: &Path) {
    let model = two(device);
    let names = must(KeyRemapper::new().add_pattern(r"^first\.", "encoder.0."));
    let renamed = must(Weights::from_model(&model).remap_keys(&names));
    assert!(renamed.get("encoder.0.weight").is_some());
    let message = "key first.weight is missing";
    assert_rejected(renamed.clone().apply(two(device)), message);
    let back = must(KeyRemapper::new().add_pattern(r"^encoder\.0\.", "first."));
    let read = must(must(renamed.remap_keys(&back)).apply(two(device)));
    assert_eq!(values(&read), values(&model));

    let same = must(KeyRemapper::new().add_pattern(r"^(first|second)\.", "only."));
    let error = Weights::from_model(&model)
        .remap_keys(&same)
        .expect_err("duplicate keys");
    let message = "keys first.weight and second.weight are both renamed to only.weight";
    assert_eq!(error.to_string(), message);
}

fn converts_dtypes(device: &Device, _: &Path) {
    use burn::tensor::DType;

    let model = two(device);
    let converted = |change: fn(TensorData) -> TensorData| {
        let all = tensors(&Weights::from_model(&model)).into_iter();
        let all: Vec<_> = all.map(|(key, data)| (key, change(data))).collect();
        Weights::from_tensors(all).apply(two(device))
    };
    let read = must(converted(|data| data.convert_dtype(DType::F64)));
    assert_eq!(values(&read), values(&model));
    let to_bool = |data: TensorData| {
        let shape = data.shape().to_vec();
        TensorData::new(vec![true; shape.iter().product()], shape)
    };
    assert_rejected(converted(to_bool), "must hold F32, got Bool");
}

#[derive(Module, Debug)]
struct Layers {
    additive: MultiHeadAttention,
    performer: MultiHeadAttention,
}

/// Earlier versions had a mechanism's parameters in the attention module, without `params`.
fn accepts_former_names(device: &Device, _: &Path) {
    let attention = |mechanism: MechanismConfig| {
        MultiHeadAttentionConfig::new(8, 2)
            .with_mechanism(mechanism)
            .init(device)
    };
    let performer = Performer {
        resample: Some(4),
        ..Performer::default()
    };
    let layers = || Layers {
        additive: attention(Additive {}.into()),
        performer: attention(performer.into()),
    };
    let model = layers();
    let weights = Weights::from_model(&model);
    let names = must(KeyRemapper::new().add_pattern(r"\.params\.", "."));
    let former = must(weights.clone().remap_keys(&names));
    assert!(former.get("additive.vector").is_some());
    let moved = weights.keys().filter(|key| former.get(key).is_none());
    // The features of performer are renamed too.
    assert!(moved.count() > 1);
    let read = Weights::from_model(&must(former.apply(layers())));
    for key in weights.keys() {
        assert_eq!(read.get(key), weights.get(key), "{key}");
    }
}
