//! Errors of model folders: each names the file, the key or the tensor. All files are read on the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::TensorData;
use serde_json::{Value, json};
use zoo_models::weights::Weights;
use zoo_models::weights::hugging_face::{Family, ModelFolder};
use zoo_models::{
    Activation, LayerMechanisms, PairLayout, PositionEncoding, Rotary, RotaryScaling,
};

/// A temporary folder that is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("zoo-hugging-face-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a new folder");
        Self(path)
    }

    /// A folder with a config and weights in one file.
    fn with(config: &Value, tensors: Vec<(String, TensorData)>) -> Self {
        let folder = Self::new();
        folder.write("config.json", &config.to_string());
        let weights = Weights::from_tensors(tensors);
        weights
            .write(folder.0.join("model.safetensors"))
            .expect("a new file");
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("writable");
    }

    /// The error of reading config and weights.
    fn error(&self) -> String {
        let weights = ModelFolder::open(&self.0).and_then(|folder| folder.weights());
        let error = weights.map(|_| ()).expect_err("an error").to_string();
        error.replace(&self.0.display().to_string(), "DIR")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A Llama with one layer.
fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 5,
        "hidden_size": 4,
        "intermediate_size": 6,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 32,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    })
}

fn with(mut config: Value, changes: &[(&str, Value)]) -> Value {
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    config
}

fn gpt2() -> Value {
    json!({
        "model_type": "gpt2",
        "vocab_size": 5,
        "n_embd": 4,
        "n_head": 2,
        "n_layer": 1,
        "n_positions": 8,
    })
}

fn tensors() -> Vec<(String, TensorData)> {
    let layer = "model.layers.0";
    let shapes: [(String, &[usize]); 12] = [
        ("model.embed_tokens.weight".to_owned(), &[5, 4]),
        (format!("{layer}.input_layernorm.weight"), &[4]),
        (format!("{layer}.post_attention_layernorm.weight"), &[4]),
        (format!("{layer}.self_attn.q_proj.weight"), &[4, 4]),
        (format!("{layer}.self_attn.k_proj.weight"), &[2, 4]),
        (format!("{layer}.self_attn.v_proj.weight"), &[2, 4]),
        (format!("{layer}.self_attn.o_proj.weight"), &[4, 4]),
        (format!("{layer}.mlp.gate_proj.weight"), &[6, 4]),
        (format!("{layer}.mlp.up_proj.weight"), &[6, 4]),
        (format!("{layer}.mlp.down_proj.weight"), &[4, 6]),
        ("model.norm.weight".to_owned(), &[4]),
        ("lm_head.weight".to_owned(), &[5, 4]),
    ];
    let tensor = |(name, shape): (String, &[usize])| (name, filled(shape));
    shapes.into_iter().map(tensor).collect()
}

/// Different elements.
fn filled(shape: &[usize]) -> TensorData {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| i as f32 / 8.0).collect();
    TensorData::new(values, shape.to_vec())
}

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

/// Files of earlier versions have other keys for the same model.
#[test]
fn keys_of_earlier_versions_have_the_same_meaning() {
    let open = |config: &Value| {
        let folder = Folder::new();
        folder.write("config.json", &config.to_string());
        let opened = ModelFolder::open(&folder.0);
        opened
            .unwrap_or_else(|error| panic!("{error}"))
            .config()
            .spec
            .clone()
    };
    let scaling = json!({
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16, "rope_type": "llama3",
    });
    let mut parameters = scaling.clone();
    parameters["rope_theta"] = json!(5e5);
    let former = open(&with(
        llama(),
        &[("rope_theta", json!(5e5)), ("rope_scaling", scaling)],
    ));
    assert_eq!(
        former,
        open(&with(llama(), &[("rope_parameters", parameters)]))
    );
    let rotary = Rotary::new(5e5)
        .with_layout(PairLayout::Halves)
        .with_scaling(RotaryScaling::llama3(8.0, 16));
    assert_eq!(former.positions, PositionEncoding::Rotary(rotary));
    let dynamic = json!({"type": "linear", "factor": 2.0});
    let linear = open(&with(llama(), &[("rope_scaling", dynamic)]));
    let rotary = Rotary::new(1e4)
        .with_layout(PairLayout::Halves)
        .with_scaling(RotaryScaling::linear(2.0));
    assert_eq!(linear.positions, PositionEncoding::Rotary(rotary));
    assert_eq!(open(&gpt2()).positions, PositionEncoding::learned(8));

    // A window of 3 keys is a query's own and two before it.
    let names =
        |mechanisms: &LayerMechanisms| serde_json::to_value(mechanisms).expect("serializable");
    let window = json!({"kind": "sliding-window", "window": 2});
    let mistral = [
        ("model_type", json!("mistral")),
        ("architectures", json!(["MistralForCausalLM"])),
    ];
    let mistral = with(with(llama(), &mistral), &[("sliding_window", json!(3))]);
    assert_eq!(names(&open(&mistral).attention), window);
    let all = open(&with(mistral, &[("sliding_window", Value::Null)]));
    assert_eq!(names(&all.attention), json!({"kind": "flash"}));
    let qwen = [
        ("model_type", json!("qwen2")),
        ("architectures", json!(["Qwen2ForCausalLM"])),
        ("num_hidden_layers", json!(3)),
        ("sliding_window", json!(3)),
        ("max_window_layers", json!(1)),
    ];
    let qwen = with(llama(), &qwen);
    assert_eq!(names(&open(&qwen).attention), json!({"kind": "flash"}));
    let windows = with(qwen, &[("use_sliding_window", json!(true))]);
    let expected = json!([{"kind": "flash"}, window, window]);
    assert_eq!(names(&open(&windows).attention), expected);
    let types = json!(["full_attention", "sliding_attention", "sliding_attention"]);
    let listed = with(
        windows,
        &[("layer_types", types), ("max_window_layers", json!(0))],
    );
    assert_eq!(names(&open(&listed).attention), expected);
}

