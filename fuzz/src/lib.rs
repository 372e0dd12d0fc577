//! Helpers shared by the targets: input files and checks of errors.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, process};

/// The limit of `zoo_data::plain_text` for the decompressed size of a small file, in bytes.
pub const MAX_UNPACKED: usize = 64 << 20;

/// Writes a file to a folder of this process, in memory if `/dev/shm` exists.
pub fn temp_file(name: &str, bytes: &[u8]) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() {
            memory
        } else {
            env::temp_dir()
        };
        let folder = parent.join(format!("zoo-fuzz-{}", process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    });
    let path = folder.join(name);
    fs::write(&path, bytes).expect("a temporary file");
    path
}

/// Checks that an error names its file.
pub fn assert_names(error: &dyn std::error::Error, path: &Path) {
    let (message, path) = (error.to_string(), path.display().to_string());
    assert!(message.contains(&path), "no file name: {message}");
}

/// Splits the input into its first byte, which selects a variant, and the rest.
pub fn choice(input: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = input.split_first()?;
    Some((usize::from(*first), rest))
}
