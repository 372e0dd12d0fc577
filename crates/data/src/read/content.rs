//! Text files: plain, `.gz`, or an entry of a `.zip`.
//!
//! Files are read as a whole, so an invalid byte is found before any example is used; training data
//! fits into memory. Decompression is limited, since a file of a few kilobytes can expand to more
//! than the memory of any machine: text compresses to a third to a tenth of its size, and files
//! that expand far beyond that are rejected.

use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use zip::ZipArchive;
use zoo_spec::{NotUtf8, Printable, UnknownName};

use crate::DataError;

const MAX_RATIO: u64 = 100;
/// Decompressed bytes that are always allowed, for short repetitive texts.
const MIN_BUDGET: u64 = 64 << 20;

/// Decompression budget of a file in bytes. The entries of an archive share it, since they can
/// overlap.
#[derive(Debug)]
struct Budget {
    max: u64,
    left: u64,
}

impl Budget {
    fn new(compressed: usize) -> Self {
        let max = (compressed as u64)
            .saturating_mul(MAX_RATIO)
            .max(MIN_BUDGET);
        Self { max, left: max }
    }

    fn read(&mut self, path: &Path, compressed: impl Read) -> Result<Vec<u8>, DataError> {
        let mut bytes = vec![];
        compressed
            .take(self.left.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| damaged(path, &error))?;
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            DataError::Invalid(format!(
                "{} decompresses to more than {} MiB, too much for a text file of its size\n  \
                 help: if this is intended, decompress it and use the decompressed file",
                path.display(),
                self.max >> 20
            ))
        })?;
        Ok(bytes)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    /// Path of the file, or `archive.zip#entry`.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Content {
    /// Reads a file. `archive.zip#name` is an entry of an archive; the name can be omitted if it is
    /// the only one.
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        let (path, entry) = split_entry(path);
        let extension = extension(&path);
        if extension == "zip" {
            let mut archive = Archive::read(&path)?;
            let index = archive.select(entry.as_deref())?;
            return archive.content(index);
        }
        let mut bytes = bytes(&path)?;
        if extension == "gz" {
            let mut budget = Budget::new(bytes.len());
            bytes = budget.read(&path, MultiGzDecoder::new(bytes.as_slice()))?;
        }
        Self::decode(path.display().to_string(), bytes)
    }

    /// Decodes UTF-8 without a byte order mark.
    fn decode(name: String, bytes: Vec<u8>) -> Result<Self, DataError> {
        match String::from_utf8(bytes) {
            Ok(mut text) => {
                if text.starts_with('\u{feff}') {
                    text.remove(0);
                }
                Ok(Self { name, text })
            }
            Err(error) => {
                let error_at = NotUtf8::detect(error.as_bytes()).unwrap_or_default();
                let name = Printable(&name);
                Err(DataError::Encoding(format!("{name}, {error_at}")))
            }
        }
    }
}

/// A `.zip` archive without paths that leave its folder.
pub(crate) struct Archive {
    path: PathBuf,
    zip: ZipArchive<Cursor<Vec<u8>>>,
    budget: Budget,
    /// File entries as (name, index), sorted by name.
    pub(crate) entries: Vec<(String, usize)>,
}