#[test]
fn configs_that_are_not_implemented_are_rejected_with_the_key() {
    let rope = |parameters: Value| with(llama(), &[("rope_parameters", parameters)]);
    let qwen2 = with(
        llama(),
        &[
            ("model_type", json!("qwen2")),
            ("architectures", json!(["Qwen2ForCausalLM"])),
        ],
    );
    let mut no_type = llama();
    no_type
        .as_object_mut()
        .expect("an object")
        .remove("model_type");
    let mut no_size = llama();
    no_size
        .as_object_mut()
        .expect("an object")
        .remove("hidden_size");
    for (config, message) in [
        (
            with(llama(), &[("model_type", json!("mamba"))]),
            "model_type must be one of gpt2, llama, mistral, qwen2, qwen3, got \"mamba\"",
        ),
        (no_type, "model_type is missing"),
        (no_size, "hidden_size is missing"),
        (
            with(
                llama(),
                &[("architectures", json!(["LlamaForSequenceClassification"]))],
            ),
            "architectures must be [\"LlamaForCausalLM\"], got [\"LlamaForSequenceClassification\"]",
        ),
        (
            with(llama(), &[("hidden_act", json!("gelu"))]),
            "hidden_act must be \"silu\", got \"gelu\"",
        ),
        (
            with(llama(), &[("attention_bias", json!(true))]),
            "attention_bias must be false, got true",
        ),
        (
            with(llama(), &[("mlp_bias", json!(true))]),
            "mlp_bias must be false, got true",
        ),
        (
            with(llama(), &[("residual_multiplier", json!(0.5))]),
            "unknown key residual_multiplier = 0.5",
        ),
        (
            with(llama(), &[("sliding_window", json!(4))]),
            "unknown key sliding_window = 4",
        ),
        (
            with(llama(), &[("quantization_config", json!({"bits": 4}))]),
            "quantization_config must be null, got {\"bits\":4}",
        ),
        (
            with(llama(), &[("hidden_size", json!("4"))]),
            "hidden_size must be an integer of at least 0, got \"4\"",
        ),
        (
            with(llama(), &[("hidden_size", json!(5))]),
            "d_model = 5 must be a multiple of n_heads = 2",
        ),
        (
            with(llama(), &[("num_hidden_layers", json!(1_000_000_000))]),
            "layers must be",
        ),
        (
            rope(json!({"rope_type": "dynamic", "factor": 2.0})),
            "rope_parameters.rope_type must be \"default\", \"linear\", \"yarn\" or \"llama3\", got \
          \"dynamic\"",
        ),
        (
            rope(json!({"rope_type": "linear"})),
            "rope_parameters.factor is missing",
        ),
        (
            rope(json!({"rope_type": "linear", "factor": 0.5})),
            "scaling.factor must be at least 1",
        ),
        (
            rope(json!({"rope_type": "default", "beta_fast": 4.0})),
            "unknown key rope_parameters.beta_fast = 4.0",
        ),
        (
            rope(json!({"rope_type": "default", "partial_rotary_factor": 0.5})),
            "rope_parameters.partial_rotary_factor must be 1.0, got 0.5",
        ),
        (
            rope(json!({"rope_type": "yarn", "factor": 2.0, "mscale": 0.7})),
            "rope_parameters.mscale must be null, got 0.7",
        ),
        (
            with(rope(json!({})), &[("rope_scaling", json!({}))]),
            "rope_scaling must be absent beside rope_parameters",
        ),
        (
            with(qwen2.clone(), &[("layer_types", json!([]))]),
            "layer_types must be a list of num_hidden_layers = 1 types, got 0 types",
        ),
        (
            with(
                qwen2.clone(),
                &[("layer_types", json!(["chunked_attention"]))],
            ),
            "layer_types must be a list of \"full_attention\" and \"sliding_attention\", got \
          \"chunked_attention\"",
        ),
        (
            with(
                qwen2.clone(),
                &[("layer_types", json!(["sliding_attention"]))],
            ),
            "sliding_window must be set, for the layers with a window, got null",
        ),
        (
            with(qwen2, &[("sliding_window", json!(0))]),
            "sliding_window must be at least 1, got 0",
        ),
        (
            with(gpt2(), &[("activation_function", json!("tanh"))]),
            "activation_function must be \"gelu_new\", \"gelu_pytorch_tanh\", \"gelu\" or \"relu\", got \
          \"tanh\"",
        ),
        (
            with(gpt2(), &[("scale_attn_weights", json!(false))]),
            "scale_attn_weights must be true, got false",
        ),
        (json!([1]), "expected a JSON object, got [1]"),
    ] {
        let error = Folder::with(&config, vec![]).error();
        assert!(error.starts_with("DIR/config.json: "), "{error}");
        assert!(error.contains(message), "{error}\nexpected: {message}");
        assert!(error.contains("\n  help: "), "{error}");
    }
    let folder = Folder::new();
    folder.write("config.json", "{\"model_type\": ");
    let error = folder.error();
    assert!(error.contains("DIR/config.json: invalid JSON"), "{error}");
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
