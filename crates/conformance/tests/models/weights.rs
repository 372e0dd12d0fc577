//! Weights through files: what comes back, and what is refused.

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
    ("what is written comes back", comes_back),
    ("a file is never written over", is_not_written_over),
    ("a name without a format is refused", needs_a_format),
    ("what does not fit is named", is_named),
    ("a part of a file is no file", no_part_is_enough),
    ("a changed number is noticed", changes_are_noticed),
    ("other names can be given", is_renamed),
    ("wider numbers become those of the model", is_converted),
    ("names of earlier versions are accepted", former_names),
];

pub(crate) fn trials(suite: &mut Suite) {
    for (number, (name, test)) in TESTS.into_iter().enumerate() {
        suite.add(format!("weights/{name}"), move |device| {
            test(device, &Folder::new(number).0);
        });
    }
}

/// A folder that is gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(number: usize) -> Self {
        let name = format!("zoo-weights-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder for what comes and goes");
        Self(path)
    }
}

impl Drop for Folder {
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

fn numbers(model: &Two) -> Vec<(String, Vec<f32>)> {
    tensors(&Weights::of(model))
        .into_iter()
        .map(|(key, data)| (key, data.try_to_vec().expect("f32")))
        .collect()
}

fn refused(result: Result<Two, WeightsError>, message: &str) {
    let error = result.err().map(|error| error.to_string());
    let is_right = error.as_ref().is_some_and(|error| error.contains(message));
    assert!(is_right, "must say {message:?}, says {error:?}");
}

fn read(path: &Path, device: &Device) -> Result<Two, WeightsError> {
    Weights::read(path)?.apply(two(device))
}

fn comes_back(device: &Device, folder: &Path) {
    let model = two(device);
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        must(Weights::of(&model).write(&path));
        assert_ne!(
            numbers(&two(device)),
            numbers(&model),
            "two draws are alike"
        );
        let read = must(read(&path, device));
        assert_eq!(numbers(&read), numbers(&model), "{name}");
    }
    let left = must(fs::read_dir(folder)).count();
    assert_eq!(left, 2, "nothing is left lying beside the files");
}

fn is_not_written_over(device: &Device, folder: &Path) {
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        let (old, new) = (two(device), two(device));
        must(Weights::of(&old).write(&path));
        let error = Weights::of(&new).write(&path).expect_err("it is there");
        assert!(matches!(error, WeightsError::Exists { .. }), "{error}");
        assert_eq!(numbers(&must(read(&path, device))), numbers(&old));
        must(Weights::of(&new).replace(&path));
        assert_eq!(numbers(&must(read(&path, device))), numbers(&new));
    }
}

fn needs_a_format(device: &Device, folder: &Path) {
    for name in ["model", "model.onnx", "model.pt"] {
        let error = Weights::of(&two(device)).write(folder.join(name));
        let error = error.expect_err("no format of ours");
        let text = error.to_string();
        assert!(text.contains(".safetensors or .bpk"), "{text}");
    }
    let error = Weights::read(folder.join("none.safetensors")).expect_err("not there");
    assert!(error.to_string().contains("none.safetensors"), "{error}");
    let error = Weights::read(folder.join("none.pt")).expect_err("not there");
    assert!(matches!(error, WeightsError::File { .. }), "{error}");
}

fn is_named(device: &Device, _: &Path) {
    let changed = |change: fn(&mut Vec<(String, TensorData)>)| {
        let mut all = tensors(&Weights::of(&two(device)));
        change(&mut all);
        Weights::of_tensors(all).apply(two(device))
    };
    let missing = changed(|all| all.retain(|(key, _)| key != "first.bias"));
    refused(missing, "key first.bias is missing");
    let misspelt = changed(|all| {
        let keys = all.iter_mut().map(|(key, _)| key);
        keys.for_each(|key| *key = key.replace("first.bias", "frist.bias"));
    });
    refused(misspelt, "key first.bias is missing: is it frist.bias?");
    let turned = changed(|all| {
        let weights = all.iter_mut().filter(|(key, _)| key == "first.weight");
        weights.for_each(|(_, data)| *data = TensorData::zeros::<f32, _>([4, 3]));
    });
    refused(turned, "key first.weight must be [3, 4], got [4, 3]");
    let more = changed(|all| {
        all.push(("third.bias".to_owned(), TensorData::new(vec![0.0_f32], [1])));
    });
    refused(more, "the model has no third.bias");
    must(changed(|_| {}));
}

