//! Panics of the crate `tokenizers` become errors and are not printed; all others are printed. A
//! test binary of its own, since the panic hook is global.

#![allow(clippy::unwrap_used)]

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use zoo_data::{Tokenizer, TokenizerConfig};

#[test]
fn only_caught_panics_are_silent() {
    static PRINTED: AtomicUsize = AtomicUsize::new(0);
    let printed = || PRINTED.load(Ordering::SeqCst);
    panic::set_hook(Box::new(|_| {
        PRINTED.fetch_add(1, Ordering::SeqCst);
    }));

    let tokenizer = TokenizerConfig::chars().train(["ab"]).unwrap();
    let json = tokenizer.to_json().unwrap();
    let precompiled = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA==\"}";
    let json = json.replace("{\"type\":\"NFC\"}", precompiled);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), json).unwrap();
    let error = Tokenizer::load(file.path()).unwrap_err().to_string();
    let expected = "the crate tokenizers cannot use it";
    assert!(error.contains(expected), "{error}");
    assert_eq!(printed(), 0, "caught panic");

    assert!(panic::catch_unwind(|| panic!("on this thread")).is_err());
    assert_eq!(printed(), 1, "other panic on the same thread");
    let other = thread::spawn(|| panic!("on another thread"));
    assert!(other.join().is_err());
    assert_eq!(printed(), 2, "panic on another thread");
}
