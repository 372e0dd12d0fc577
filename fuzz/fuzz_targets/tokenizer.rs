//! Bytes that are called a tokenizer: one that can be read gives tokens it has, and is the
//! same when it is written and read again.
//!
//! The crate that reads it panics over many; `zoo-data` makes that an error, so such a panic is
//! no finding. One that comes through is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_data::{Tokenizer, UNKNOWN};
use zoo_fuzz::{assert_names, file};

const TEXTS: [&str; 4] = [
    "",
    "long time no see",
    "好久不见 </s>\n\u{301}x",
    "a<0x41>  ▁b🏽",
];

fn only_what_comes_through() {
    // The fuzzer's own would end the program before anybody can catch it.
    std::panic::set_hook(Box::new(|panic| {
        let from_outside = panic
            .location()
            .is_some_and(|place| place.file().contains("registry"));
        if !from_outside {
            eprintln!("{panic}");
        }
    }));
}

fuzz_target!(init: only_what_comes_through(), |bytes: &[u8]| {
    let path = file("tokenizer.json", bytes);
    let tokenizer = match Tokenizer::load(&path) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return assert_names(&error, &path),
    };
    let json = tokenizer.to_json().expect("what was read can be written");
    let again = Tokenizer::load(&file("again.json", json.as_bytes()));
    let again = again.unwrap_or_else(|error| panic!("{error}\n{json}"));
    assert_eq!(tokenizer.vocabulary(), again.vocabulary());
    for text in TEXTS {
        let ids = match tokenizer.encode(text) {
            Ok(ids) => ids,
            Err(error) => {
                assert_names(&error, &path);
                continue;
            }
        };
        for id in &ids {
            assert!((*id as usize) < tokenizer.vocabulary(), "{id}");
            assert!(*id == UNKNOWN || *id > 3, "text became special: {id}");
        }
        assert_eq!(again.encode(text).ok(), Some(ids.clone()), "{text:?}");
        if let Err(error) = tokenizer.decode(&ids) {
            assert_names(&error, &path);
        }
    }
});