fn no_part_is_enough(device: &Device, folder: &Path) {
    for name in ["model.safetensors", "model.bpk"] {
        let whole = folder.join(name);
        must(Weights::of(&two(device)).write(&whole));
        let bytes = must(fs::read(&whole));
        let part = folder.join(format!("part-{name}"));
        for length in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
            must(fs::write(&part, &bytes[..length]));
            refused(read(&part, device), "not a whole");
        }
    }
    let path = folder.join("model.pt");
    let bytes = b"PK\x03\x04 and then nothing that torch.save wrote";
    must(fs::write(&path, bytes));
    refused(read(&path, device), "not a whole PyTorch file");
}

fn changes_are_noticed(device: &Device, folder: &Path) {
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        must(Weights::of(&two(device)).write(&path));
        let mut bytes = must(fs::read(&path));
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        must(fs::write(&path, bytes));
        let message = "the numbers have changed since they were written";
        refused(read(&path, device), message);
    }
}

fn is_renamed(device: &Device, _: &Path) {
    let model = two(device);
    let names = must(KeyRemapper::new().add_pattern(r"^first\.", "encoder.0."));
    let renamed = must(Weights::of(&model).renamed(&names));
    assert!(renamed.get("encoder.0.weight").is_some());
    let message = "key first.weight is missing";
    refused(renamed.clone().apply(two(device)), message);
    let back = must(KeyRemapper::new().add_pattern(r"^encoder\.0\.", "first."));
    let read = must(must(renamed.renamed(&back)).apply(two(device)));
    assert_eq!(numbers(&read), numbers(&model));

    let same = must(KeyRemapper::new().add_pattern(r"^(first|second)\.", "only."));
    let error = Weights::of(&model).renamed(&same).expect_err("two weights");
    let message = "keys first.weight and second.weight would both be only.weight";
    assert_eq!(error.to_string(), message);
}

fn is_converted(device: &Device, _: &Path) {
    use burn::tensor::DType;

    let model = two(device);
    let converted = |change: fn(TensorData) -> TensorData| {
        let all = tensors(&Weights::of(&model)).into_iter();
        let all: Vec<_> = all.map(|(key, data)| (key, change(data))).collect();
        Weights::of_tensors(all).apply(two(device))
    };
    let read = must(converted(|data| data.convert_dtype(DType::F64)));
    assert_eq!(numbers(&read), numbers(&model));
    let truths = |data: TensorData| {
        let shape = data.shape().to_vec();
        TensorData::new(vec![true; shape.iter().product()], shape)
    };
    refused(converted(truths), "must hold F32, got Bool");
}

#[derive(Module, Debug)]
struct Layers {
    additive: MultiHeadAttention,
    performer: MultiHeadAttention,
}

/// Parameters of a mechanism were fields of the attention module, without `params`.
fn former_names(device: &Device, _: &Path) {
    let attention = |mechanism: MechanismConfig| {
        MultiHeadAttentionConfig::new(8, 2)
            .with_mechanism(mechanism)
            .init(device)
    };
    let performer = Performer {
        redraw: Some(4),
        ..Performer::default()
    };
    let layers = || Layers {
        additive: attention(Additive {}.into()),
        performer: attention(performer.into()),
    };
    let model = layers();
    let weights = Weights::of(&model);
    let names = must(KeyRemapper::new().add_pattern(r"\.params\.", "."));
    let former = must(weights.clone().renamed(&names));
    assert!(former.get("additive.vector").is_some());
    let moved = weights.keys().filter(|key| former.get(key).is_none());
    assert!(
        moved.count() > 1,
        "the features of performer have another name too"
    );
    let read = Weights::of(&must(former.apply(layers())));
    for key in weights.keys() {
        assert_eq!(read.get(key), weights.get(key), "{key}");
    }
}
