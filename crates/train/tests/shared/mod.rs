//! Helpers shared by the integration tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Asserts that `text` contains `part`.
#[track_caller]
pub(crate) fn has(text: &str, part: impl AsRef<str>) {
    let part = part.as_ref();
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

/// Asserts that `text` does not contain `part`.
#[track_caller]
pub(crate) fn lacks(text: &str, part: impl AsRef<str>) {
    let part = part.as_ref();
    assert!(!text.contains(part), "{part:?} is in: {text}");
}

/// Asserts that `text` starts with `start`.
#[track_caller]
pub(crate) fn starts(text: &str, start: impl AsRef<str>) {
    let start = start.as_ref();
    assert!(
        text.starts_with(start),
        "does not start with {start:?}: {text}"
    );
}

/// Asserts that `text` ends with `end`.
#[track_caller]
pub(crate) fn ends(text: &str, end: impl AsRef<str>) {
    let end = end.as_ref();
    assert!(text.ends_with(end), "does not end with {end:?}: {text}");
}

/// Copies a folder recursively.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A temporary folder, removed on drop.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("zoo-test-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
