//! Arbitrary bytes as a tokenizer: if it can be read, its token ids are valid and it round-trips.
//!
//! The `tokenizers` crate panics on many inputs, which `zoo-data` converts to errors: only panics
//! that escape are findings.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_data::{Tokenizer, UNK};
use zoo_fuzz::{assert_names, temp_file};

const TEXTS: [&str; 4] = [
    "",
    "long time no see",
    "好久不见 </s>\n\u{301}x",
    "a<0x41>  ▁b🏽",
];

fn ignore_caught_panics() {
    // The fuzzer's hook would abort before the panic can be caught.
    std::panic::set_hook(Box::new(|panic| {
        let file = panic.location().map_or("", |location| location.file());
        if !file.contains("registry") {
            eprintln!("{panic}");
        }
    }));
}

fuzz_target!(init: ignore_caught_panics(), |bytes: &[u8]| {
    let path = temp_file("tokenizer.json", bytes);
    let tokenizer = match Tokenizer::load(&path) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return assert_names(&error, &path),
    };
    let json = tokenizer.to_json().expect("a loaded tokenizer can be written");
    let again = Tokenizer::load(&temp_file("again.json", json.as_bytes()));
    let again = again.unwrap_or_else(|error| panic!("{error}\n{json}"));
    assert_eq!(tokenizer.vocab_size(), again.vocab_size());
    for text in TEXTS {
        let ids = match tokenizer.encode(text) {
            Ok(ids) => ids,
            Err(error) => {
                assert_names(&error, &path);
                continue;
            }
        };
        for id in &ids {
            assert!((*id as usize) < tokenizer.vocab_size(), "{id}");
            assert!(*id == UNK || *id > 3, "special token in text: {id}");
        }
        assert_eq!(again.encode(text).ok(), Some(ids.clone()), "{text:?}");
        if let Err(error) = tokenizer.decode(&ids) {
            assert_names(&error, &path);
        }
    }
});
