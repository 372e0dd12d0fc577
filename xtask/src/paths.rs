//! Paths of the workspace, its target directory and the cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(crate) fn workspace() -> PathBuf {
    // Clones may share a target directory and so this executable: the run-time variable names the
    // current clone, the compile-time variable the one that built it.
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map(Path::to_owned).unwrap_or(package)
}

/// The target directory: the user's `CARGO_TARGET_DIR`, or `target` in the workspace.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .filter(|folder| !folder.is_empty())
        // Relative to the working directory, as for cargo.
        .and_then(|folder| std::path::absolute(folder).ok())
        .unwrap_or_else(|| workspace().join("target"))
}

/// The project's folder under the user's cache directory.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => {
            let home = std::env::home_dir()
                .context("neither XDG_CACHE_HOME nor HOME is set; set one of them")?;
            if cfg!(target_os = "macos") {
                home.join("Library/Caches")
            } else {
                home.join(".cache")
            }
        }
    };
    Ok(base.join("attention-zoo"))
}
