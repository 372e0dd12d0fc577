//! A panic of the crate `tokenizers` is an error and is not printed; all others are. Alone in its
//! program: there is one panic hook for all threads.

#![allow(clippy::unwrap_used)]

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use zoo_data::{Tokenizer, TokenizerConfig};

#[test]
fn only_panics_that_become_errors_are_silent() {
    static PRINTED: AtomicUsize = AtomicUsize::new(0);
    let printed = || PRINTED.load(Ordering::SeqCst);
    panic::set_hook(Box::new(|_| {
        PRINTED.fetch_add(1, Ordering::SeqCst);
    }));

    let json = TokenizerConfig::chars()
        .train(["ab"])
        .unwrap()
        .to_json()
        .unwrap();
    let precompiled = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA==\"}";
    let json = json.replace("{\"type\":\"NFC\"}", precompiled);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), json).unwrap();
    let error = Tokenizer::load(file.path()).unwrap_err().to_string();
    assert!(error.contains("the crate tokenizers can use"), "{error}");
    assert_eq!(printed(), 0, "a panic that became an error");

    assert!(panic::catch_unwind(|| panic!("on this thread")).is_err());
    assert_eq!(printed(), 1, "a panic of somebody else on the same thread");
    assert!(thread::spawn(|| panic!("elsewhere")).join().is_err());
    assert_eq!(printed(), 2, "a panic on another thread");
}
