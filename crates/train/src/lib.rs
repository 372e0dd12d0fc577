//! From a TOML file to a trained model.
