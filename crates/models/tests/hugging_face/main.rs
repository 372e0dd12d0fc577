//! Errors of model folders: each names the file, the key or the tensor. All files are read on the host.

mod config;
mod weights;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::TensorData;
use serde_json::{Value, json};
use zoo_models::weights::Weights;
use zoo_models::weights::hugging_face::ModelFolder;

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
