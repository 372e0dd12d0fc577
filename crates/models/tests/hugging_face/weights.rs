//! Weights in one file or several, and damaged files.

use std::fs;
use std::path::Path;

use burn::tensor::TensorData;
use serde_json::{Value, json};
use zoo_models::Activation;
use zoo_models::weights::Weights;
use zoo_models::weights::hugging_face::{Family, ModelFolder};

use crate::{Folder, filled, gpt2, llama, tensors, with};

/// The tensors, with one replaced.
fn replacing(name: &str, data: TensorData) -> Vec<(String, TensorData)> {
    let mut tensors = tensors();
    tensors.retain(|(other, _)| other != name);
    tensors.push((name.to_owned(), data));
    tensors
}

#[test]
fn a_folder_is_read() {
    let folder = Folder::with(&llama(), tensors());
    let opened = ModelFolder::open(&folder.0).expect("a valid folder");
    assert_eq!(opened.family(), Family::Llama);
    assert_eq!(opened.end_tokens(), [2]);
    let spec = &opened.config().spec;
    assert_eq!((spec.context, spec.epsilon), (32, 1e-5));
    assert_eq!(spec.activation, Activation::Swiglu);
    let weights = opened.weights().expect("valid weights");
    let query = weights
        .get("layers.0.attention.query.weight")
        .expect("a query projection");
    // Transposed.
    assert_eq!(query.iter::<f32>().nth(1), Some(0.5));
    // End tokens of the generation config take precedence, those outside of the vocabulary are dropped.
    folder.write(
        "generation_config.json",
        r#"{"eos_token_id": [4, 1, 5], "top_p": 0.9}"#,
    );
    let opened = ModelFolder::open(&folder.0).expect("a valid folder");
    assert_eq!(opened.end_tokens(), [4, 1]);
    folder.write("generation_config.json", r#"{"eos_token_id": null}"#);
    let opened = ModelFolder::open(&folder.0).expect("a valid folder");
    assert_eq!(opened.end_tokens(), [2]);
    folder.write("generation_config.json", r#"{"eos_token_id": "a"}"#);
    let error = folder.error();
    assert!(
        error.contains("generation_config.json: eos_token_id must be a token id"),
        "{error}"
    );
}

#[test]
fn weights_that_do_not_fit_the_config_are_rejected_with_the_name() {
    let mut missing = tensors();
    missing.retain(|(name, _)| !name.ends_with("k_proj.weight"));
    let mut bias = tensors();
    bias.push((
        "model.layers.0.self_attn.q_proj.bias".to_owned(),
        filled(&[4]),
    ));
    let mut second = tensors();
    second.push((
        "model.layers.1.input_layernorm.weight".to_owned(),
        filled(&[4]),
    ));
    let untied = llama();
    let tied = with(llama(), &[("tie_word_embeddings", json!(true))]);
    let mut no_head = tensors();
    no_head.retain(|(name, _)| name != "lm_head.weight");
    let integers = TensorData::new(vec![1_i64; 4], [4]);
    for (config, tensors, message) in [
        (
            &untied,
            missing,
            "key layers.0.self_attn.k_proj.weight is missing",
        ),
        (
            &untied,
            bias,
            "unexpected keys: layers.0.self_attn.q_proj.bias",
        ),
        (
            &untied,
            second,
            "unexpected keys: layers.1.input_layernorm.weight",
        ),
        (&untied, no_head.clone(), "key lm_head.weight is missing"),
        (
            &untied,
            replacing("model.norm.weight", filled(&[5])),
            "tensor model.norm.weight: expected shape [4], got [5]",
        ),
        (
            &untied,
            replacing("model.layers.0.mlp.down_proj.weight", filled(&[6, 4])),
            "tensor model.layers.0.mlp.down_proj.weight: expected shape [4, 6], got [6, 4]",
        ),
        (
            &untied,
            replacing("model.norm.weight", integers),
            "tensor model.norm.weight: expected dtype f32, f16 or bf16, got I64",
        ),
        (
            &tied,
            replacing("lm_head.weight", TensorData::zeros::<f32, _>([5, 4])),
            "tensor lm_head.weight: expected the elements of embed_tokens.weight, as \
          tie_word_embeddings is true, got others",
        ),
    ] {
        let error = Folder::with(config, tensors).error();
        assert!(error.contains(message), "{error}\nexpected: {message}");
    }
    // A copy of a tied embedding, and frequencies that earlier versions saved.
    let mut copied = tensors();
    copied.push((
        "model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(),
        filled(&[1]),
    ));
    for tensors in [no_head, copied] {
        let folder = Folder::with(&tied, tensors);
        let weights = ModelFolder::open(&folder.0).and_then(|folder| folder.weights());
        let weights = weights.expect("valid weights");
        assert!(weights.get("head.weight").is_none());
    }
}

/// A folder with two files and this change of the index.
fn sharded(change: impl Fn(&Folder, &mut Value)) -> Folder {
    let folder = Folder::new();
    folder.write("config.json", &llama().to_string());
    let mut map = json!({});
    let all = tensors();
    let bytes: usize = all.iter().map(|(_, data)| data.as_bytes().len()).sum();
    for (index, half) in all.chunks(6).enumerate() {
        let name = format!("model-{index}.safetensors");
        for (key, _) in half {
            map[key] = json!(name);
        }
        let weights = Weights::from_tensors(half.to_vec());
        weights.write(folder.0.join(name)).expect("a new file");
    }
    let mut index = json!({"metadata": {"total_size": bytes}, "weight_map": map});
    change(&folder, &mut index);
    folder.write("model.safetensors.index.json", &index.to_string());
    folder
}

#[test]
fn files_with_an_index_are_read_as_one() {
    let folder = sharded(|_, _| {});
    let opened = ModelFolder::open(&folder.0).expect("a valid folder");
    let weights = opened.file_weights().expect("valid files");
    assert_eq!(weights.keys().count(), 12);
    opened.weights().expect("valid weights");
}

#[test]
fn invalid_indices_are_rejected() {
    type Change = fn(&Folder, &mut Value);
    const INDEX: &str = "DIR/model.safetensors.index.json: ";
    const NORM: &str = "model.norm.weight";
    let cases: [(Change, &str, &str); 13] = [
        (
            |_, index| index["weight_map"][NORM] = json!("../model-1.safetensors"),
            INDEX,
            "weight_map.model.norm.weight must be the name of a .safetensors file in the same folder, got \
          \"../model-1.safetensors\"",
        ),
        (
            |_, index| index["weight_map"][NORM] = json!("/etc/a.safetensors"),
            INDEX,
            "/etc/a.safetensors",
        ),
        (
            |_, index| index["weight_map"][NORM] = json!("a\\b.safetensors"),
            INDEX,
            "in the same folder",
        ),
        (
            |_, index| index["weight_map"][NORM] = json!("config.json"),
            INDEX,
            "in the same folder",
        ),
        (
            |_, index| index["weight_map"][NORM] = json!(1),
            INDEX,
            "in the same folder, got 1",
        ),
        (
            |_, index| index["weight_map"][NORM] = json!("model-2.safetensors"),
            INDEX,
            "the file model-2.safetensors does not exist",
        ),
        // Another file than the one it is in.
        (
            |_, index| index["weight_map"][NORM] = json!("model-0.safetensors"),
            "DIR/model-0.safetensors: ",
            "tensor model.norm.weight is missing, which model.safetensors.index.json lists for this file",
        ),
        // In both files.
        (
            |folder, _| {
                let path = folder.0.join("model-0.safetensors");
                let mut half = tensors()[..6].to_vec();
                half.push((NORM.to_owned(), filled(&[4])));
                Weights::from_tensors(half).replace(path).expect("writable");
            },
            "DIR/model-0.safetensors: ",
            "tensor model.norm.weight is in this file and, by model.safetensors.index.json, in \
          model-1.safetensors",
        ),
        (
            |_, index| {
                index["weight_map"]
                    .as_object_mut()
                    .expect("an object")
                    .remove(NORM);
            },
            "DIR/model-1.safetensors: ",
            "tensor model.norm.weight is not listed in model.safetensors.index.json",
        ),
        (
            |_, index| index["metadata"]["total_size"] = json!(1),
            INDEX,
            "metadata.total_size is 1, but the tensors have ",
        ),
        (
            |_, index| index["weight_map"] = json!({}),
            INDEX,
            "weight_map has no tensors",
        ),
        (
            |_, index| index["weight_map"] = json!([]),
            INDEX,
            "weight_map must be an object",
        ),
        (
            |folder, _| {
                let path = folder.0.join("model-1.safetensors");
                let bytes = fs::read(&path).expect("a file");
                fs::write(&path, &bytes[..bytes.len() - 1]).expect("writable");
            },
            "DIR/model-1.safetensors: ",
            "invalid or truncated safetensors file",
        ),
    ];
    for (change, file, message) in cases {
        let error = sharded(change).error();
        assert!(error.starts_with(file), "{error}\nexpected: {file}");
        assert!(error.contains(message), "{error}\nexpected: {message}");
    }
}

#[test]
fn folders_without_weights_are_rejected() {
    let folder = Folder::new();
    folder.write("config.json", &llama().to_string());
    let message =
        "DIR: there are no weights: no model.safetensors and no model.safetensors.index.json";
    assert!(folder.error().starts_with(message), "{}", folder.error());
    folder.write("pytorch_model.bin", "");
    let help = "\n  help: load it with transformers and save it as safetensors";
    assert!(folder.error().contains(help), "{}", folder.error());
    assert!(ModelFolder::is_model_folder(&folder.0));
    assert!(!ModelFolder::is_model_folder(Path::new("no-such-folder")));
}

/// Truncated files and changed bytes: an error that names the file, or a config.
#[test]
fn damaged_files_do_not_panic() {
    let scaling = json!({"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4});
    let texts = [
        with(llama(), &[("rope_parameters", scaling)]).to_string(),
        gpt2().to_string(),
    ];
    let folder = Folder::new();
    for text in texts {
        for end in (0..text.len()).step_by(3) {
            folder.write("config.json", &text[..end]);
            let error = folder.error();
            assert!(error.starts_with("DIR/config.json: "), "{error}");
        }
        for index in 0..text.len() {
            for byte in [b'9', 0xff] {
                let mut bytes = text.clone().into_bytes();
                bytes[index] = byte;
                fs::write(folder.0.join("config.json"), bytes).expect("writable");
                let error = folder.error();
                assert!(error.starts_with("DIR"), "{error}");
            }
        }
    }
    let folder = sharded(|_, _| {});
    let path = folder.0.join("model.safetensors.index.json");
    let index = fs::read(&path).expect("an index");
    for end in (0..index.len()).step_by(9) {
        fs::write(&path, &index[..end]).expect("writable");
        let error = folder.error();
        assert!(error.contains("model.safetensors.index.json: "), "{error}");
    }
}
