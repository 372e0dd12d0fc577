//! Config files: errors have a location, and a valid config round-trips through its TOML form.

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
                again.unwrap_or_else(|error| panic!("{error}\nin the printed config:\n{printed}"));
            assert_eq!(again, config, "\n{printed}");
            assert_eq!(again.to_toml(), printed);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("fuzz.toml:"), "no location: {message}");
            if let ConfigError::Syntax { .. } = error {
                let is_toml = toml::from_str::<toml::Table>(text).is_ok();
                assert!(!is_toml, "valid TOML: {message}");
            }
        }
    }
});
