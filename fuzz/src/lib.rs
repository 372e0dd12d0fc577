//! What targets share: files to read, and what an error about one has to say.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, process};

/// What a small packed file may become at most, in bytes: `zoo_data::plain_text` promises it.
pub const MOST_UNPACKED: usize = 64 << 20;

/// Writes a file to a folder of this process's own, in memory where the system has such a place.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let within = if memory.is_dir() {
            memory.to_owned()
        } else {
            env::temp_dir()
        };
        let folder = within.join(format!("zoo-fuzz-{}", process::id()));
        fs::create_dir_all(&folder).expect("a folder for files");
        folder
    });
    let path = folder.join(name);
    fs::write(&path, bytes).expect("a file to read");
    path
}

/// Checks that an error says which file it is about.
pub fn assert_names(error: &dyn std::error::Error, path: &Path) {
    let (said, path) = (error.to_string(), path.display().to_string());
    assert!(said.contains(&path), "which file? {said}");
}

/// The first byte, which chooses, and the others.
pub fn choice(input: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = input.split_first()?;
    Some((usize::from(*first), rest))
}
