//! Where things are kept: the workspace, its target directory, the cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    // Clones may share a target directory, and so this very program: `cargo run`
    // says whose it is now, the compiler only whose it was first.
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map(Path::to_owned).unwrap_or(package)
}

/// The target directory: the user's `CARGO_TARGET_DIR`, or `target` in the workspace.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .filter(|folder| !folder.is_empty())
        // A relative one counts from where the user is, as for the cargo that runs us.
        .and_then(|folder| std::path::absolute(folder).ok())
        .unwrap_or_else(|| workspace().join("target"))
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
