//! Arguments of `--set`, one per line, over a valid config.

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
                let message = error.to_string();
                assert!(
                    message.starts_with(&format!("--set {line}: ")),
                    "no flag: {message}"
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
            let message = error.to_string();
            let has_location = ["--set ", "fuzz.toml:"]
                .iter()
                .any(|start| message.starts_with(start));
            assert!(has_location, "no location: {message}");
        }
    }
});
