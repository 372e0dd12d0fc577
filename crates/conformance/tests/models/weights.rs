//! Weights through files: what comes back, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::store::KeyRemapper;
use burn::tensor::{Device, TensorData};
use libtest_mimic::Failed;
use zoo_attention::mechanisms::{Additive, MechanismConfig, Performer};
use zoo_attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use zoo_conformance::Suite;
use zoo_models::weights::{Weights, WeightsError};

use crate::support::tensors;

type Test = fn(&Device, &Path) -> Result<(), Failed>;

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
            test(device, &Folder::new(number).0)
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

fn refused(result: Result<Two, WeightsError>, message: &str) -> Result<(), Failed> {
    match result {
        Ok(_) => Err(format!("must be refused: {message}").into()),
        Err(error) if error.to_string().contains(message) => Ok(()),
        Err(error) => Err(format!("must say {message:?}, says {error}").into()),
    }
}

fn comes_back(device: &Device, folder: &Path) -> Result<(), Failed> {
    let model = two(device);
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        Weights::of(&model).write(&path)?;
        let other = two(device);
        assert_ne!(numbers(&other), numbers(&model), "two draws are alike");
        let read = Weights::read(&path)?.apply(other)?;
        assert_eq!(numbers(&read), numbers(&model), "{name}");
    }
    let left = fs::read_dir(folder)?.count();
    assert_eq!(left, 2, "nothing is left lying beside the files");
    Ok(())
}

fn is_not_written_over(device: &Device, folder: &Path) -> Result<(), Failed> {
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        let (old, new) = (two(device), two(device));
        Weights::of(&old).write(&path)?;
        let error = Weights::of(&new).write(&path).expect_err("it is there");
        assert!(matches!(error, WeightsError::Exists { .. }), "{error}");
        let kept = Weights::read(&path)?.apply(two(device))?;
        assert_eq!(numbers(&kept), numbers(&old));
        Weights::of(&new).replace(&path)?;
        let replaced = Weights::read(&path)?.apply(two(device))?;
        assert_eq!(numbers(&replaced), numbers(&new));
    }
    Ok(())
}

fn needs_a_format(device: &Device, folder: &Path) -> Result<(), Failed> {
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
    Ok(())
}

fn is_named(device: &Device, _: &Path) -> Result<(), Failed> {
    let model = || two(device);
    /// What becomes of a key: its name, and another shape perhaps; or it is gone.
    type Change = fn(&str) -> Option<(String, Option<Vec<usize>>)>;
    let changed = |change: Change| {
        let all = tensors(&Weights::of(&model())).into_iter();
        let tensor = |(key, data): (String, TensorData)| {
            let (name, shape) = change(&key)?;
            let zeros = |shape: Vec<usize>| TensorData::zeros::<f32, _>(shape);
            Some((name, shape.map_or(data, zeros)))
        };
        Weights::of_tensors(all.filter_map(tensor).collect::<Vec<_>>())
    };

    let missing = changed(|key| (key != "first.bias").then(|| (key.to_owned(), None)));
    refused(missing.apply(model()), "key first.bias is missing")?;
    let misspelt = changed(|key| Some((key.replace("first.bias", "frist.bias"), None)));
    refused(
        misspelt.apply(model()),
        "key first.bias is missing: is it frist.bias?",
    )?;
    let turned = changed(|key| {
        let shape = (key == "first.weight").then(|| vec![4, 3]);
        Some((key.to_owned(), shape))
    });
    let message = "key first.weight must be [3, 4], got [4, 3]";
    refused(turned.apply(model()), message)?;
    let mut more = tensors(&Weights::of(&model()));
    more.push(("third.bias".to_owned(), TensorData::new(vec![0.0_f32], [1])));
    let more = Weights::of_tensors(more);
    refused(more.apply(model()), "the model has no third.bias")?;
    let whole = changed(|key| Some((key.to_owned(), None)));
    assert!(whole.apply(model()).is_ok(), "nothing is wrong with these");
    Ok(())
}

