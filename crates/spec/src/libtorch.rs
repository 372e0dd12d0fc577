//! The version of a LibTorch installation.

use std::fs;
use std::path::Path;

/// The version of the LibTorch in `folder`, from `build-version` (zip) or `version.py` (wheel).
pub fn libtorch_version(folder: &Path) -> Option<String> {
    if let Ok(text) = fs::read_to_string(folder.join("build-version")) {
        return Some(text.trim().to_owned());
    }
    let text = fs::read_to_string(folder.join("version.py")).ok()?;
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    line.split('\'').nth(1).map(str::to_owned)
}
