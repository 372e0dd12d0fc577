//! Model folders of Hugging Face's transformers against its outputs, which `golden/hugging_face.py`
//! wrote: logits, greedy continuations, and decoding with caches.

use std::path::{Path, PathBuf};

use zoo_models::weights::hugging_face::ModelFolder;
use zoo_models::{GenerateConfig, Gpt, generate};

use crate::support::*;

/// Maximum absolute error: logits are 1 to 10, and `f32` has seven digits.
const TOLERANCE: f64 = 1e-4;

/// Of every family two, with different heads, windows, scaling, tying, dtypes and numbers of files.
const FOLDERS: [&str; 10] = [
    "gpt2",
    "gpt2-untied",
    "llama3",
    "llama-tied",
    "mistral",
    "mistral-tied",
    "qwen2",
    "qwen2-tied",
    "qwen3",
    "qwen3-windows",
];

pub(crate) fn trials(suite: &mut Suite) {
    for name in FOLDERS {
        suite.add(format!("hugging-face/{name}/logits"), move |device| {
            logits(&Case::load(name, device))
        });
        suite.add(format!("hugging-face/{name}/greedy"), move |device| {
            greedy(&Case::load(name, device))
        });
        suite.add(format!("hugging-face/{name}/decoding"), move |device| {
            decoding(&Case::load(name, device))
        });
    }
}

struct Case {
    model: Gpt,
    golden: Golden,
    prompts: Vec<Vec<u32>>,
}

impl Case {
    fn load(name: &str, device: &Device) -> Self {
        let path = folder(name);
        let model = must(must(ModelFolder::open(&path)).load(device));
        let bytes = must(std::fs::read(path.join("expected.safetensors")));
        let golden = must(Golden::from_bytes(&bytes));
        let prompts = rows(&golden, "tokens");
        Self {
            model,
            golden,
            prompts,
        }
    }

    /// Logits of the prompts and of their continuations, `[rows, seq, vocabulary]`.
    fn forward(&self, rows: &[Vec<u32>]) -> Tensor<3> {
        let tokens = tokens(rows, self.model.limits(), &self.model.device());
        self.model.forward(&tokens)
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/hugging_face")).join(name)
}

/// Tokens `[rows, seq]`.
fn rows(golden: &Golden, name: &str) -> Vec<Vec<u32>> {
    let data = &golden.tensors[name];
    let ids: Vec<i64> = data.try_to_vec().expect("integers");
    let rows = ids.chunks(data.shape()[1]);
    rows.map(|row| row.iter().map(|id| *id as u32).collect())
        .collect()
}

fn assert_near(what: &str, got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let error = |(got, expected): (&f32, &f64)| (f64::from(*got) - expected).abs();
    let worst = got.iter().zip(expected).map(error).fold(0.0, f64::max);
    let is_near = worst <= TOLERANCE && got.iter().all(|value| value.is_finite());
    assert!(is_near, "{what}: largest error {worst:.1e}");
}

fn logits(case: &Case) {
    let got = to_vec(case.forward(&case.prompts));
    assert_near("logits", &got, &case.golden.values("logits"));
}

fn greedy(case: &Case) {
    let expected = rows(&case.golden, "generated");
    let state = must(case.model.start(expected.len()));
    let config = GenerateConfig::default().with_max_length(expected[0].len());
    let texts = must(generate(&case.model, state, &case.prompts, &config));
    for (texts, expected) in texts.iter().zip(&expected) {
        assert_eq!(texts[0].tokens, *expected);
    }
}

/// With caches, token by token after a prefill, against one forward pass over prompt and continuation.
fn decoding(case: &Case) {
    let generated = rows(&case.golden, "generated");
    let texts = case.prompts.iter().zip(&generated);
    let texts: Vec<Vec<u32>> = texts
        .map(|(prompt, text)| [&prompt[..], text].concat())
        .collect();
    let full = case.forward(&texts);
    let mut state = must(case.model.start(texts.len()));
    let mut first = 0;
    for new in [5].into_iter().chain([1; 30]) {
        let part: Vec<Vec<u32>> = texts
            .iter()
            .map(|text| text[first..first + new].to_vec())
            .collect();
        let part = ids(&part, &case.model.device());
        let got = case.model.advance(part, &mut state);
        first += new;
        let expected = full.clone().slice_dim(1, first - 1..first);
        let expected: Vec<f64> = to_vec(expected).into_iter().map(f64::from).collect();
        assert_near(&format!("position {}", first - 1), &to_vec(got), &expected);
    }
}
