//! The text of a config file: a mistake is named with its place, and what is right is printed
//! as a file that reads back to the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_config::{Config, ConfigError};

const NAME: &str = "fuzz.toml";

fuzz_target!(|text: &str| {
    match Config::parse(NAME, text, &[]) {
        Ok(config) => {
            let printed = config.to_toml();
            let again = Config::parse(NAME, &printed, &[]);
            let again =
                again.unwrap_or_else(|error| panic!("{error}\nin what was printed:\n{printed}"));
            assert_eq!(again, config, "\n{printed}");
            assert_eq!(again.to_toml(), printed);
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with("fuzz.toml:"), "no place: {said}");
            if let ConfigError::Syntax { .. } = error {
                let is_toml = toml::from_str::<toml::Table>(text).is_ok();
                assert!(!is_toml, "it is TOML: {said}");
            }
        }
    }
});