impl Archive {
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        let bytes = bytes(path)?;
        let budget = Budget::new(bytes.len());
        let failed = |error| damaged(path, &error);
        let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(failed)?;
        let mut entries = vec![];
        for index in 0..zip.len() {
            let file = zip.by_index_raw(index).map_err(failed)?;
            let name = file.name().map_err(failed)?;
            if is_path_traversal(&name) {
                return Err(DataError::PathTraversal(format!(
                    "{} has an entry outside of its folder: \"{}\"\n  help: recreate the archive with \
                     relative paths",
                    path.display(),
                    Printable(&name)
                )));
            }
            if !file.is_dir() {
                entries.push((name.into_owned(), index));
            }
        }
        entries.sort();
        Ok(Self {
            path: path.to_owned(),
            zip,
            budget,
            entries,
        })
    }

    /// Index of the entry with this name, or of the only entry.
    fn select(&self, entry: Option<&str>) -> Result<usize, DataError> {
        let path = self.path.display();
        let found = match (entry, self.entries.as_slice()) {
            (Some(entry), entries) => entries.iter().find(|(name, _)| name == entry),
            (None, [only]) => Some(only),
            (None, []) => return Err(DataError::empty(path.to_string())),
            (None, [first, ..]) => {
                return Err(DataError::Invalid(format!(
                    "{path} has several files\n  help: select one with #, for example {path}#{}",
                    Printable(&first.0)
                )));
            }
        };
        found.map(|(_, index)| *index).ok_or_else(|| {
            let known = self.entries.iter().map(|(name, _)| name.as_str());
            let unknown = UnknownName::new("entry", entry.unwrap_or_default(), known);
            DataError::Invalid(format!("{path}: {unknown}"))
        })
    }

    pub(crate) fn content(&mut self, index: usize) -> Result<Content, DataError> {
        let failed = |error| damaged(&self.path, &error);
        let file = self.zip.by_index(index).map_err(failed)?;
        let entry = file.name().map_err(failed)?;
        let is_gz = extension(Path::new(entry.as_ref())) == "gz";
        let name = format!("{}#{entry}", self.path.display());
        let mut bytes = self.budget.read(&self.path, file)?;
        if is_gz {
            let decoder = MultiGzDecoder::new(bytes.as_slice());
            bytes = self.budget.read(Path::new(&name), decoder)?;
        }
        Content::decode(name, bytes)
    }
}

/// Whether the path of an entry leaves the folder it is extracted to, on Unix or Windows.
fn is_path_traversal(name: &str) -> bool {
    let mut parts = name.split(['/', '\\']);
    let drive = name.as_bytes().get(1) == Some(&b':');
    name.starts_with(['/', '\\']) || drive || parts.any(|part| part == "..")
}

fn bytes(path: &Path) -> Result<Vec<u8>, DataError> {
    fs::read(path).map_err(|error| DataError::file(path, &error))
}

fn damaged(path: &Path, reason: &dyn std::error::Error) -> DataError {
    let (path, reason) = (path.display(), reason.to_string());
    let reason = Printable(&reason);
    DataError::Invalid(format!("cannot decompress {path}: {reason}"))
}

/// File extension in lowercase.
pub(crate) fn extension(path: &Path) -> String {
    let extension = path.extension().unwrap_or_default();
    extension.to_string_lossy().to_lowercase()
}

