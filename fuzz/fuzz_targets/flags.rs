//! What follows `--set`, a line each: keys of a config that is right without them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_config::{Config, Override};

const BASE: &str = "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\n";

fuzz_target!(|text: &str| {
    let mut flags = vec![];
    for line in text.lines() {
        match Override::set(line) {
            Ok(flag) => flags.push(flag),
            Err(error) => {
                let said = error.to_string();
                assert!(
                    said.starts_with(&format!("--set {line}: ")),
                    "which flag? {said}"
                );
            }
        }
    }
    match Config::parse("fuzz.toml", BASE, &flags) {
        Ok(config) => {
            let printed = config.to_toml();
            let again = Config::parse("fuzz.toml", &printed, &[]);
            let again = again.unwrap_or_else(|error| panic!("{error}\nprinted:\n{printed}"));
            assert_eq!(again, config, "\n{printed}");
        }
        Err(error) => {
            let said = error.to_string();
            let has_place = said.starts_with("--set ") || said.starts_with("fuzz.toml:");
            assert!(has_place, "no place: {said}");
        }
    }
});
