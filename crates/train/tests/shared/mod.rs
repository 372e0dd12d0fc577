//! What the tests of this crate have in common.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// That a text has a part.
#[track_caller]
pub(crate) fn has(text: &str, part: impl AsRef<str>) {
    let part = part.as_ref();
    assert!(text.contains(part), "no {part:?} in: {text}");
}

/// That a text has no such part.
#[track_caller]
pub(crate) fn lacks(text: &str, part: impl AsRef<str>) {
    let part = part.as_ref();
    assert!(!text.contains(part), "{part:?} in: {text}");
}

/// That a text begins so.
#[track_caller]
pub(crate) fn starts(text: &str, start: impl AsRef<str>) {
    let start = start.as_ref();
    assert!(
        text.starts_with(start),
        "not at the start, {start:?}: {text}"
    );
}

/// That a text ends so.
#[track_caller]
pub(crate) fn ends(text: &str, end: impl AsRef<str>) {
    let end = end.as_ref();
    assert!(text.ends_with(end), "not at the end, {end:?}: {text}");
}

/// Copies a folder and what is in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// A folder of a test's own.
pub(crate) struct Folder(PathBuf);

impl Folder {
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

    /// Writes a file into it.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