fn no_part_is_enough(device: &Device, folder: &Path) -> Result<(), Failed> {
    for name in ["model.safetensors", "model.bpk"] {
        let whole = folder.join(name);
        Weights::of(&two(device)).write(&whole)?;
        let bytes = fs::read(&whole)?;
        let part = folder.join(format!("part-{name}"));
        for length in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
            fs::write(&part, &bytes[..length])?;
            let read = Weights::read(&part).and_then(|weights| weights.apply(two(device)));
            refused(read, "not a whole")?;
        }
    }
    let path = folder.join("model.pt");
    fs::write(&path, b"PK\x03\x04 and then nothing that torch.save wrote")?;
    let read = Weights::read(&path).and_then(|weights| weights.apply(two(device)));
    refused(read, "not a whole PyTorch file")
}

fn changes_are_noticed(device: &Device, folder: &Path) -> Result<(), Failed> {
    for name in ["model.safetensors", "model.bpk"] {
        let path = folder.join(name);
        Weights::of(&two(device)).write(&path)?;
        let mut bytes = fs::read(&path)?;
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        fs::write(&path, bytes)?;
        let read = Weights::read(&path).and_then(|weights| weights.apply(two(device)));
        refused(read, "the numbers have changed since they were written")?;
    }
    Ok(())
}

fn is_renamed(device: &Device, _: &Path) -> Result<(), Failed> {
    let model = two(device);
    let names = KeyRemapper::new().add_pattern(r"^first\.", "encoder.0.")?;
    let renamed = Weights::of(&model).renamed(&names)?;
    assert!(renamed.get("encoder.0.weight").is_some());
    let message = "key first.weight is missing";
    refused(renamed.clone().apply(two(device)), message)?;
    let back = KeyRemapper::new().add_pattern(r"^encoder\.0\.", "first.")?;
    let read = renamed.renamed(&back)?.apply(two(device))?;
    assert_eq!(numbers(&read), numbers(&model));

    let same = KeyRemapper::new().add_pattern(r"^(first|second)\.", "only.")?;
    let error = Weights::of(&model).renamed(&same).expect_err("two weights");
    let message = "keys first.weight and second.weight would both be only.weight";
    assert_eq!(error.to_string(), message);
    Ok(())
}

fn is_converted(device: &Device, _: &Path) -> Result<(), Failed> {
    use burn::tensor::DType;

    let model = two(device);
    let converted = |change: fn(TensorData) -> TensorData| {
        let all = tensors(&Weights::of(&model)).into_iter();
        let all: Vec<_> = all.map(|(key, data)| (key, change(data))).collect();
        Weights::of_tensors(all).apply(two(device))
    };
    let read = converted(|data| data.convert_dtype(DType::F64))?;
    assert_eq!(numbers(&read), numbers(&model));
    let truths = |data: TensorData| {
        let shape = data.shape().to_vec();
        TensorData::new(vec![true; shape.iter().product()], shape)
    };
    refused(converted(truths), "must hold F32, got Bool")
}

#[derive(Module, Debug)]
struct Layers {
    additive: MultiHeadAttention,
    performer: MultiHeadAttention,
}

/// Parameters of a mechanism were fields of the attention module, without `params`.
fn former_names(device: &Device, _: &Path) -> Result<(), Failed> {
    let attention = |mechanism: MechanismConfig| {
        MultiHeadAttentionConfig::new(8, 2)
            .with_mechanism(mechanism)
            .init(device)
    };
    let layers = || Layers {
        additive: attention(Additive {}.into()),
        performer: attention(
            Performer {
                redraw: Some(4),
                ..Performer::default()
            }
            .into(),
        ),
    };
    let model = layers();
    let weights = Weights::of(&model);
    let names = KeyRemapper::new().add_pattern(r"\.params\.", ".")?;
    let former = weights.clone().renamed(&names)?;
    assert!(former.get("additive.vector").is_some());
    let moved = weights
        .keys()
        .filter(|key| former.get(key).is_none())
        .count();
    assert!(moved > 1, "the features of performer have another name too");
    let read = Weights::of(&former.apply(layers())?);
    for key in weights.keys() {
        assert_eq!(read.get(key), weights.get(key), "{key}");
    }
    Ok(())
}
