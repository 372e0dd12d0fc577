//! Config files: errors have a location, and a valid config round-trips through its TOML form.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_config::{Config, ConfigError};
use zoo_fuzz::assert_round_trip;

fuzz_target!(|text: &str| {
    match Config::parse("fuzz.toml", text, &[]) {
        Ok(config) => assert_round_trip(&config),
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
