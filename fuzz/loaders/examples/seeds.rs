//! Writes the seed corpus to `corpus/`: a small file of every supported format.

use std::path::Path;
use std::{fs, io};

use burn::tensor::TensorData;
use zoo_fuzz::{temp_file, write_seed};
use zoo_models::weights::Weights;

const STATE: &str = r#"{"step":2,"position":{"epoch":1,"batch":0},"best":{"step":1,"metric":"loss",
    "value":1.25},"waited":1,"falls":{"count":1,"waited":0},"scale":{"scale":1024.0,
    "good_steps":3},"seconds":2.5,"parameters":{"first.weight":7,"first.bias":8}}"#;

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let put = |target: &str, name: &str, choice: u8, bytes: &[u8]| {
        let bytes = [&[choice], bytes].concat();
        write_seed(env!("CARGO_MANIFEST_DIR"), target, name, &bytes)
    };
    let elements = |count: u8| (0..count).map(f32::from).collect::<Vec<_>>();
    let weight = TensorData::new(elements(12), [3, 4]);
    let bias = TensorData::new(elements(4), [4]);
    let tensors = [("first.weight", weight), ("first.bias", bias)];
    let weights = Weights::from_tensors(tensors.map(|(name, data)| (name.to_owned(), data)));
    for (choice, extension) in (0..).zip(["safetensors", "bpk"]) {
        let path = temp_file(&format!("seed.{extension}"), b"");
        weights.replace(&path).map_err(io::Error::other)?;
        put("weights", extension, choice, &fs::read(&path)?)?;
        if choice == 0 {
            put("checkpoint", "weights", 0, &fs::read(&path)?)?;
        }
        fs::remove_file(&path)?;
    }
    let pytorch = fs::read(root.join("../../crates/conformance/golden/gpt2.pt"))?;
    put("weights", "pt", 2, &pytorch)?;
    let golden = root.join("../../crates/conformance/golden/hugging_face/llama3");
    for (choice, name) in [(0, "config.json"), (1, "model.safetensors.index.json")] {
        put("model_folder", name, choice, &fs::read(golden.join(name))?)?;
    }
    put("checkpoint", "optimizer", 1, b"anything")?;
    put("checkpoint", "state", 2, STATE.as_bytes())?;
    let checksums = br#"{"state.json":"00000000"}"#;
    put("checkpoint", "checksums", 3, checksums)
}
