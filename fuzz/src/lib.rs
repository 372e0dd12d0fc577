//! Helpers shared by the targets: input files and checks of errors.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, io, process};

use zoo_config::Config;

/// The limit of `zoo_data::plain_text` for the decompressed size of a small file, in bytes.
pub const MAX_UNPACKED: usize = 64 << 20;

/// Writes a file to a folder of this process, in memory if `/dev/shm` exists.
pub fn temp_file(name: &str, bytes: &[u8]) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let parent = Some(memory).filter(|folder| folder.is_dir());
        let parent = parent.unwrap_or_else(env::temp_dir);
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

/// Checks that a config equals its TOML form.
pub fn assert_round_trip(config: &Config) {
    let printed = config.to_toml();
    let again = Config::parse("fuzz.toml", &printed, &[]);
    let again = again.unwrap_or_else(|error| panic!("{error}\nin the printed config:\n{printed}"));
    assert_eq!(again, *config, "\n{printed}");
    assert_eq!(again.to_toml(), printed);
}

/// Splits the input into its first byte, which selects a variant, and the rest.
pub fn choice(input: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = input.split_first()?;
    Some((usize::from(*first), rest))
}

/// Writes a file of the seed corpus of a target, below the folder of its package.
pub fn write_seed(package: &str, target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = Path::new(package).join("corpus").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}