fn split_entry(path: &Path) -> (PathBuf, Option<String>) {
    let text = path.to_string_lossy();
    match text.split_once(".zip#") {
        Some((archive, entry)) => (format!("{archive}.zip").into(), Some(entry.to_owned())),
        None => (path.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::Folder;

    #[test]
    fn plain_and_compressed_files_are_read() {
        let folder = Folder::new();
        let text = "好久不见\r\nlong time\n";
        let zip = folder.zip("a.zip", &[("inner/", ""), ("inner/a.txt", text)]);
        let gzip = |text: &str| folder.gzip(text.as_bytes());
        let members: Vec<Vec<u8>> = text.split_inclusive('\n').map(gzip).collect();
        for path in [
            folder.file("a.txt", text),
            // With a byte order mark.
            folder.file("bom.txt", format!("\u{feff}{text}")),
            folder.gz("a.txt.gz", text.as_bytes()),
            // Several gzip members.
            folder.file("members.gz", members.concat()),
            folder.zip_bytes("gz.zip", &[("a.txt.gz", &gzip(text))]),
            folder.zip("dots.zip", &[("in/a..b.txt", text)]),
            folder.path("a.zip#inner/a.txt"),
            zip.clone(),
        ] {
            assert_eq!(Content::read(&path).unwrap().text, text, "{path:?}");
        }
        let name = format!("{}#inner/a.txt", zip.display());
        assert_eq!(Content::read(&zip).unwrap().name, name);
    }

    #[track_caller]
    fn check_error(path: &Path, message: &str) {
        let error = Content::read(path).unwrap_err().to_string();
        let folder = path.parent().unwrap().display().to_string();
        assert_eq!(error.replace(&folder, "."), message);
    }

    #[test]
    fn unreadable_files_are_rejected() {
        let folder = Folder::new();
        let missing = "cannot read ./no.txt: No such file or directory (os error 2)";
        check_error(&folder.path("no.txt"), missing);
        folder.file("lines.txt", "a");
        let misspelt =
            missing.replace("no.txt", "line.txt") + "\n  help: did you mean ./lines.txt?";
        check_error(&folder.path("line.txt"), &misspelt);
        let whole = folder.gzip(&[b'x'; 500]);
        let cut = folder.file("cut.gz", &whole[..whole.len() - 4]);
        check_error(&cut, "cannot decompress ./cut.gz: unexpected end of file");
        let plain = "not packed at all";
        let gz = folder.file("not.gz", plain);
        check_error(&gz, "cannot decompress ./not.gz: invalid gzip header");
        let zip = folder.zip("b.zip", &[("b.gz", plain)]);
        check_error(&zip, "cannot decompress ./b.zip#b.gz: invalid gzip header");
        check_error(&folder.zip("0.zip", &[]), "./0.zip has no examples");
        let two = folder.zip("2.zip", &[("train.en", "a"), ("train.de", "b")]);
        let several = "./2.zip has several files\n  help: select one with #, for example \
                       ./2.zip#train.de";
        check_error(&two, several);
        let unknown = "./2.zip: unknown entry \"trian.en\": did you mean train.en?\n  \
                       known: train.de, train.en";
        check_error(&folder.path("2.zip#trian.en"), unknown);
        let latin = b"ok\nok\nna\xefve";
        for (file, line) in [
            (folder.file("latin.txt", latin), 3),
            (folder.gz("latin.gz", latin), 3),
            (folder.file("utf-16.txt", b"\xff\xfea\0\n\0"), 1),
        ] {
            let error = Content::read(&file).unwrap_err().to_string();
            let expected = format!("{}, line {line}: ", file.display());
            assert!(error.starts_with(&expected), "{error}");
        }
        let zip = folder.file("not.zip", plain);
        let error = Content::read(&zip).unwrap_err().to_string();
        let expected = format!("cannot decompress {}: ", zip.display());
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn decompression_is_limited() {
        let folder = Folder::new();
        // 65 MiB, in members of about 1 KiB.
        let members = folder.gzip(&[b'a'; 1 << 20]).repeat(65);
        let reason = "decompresses to more than 64 MiB, too much for a text file of its size\n  \
                      help: if this is intended, decompress it and use the decompressed file";
        let gz = folder.file("large.gz", &members);
        check_error(&gz, &format!("./large.gz {reason}"));
        let zip = folder.zip_bytes("large.zip", &[("large.txt.gz", &members)]);
        check_error(&zip, &format!("./large.zip#large.txt.gz {reason}"));
        let max = folder.gzip(&[b'a'; 1 << 20]).repeat(64);
        let max = Content::read(&folder.file("max.gz", &max)).unwrap();
        assert_eq!(max.text.len(), 64 << 20);
    }

    #[test]
    fn path_traversal_is_rejected() {
        let folder = Folder::new();
        for entry in ["../a", "in/../../a", "/etc/a", "..\\a", "C:\\a"] {
            let zip = folder.zip("bad.zip", &[("good.txt", "a"), (entry, "b")]);
            let message = format!(
                "./bad.zip has an entry outside of its folder: \"{entry}\"\n  help: recreate the \
                 archive with relative paths"
            );
            check_error(&zip, &message);
        }
    }

    #[test]
    fn budget_is_shared_by_entries() {
        let max = 10 << 20;
        let mut budget = Budget { max, left: 10 };
        let mut read = |bytes: &mut dyn Read| budget.read(Path::new("a.zip"), bytes);
        assert_eq!(read(&mut &b"1234567"[..]).unwrap(), b"1234567");
        assert_eq!(read(&mut &b"890"[..]).unwrap(), b"890");
        let error = read(&mut std::io::repeat(b'a')).unwrap_err().to_string();
        let expected = "a.zip decompresses to more than 10 MiB";
        assert!(error.starts_with(expected), "{error}");
        // It grows with the file.
        assert_eq!(Budget::new(0).max, MIN_BUDGET);
        assert_eq!(Budget::new(1 << 30).max, 100 << 30);
    }
}
