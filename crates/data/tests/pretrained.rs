//! Pretrained tokenizers against the library tokenizers in Python, which
//! `crates/conformance/golden/hugging_face.py` used.

use std::path::{Path, PathBuf};

use serde_json::Value;
use zoo_data::Tokenizer;

fn folder(name: &str) -> PathBuf {
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../conformance/golden/hugging_face"
    );
    Path::new(golden).join(name)
}

fn load(name: &str) -> Tokenizer {
    let loaded = Tokenizer::load_pretrained(&folder(name).join("tokenizer.json"));
    loaded.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Byte-level BPE as in Llama 3, and BPE with byte fallback as in Mistral.
#[test]
fn ids_and_texts_are_those_of_the_library() {
    for (name, vocabulary) in [("llama3", 313), ("mistral-tied", 330)] {
        let tokenizer = load(name);
        assert_eq!(tokenizer.vocab_size(), vocabulary, "{name}");
        let lines = std::fs::read(folder(name).join("texts.json")).expect("a golden file");
        let lines: Vec<Value> = serde_json::from_slice(&lines).expect("JSON");
        assert_eq!(lines.len(), 20, "{name}");
        for line in &lines {
            let text = line["text"].as_str().expect("a text");
            let ids = line["ids"].as_array().expect("ids").iter();
            let ids: Vec<u32> = ids.map(|id| id.as_u64().expect("an id") as u32).collect();
            assert_eq!(
                tokenizer.encode(text).ok(),
                Some(ids.clone()),
                "{name}: {text:?}"
            );
            let decoded = line["decoded"].as_str().expect("a text");
            assert_eq!(
                tokenizer.decode(&ids).ok().as_deref(),
                Some(decoded),
                "{name}: {text:?}"
            );
            // One for each token, also for those that the post-processor adds.
            let written = tokenizer.written(text).expect("encoded");
            assert_eq!(written.len(), ids.len(), "{name}: {text:?}");
        }
    }
}

#[test]
fn special_tokens_need_no_fixed_ids() {
    let path = folder("llama3").join("tokenizer.json");
    let error = Tokenizer::load(&path).expect_err("other special tokens");
    assert!(
        error.to_string().contains("token 0 must be <pad>"),
        "{error}"
    );
    let tokenizer = load("llama3");
    let eot = tokenizer.id("<|eot_id|>").expect("a special token");
    assert_eq!(
        tokenizer.encode("a<|eot_id|>").expect("encoded").last(),
        Some(&eot)
    );
    assert_eq!(
        tokenizer.unknown("好 ☃").expect("encoded"),
        Vec::<String>::new()
    );
    // Rows of a padded embedding have no text.
    let id = tokenizer.vocab_size() as u32 + 3;
    assert_eq!(tokenizer.decode(&[id]).ok().as_deref(), Some(""));
}

#[test]
fn invalid_files_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokenizer.json");
    for (text, message) in [
        ("{", "the file is not JSON"),
        ("{}", "the file is JSON, but not a tokenizer"),
    ] {
        std::fs::write(&path, text).expect("writable");
        let error = Tokenizer::load_pretrained(&path).expect_err(message);
        assert!(error.to_string().contains(message), "{error}");
    }
    let missing = folder.path().join("other.json");
    assert!(Tokenizer::load_pretrained(&missing).is_err());
}
