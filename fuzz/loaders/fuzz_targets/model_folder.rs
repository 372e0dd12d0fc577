//! Model folders of transformers: errors name the file, a config that is read is valid, and files
//! outside of the folder are never opened.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_fuzz::{assert_names, choice, temp_file};
use zoo_models::weights::hugging_face::ModelFolder;

const CONFIG: &str =
    include_str!("../../../crates/conformance/golden/hugging_face/llama3/config.json");
const INDEX: &str = "model.safetensors.index.json";

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = choice(input) else {
        return;
    };
    let (config, index) = match which % 2 {
        0 => (bytes, &b"{}"[..]),
        _ => (CONFIG.as_bytes(), bytes),
    };
    let config = temp_file("config.json", config);
    let index = temp_file(INDEX, index);
    let folder = config.parent().expect("a file in a folder");
    let opened = match ModelFolder::open(folder) {
        Ok(opened) => opened,
        Err(error) => return assert_names(&error, &config),
    };
    assert!(opened.config().check().is_ok());
    // There are no weights beside the index.
    let error = opened.weights().expect_err("no weights");
    assert_names(&error, &index);
});
