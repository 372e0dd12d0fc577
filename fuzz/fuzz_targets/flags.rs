//! Arguments of `--set`, one per line, over a valid config.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_config::{Config, Override};
use zoo_fuzz::assert_round_trip;

const BASE: &str = "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\n";

fuzz_target!(|text: &str| {
    let mut flags = vec![];
    for line in text.lines() {
        match Override::set(line) {
            Ok(flag) => flags.push(flag),
            Err(error) => {
                let message = error.to_string();
                let names_flag = message.starts_with(&format!("--set {line}: "));
                assert!(names_flag, "no flag: {message}");
            }
        }
    }
    match Config::parse("fuzz.toml", BASE, &flags) {
        Ok(config) => assert_round_trip(&config),
        Err(error) => {
            let message = error.to_string();
            let has_location = message.starts_with("--set ") || message.starts_with("fuzz.toml:");
            assert!(has_location, "no location: {message}");
        }
    }
});
