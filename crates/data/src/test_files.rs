//! Temporary files for tests.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A folder that is deleted when the test is over.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn gzip(&self, bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(vec![], Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    pub(crate) fn gz(&self, name: &str, bytes: &[u8]) -> PathBuf {
        self.file(name, self.gzip(bytes))
    }

    /// Names that end with a slash are folders.
    pub(crate) fn zip(&self, name: &str, entries: &[(&str, &str)]) -> PathBuf {
        let entries = entries
            .iter()
            .map(|(entry, text)| (*entry, text.as_bytes()));
        self.zip_bytes(name, &entries.collect::<Vec<_>>())
    }

    pub(crate) fn zip_bytes(&self, name: &str, entries: &[(&str, &[u8])]) -> PathBuf {
        let path = self.path(name);
        let mut writer = ZipWriter::new(fs::File::create(&path).unwrap());
        for (entry, bytes) in entries {
            let options = SimpleFileOptions::default();
            if entry.ends_with('/') {
                writer.add_directory(*entry, options).unwrap();
            } else {
                writer.start_file(*entry, options).unwrap();
                writer.write_all(bytes).unwrap();
            }
        }
        writer.finish().unwrap();
        path
    }
}
