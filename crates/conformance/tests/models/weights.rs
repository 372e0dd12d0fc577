//! Weight files: round trips, conversions, errors and random damage.

use std::fs;
use std::path::Path;

use burn::nn::{Linear, LinearConfig};
use burn::store::KeyRemapper;
use burn::tensor::DType;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use zoo_attention::mechanisms::{Additive, MechanismConfig, Performer};
use zoo_attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use zoo_models::ModelError;

use crate::support::*;

type Test = fn(&Device, &Path);

const FORMATS: [&str; 2] = ["model.safetensors", "model.bpk"];

pub(crate) fn trials(suite: &mut Suite) {
    for (index, (name, test)) in TESTS.iter().enumerate() {
        suite.add(format!("weights/{name}"), move |device| {
            let folder = format!("zoo-weights-{}-{index}", std::process::id());
            let folder = std::env::temp_dir().join(folder);
            must(fs::create_dir_all(&folder));
            test(device, &folder);
            must(fs::remove_dir_all(&folder));
        });
    }
    let formats = ["safetensors", "bpk", "pt"];
    suite.add_each("weights/damaged-", formats, read_damaged);
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

fn assert_rejected<T>(result: Result<T, ModelError>, message: &str) {
    let error = result.err().map(|error| error.to_string());
    let matches = error.as_ref().is_some_and(|error| error.contains(message));
    assert!(matches, "{error:?} does not contain {message:?}");
}

fn read(path: &Path, device: &Device) -> Result<Two, ModelError> {
    Weights::read(path)?.apply(two(device))
}

#[derive(Module, Debug)]
struct Layers {
    additive: MultiHeadAttention,
    performer: MultiHeadAttention,
}

const TESTS: &[(&str, Test)] = &[
    ("round-trip", |device, folder| {
        let model = two(device);
        for name in FORMATS {
            let path = folder.join(name);
            must(Weights::from_model(&model).write(&path));
            assert_ne!(values(&two(device)), values(&model));
            let read = must(read(&path, device));
            assert_eq!(values(&read), values(&model), "{name}");
        }
        let left = must(fs::read_dir(folder)).count();
        assert_eq!(left, 2, "temporary files were not deleted");
    }),
    ("files-are-not-overwritten", |device, folder| {
        for name in FORMATS {
            let path = folder.join(name);
            let (old, new) = (two(device), two(device));
            must(Weights::from_model(&old).write(&path));
            let written = Weights::from_model(&new).write(&path);
            assert!(matches!(written, Err(ModelError::Exists { .. })));
            assert_eq!(values(&must(read(&path, device))), values(&old));
            must(Weights::from_model(&new).replace(&path));
            assert_eq!(values(&must(read(&path, device))), values(&new));
        }
    }),
    ("unknown-format-is-rejected", |device, folder| {
        for name in ["model", "model.onnx", "model.pt"] {
            let written = Weights::from_model(&two(device)).write(folder.join(name));
            assert_rejected(written, ".safetensors or .bpk");
        }
        let missing = "none.safetensors";
        assert_rejected(Weights::read(folder.join(missing)), missing);
        let error = Weights::read(folder.join("none.pt")).expect_err("a missing file");
        assert!(matches!(error, ModelError::File { .. }), "{error}");
    }),
    ("mismatches-are-named", |device, _| {
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
        let message =
            "tensor first.weight: expected shape [3, 4], got [4, 3]\n  help: create the model";
        assert_rejected(transposed, message);
        let more = changed(|all| {
            all.push(("third.bias".to_owned(), TensorData::new(vec![0.0_f32], [1])));
        });
        assert_rejected(more, "unexpected keys: third.bias");
        must(changed(|_| {}));
    }),
    ("truncated-file-is-rejected", |device, folder| {
        for name in FORMATS {
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
    }),
    ("changed-values-are-detected", |device, folder| {
        for name in FORMATS {
            let path = folder.join(name);
            must(Weights::from_model(&two(device)).write(&path));
            let mut bytes = must(fs::read(&path));
            let last = bytes.len() - 2;
            bytes[last] ^= 1;
            must(fs::write(&path, bytes));
            assert_rejected(read(&path, device), "checksum mismatch");
        }
    }),
    ("keys-can-be-renamed", |device, _| {
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
        let renamed = Weights::from_model(&model).remap_keys(&same);
        let message = "keys first.weight and second.weight are both renamed to only.weight";
        assert_error(renamed, message);
    }),
    ("dtypes-are-converted", |device, _| {
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
        assert_rejected(converted(to_bool), "expected dtype F32, got Bool");
    }),
    // Earlier versions had a mechanism's parameters in the attention module, without `params`.
    ("former-names-are-accepted", |device, _| {
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
    }),
];

/// Reads files with random damage: this returns weights or an error that names the file, and never
/// panics. `ZOO_DAMAGED` is the number of files; the default takes a second for all formats.
fn read_damaged(extension: &str, _: &Device) {
    const DEFAULT_CASES: u32 = 300;
    let cases = std::env::var("ZOO_DAMAGED").map_or(DEFAULT_CASES, |count| must(count.parse()));
    let name = format!("zoo-changed-{}.{extension}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let intact = intact_file(&path);
    let config = Config {
        cases,
        failure_persistence: None,
        // Reproducible on every machine.
        rng_seed: RngSeed::Fixed(1),
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&prop::collection::vec(change(), 1..5), |changes| {
        let mut bytes = intact.clone();
        for change in changes {
            apply(change, &mut bytes);
        }
        fs::write(&path, &bytes)?;
        if let Err(error) = Weights::read(&path) {
            let message = error.to_string();
            let names_file = message.contains(&path.display().to_string());
            prop_assert!(names_file, "{message}");
        }
        Ok(())
    });
    must(fs::remove_file(&path));
    must(outcome);
}

fn intact_file(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|extension| extension == "pt") {
        return include_bytes!("../../golden/gpt2.pt").to_vec();
    }
    let values = |count: u8| (0..count).map(f32::from).collect::<Vec<_>>();
    let weight = TensorData::new(values(12), [3, 4]);
    let bias = TensorData::new(values(4), [4]);
    let named = [
        ("first.weight".to_owned(), weight),
        ("first.bias".to_owned(), bias),
    ];
    must(Weights::from_tensors(named).replace(path));
    must(fs::read(path))
}

#[derive(Debug, Clone)]
enum Kind {
    Truncate,
    Insert(Vec<u8>),
    Remove,
    Fill(u8),
    FlipBits(u8),
}

/// Offset, whether it is from the end, where some formats have their index, length and kind.
type Change = (usize, bool, usize, Kind);

fn change() -> impl Strategy<Value = Change> {
    let kind = prop_oneof![
        Just(Kind::Truncate),
        prop::collection::vec(any::<u8>(), 1..9).prop_map(Kind::Insert),
        Just(Kind::Remove),
        prop::sample::select(vec![0, 0x7f, 0x80, 0xff, b'"', b'9']).prop_map(Kind::Fill),
        (0_u8..8).prop_map(|bit| Kind::FlipBits(1 << bit)),
        (0_u8..8).prop_map(|bit| Kind::FlipBits(1 << bit)),
    ];
    let offset = prop_oneof![0_usize..32, 0_usize..600, any::<usize>()];
    (offset, any::<bool>(), 1_usize..9, kind)
}

fn apply((offset, from_end, length, kind): Change, bytes: &mut Vec<u8>) {
    let offset = offset % (bytes.len() + 1);
    let start = if from_end {
        bytes.len() - offset
    } else {
        offset
    };
    let end = (start + length).min(bytes.len());
    match kind {
        Kind::Truncate => bytes.truncate(start),
        Kind::Insert(more) => drop(bytes.splice(start..start, more)),
        Kind::Remove => drop(bytes.drain(start..end)),
        Kind::Fill(byte) => bytes[start..end].fill(byte),
        Kind::FlipBits(bits) => bytes[start..end]
            .iter_mut()
            .take(1)
            .for_each(|byte| *byte ^= bits),
    }
}
