//! Where things are kept: the workspace, its target directory, the cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the workspace.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}

/// The target directory: the user's `CARGO_TARGET_DIR`, or `target` in the workspace.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .filter(|folder| !folder.is_empty())
        .map_or_else(
            || workspace().join("target"),
            // cargo reads a relative one from where it runs, which is the workspace.
            |folder| workspace().join(folder),
        )
}

/// The project's folder under the user's cache directory.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => {
            let home = std::env::home_dir()
                .context("neither XDG_CACHE_HOME nor HOME says where caches go; set one of them")?;
            if cfg!(target_os = "macos") {
                home.join("Library/Caches")
            } else {
                home.join(".cache")
            }
        }
    };
    Ok(base.join("attention-zoo"))
}
