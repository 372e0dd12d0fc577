//! Files as text: plain, `.gz`, or a file in a `.zip`.
//!
//! They are read as a whole. What people train on here fits into memory many times, and a
//! wrong byte is then found before anything is made of the right ones. A file of a few kilobytes can
//! be written that unpacks to more than any machine holds: what becomes far larger than text does,
//! which is a third to a tenth of its size when it is packed, is refused on the way.

use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use zip::ZipArchive;
use zoo_spec::{NotUtf8, Printable, UnknownWord};

use crate::DataError;

/// What becomes more than so many times as large is no text.
const MOST_TIMES: u64 = 100;
/// What the smallest file may become, in bytes: a short text that says the same over and over.
const ALWAYS: u64 = 64 << 20;

/// What may still be unpacked of one file, in bytes. The files of an archive share it: they
/// can lie on top of each other.
#[derive(Debug)]
struct Allowance {
    most: u64,
    left: u64,
}

impl Allowance {
    fn of(packed: usize) -> Self {
        let most = (packed as u64).saturating_mul(MOST_TIMES).max(ALWAYS);
        Self { most, left: most }
    }

    /// Reads to the end, or until it is too much.
    fn read(&mut self, path: &Path, packed: impl Read) -> Result<Vec<u8>, DataError> {
        let mut bytes = vec![];
        packed
            .take(self.left.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| damaged(path, &error))?;
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            DataError::Refused(format!(
                "{} would become more than {} MiB, which no text of its size does: it is not read. \
                 If you know what it is, unpack it and name what is in it",
                path.display(),
                self.most >> 20
            ))
        })?;
        Ok(bytes)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    /// The file, or the archive and the file in it.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Content {
    /// Reads a file. `archive.zip#name` is a file in an archive; the name can be left out
    /// where there is only one.
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        let (path, entry) = with_entry(path);
        let extension = extension(&path);
        if extension == "zip" {
            let mut archive = Archive::read(&path)?;
            let index = archive.choose(entry.as_deref())?;
            return archive.content(index);
        }
        let mut bytes = bytes(&path)?;
        if extension == "gz" {
            let mut allowance = Allowance::of(bytes.len());
            bytes = allowance.read(&path, MultiGzDecoder::new(bytes.as_slice()))?;
        }
        Self::decode(path.display().to_string(), bytes)
    }

    /// Bytes as text, without the mark that some programs put first.
    fn decode(name: String, bytes: Vec<u8>) -> Result<Self, DataError> {
        match String::from_utf8(bytes) {
            Ok(text) => {
                let text = text
                    .strip_prefix('\u{feff}')
                    .map(str::to_owned)
                    .unwrap_or(text);
                Ok(Self { name, text })
            }
            Err(error) => {
                let wrong = NotUtf8::of(error.as_bytes()).unwrap_or_default();
                let name = Printable(&name);
                Err(DataError::Encoding(format!("{name}, {wrong}")))
            }
        }
    }
}

/// The files of an archive; none leaves its folder.
pub(crate) struct Archive {
    path: PathBuf,
    zip: ZipArchive<Cursor<Vec<u8>>>,
    allowance: Allowance,
    /// Those that are no folders, by name and index, in the order of their names.
    pub(crate) entries: Vec<(String, usize)>,
}

impl Archive {
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        let bytes = bytes(path)?;
        let allowance = Allowance::of(bytes.len());
        let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(|error| damaged(path, &error))?;
        let mut entries = vec![];
        for index in 0..zip.len() {
            let file = zip
                .by_index_raw(index)
                .map_err(|error| damaged(path, &error))?;
            let name = file.name().map_err(|error| damaged(path, &error))?;
            if leaves_folder(&name) {
                return Err(DataError::LeavesFolder(format!(
                    "{} has an entry that leaves its folder: \"{}\". Nothing of it is read: make the \
                     archive anew, with names relative to one folder",
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
            allowance,
            entries,
        })
    }

    /// The file of that name, or the only one.
    fn choose(&self, wanted: Option<&str>) -> Result<usize, DataError> {
        let path = self.path.display();
        let found = match (wanted, self.entries.as_slice()) {
            (Some(wanted), entries) => entries.iter().find(|(name, _)| name == wanted),
            (None, [only]) => Some(only),
            (None, []) => {
                let what = path.to_string();
                return Err(DataError::Empty { what });
            }
            (None, [first, ..]) => {
                return Err(DataError::Refused(format!(
                    "{path} has no single file to read: write the one you mean behind a #, for \
                     example {path}#{}",
                    Printable(&first.0)
                )));
            }
        };
        found.map(|(_, index)| *index).ok_or_else(|| {
            let known = self.entries.iter().map(|(name, _)| name.as_str());
            let unknown = UnknownWord::new("entry", wanted.unwrap_or_default(), known);
            DataError::Refused(format!("{path}: {unknown}"))
        })
    }

    pub(crate) fn content(&mut self, index: usize) -> Result<Content, DataError> {
        let file = self
            .zip
            .by_index(index)
            .map_err(|error| damaged(&self.path, &error))?;
        let entry = file.name().map_err(|error| damaged(&self.path, &error))?;
        let packed = extension(Path::new(entry.as_ref())) == "gz";
        let name = format!("{}#{entry}", self.path.display());
        let mut bytes = self.allowance.read(&self.path, file)?;
        if packed {
            let unpacked = MultiGzDecoder::new(bytes.as_slice());
            bytes = self.allowance.read(Path::new(&name), unpacked)?;
        }
        Content::decode(name, bytes)
    }
}

/// Whether a file of that name could be unpacked to somewhere else. Names are judged as
/// both kinds of systems would read them: an archive is bad wherever it is opened.
fn leaves_folder(name: &str) -> bool {
    let mut parts = name.split(['/', '\\']);
    let drive = name.as_bytes().get(1) == Some(&b':');
    name.starts_with(['/', '\\']) || drive || parts.any(|part| part == "..")
}

fn bytes(path: &Path) -> Result<Vec<u8>, DataError> {
    fs::read(path).map_err(|error| DataError::file(path, &error))
}

fn damaged(path: &Path, why: &dyn std::error::Error) -> DataError {
    let why = why.to_string();
    DataError::Refused(format!(
        "{} cannot be unpacked: {}",
        path.display(),
        Printable(&why)
    ))
}

/// What follows the last point of a name, in small letters.
pub(crate) fn extension(path: &Path) -> String {
    let extension = path.extension().unwrap_or_default();
    extension.to_string_lossy().to_lowercase()
}

/// `archive.zip#name` as both.
fn with_entry(path: &Path) -> (PathBuf, Option<String>) {
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
    fn plain_and_packed_texts_read_alike() {
        let folder = Folder::new();
        let text = "好久不见\r\nlong time\n";
        let zip = folder.zip("a.zip", &[("inner/", ""), ("inner/a.txt", text)]);
        let members = text
            .split_inclusive('\n')
            .map(|line| folder.packed(line.as_bytes()));
        for path in [
            folder.file("a.txt", text),
            // The mark that some programs put first is not text.
            folder.file("marked.txt", format!("\u{feff}{text}")),
            folder.gz("a.txt.gz", text.as_bytes()),
            // Members of a gz are one text.
            folder.file("members.gz", members.collect::<Vec<_>>().concat()),
            folder.zip_of("gz.zip", &[("a.txt.gz", &folder.packed(text.as_bytes()))]),
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
    fn refused(path: &Path, message: &str) {
        let error = Content::read(path).unwrap_err().to_string();
        let folder = path.parent().unwrap().display().to_string();
        assert_eq!(error.replace(&folder, "."), message);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = Folder::new();
        let whole = folder.packed(&[b'x'; 500]);
        let both = folder.zip("both.zip", &[("train.en", "a"), ("train.de", "b")]);
        for (path, message) in [
            (
                folder.path("missing.txt"),
                "cannot read ./missing.txt: No such file or directory (os error 2)",
            ),
            (
                folder.file("wide.txt", b"\xff\xfea\0\n\0"),
                "./wide.txt, line 1: it begins with the mark of UTF-16, and only UTF-8 is read\n  \
                 do: iconv -f UTF-16 -t UTF-8 FILE > NEW",
            ),
            (
                folder.file("not.gz", b"not packed at all"),
                "./not.gz cannot be unpacked: invalid gzip header",
            ),
            (
                folder.zip("b.zip", &[("b.txt.gz", "not packed at all")]),
                "./b.zip#b.txt.gz cannot be unpacked: invalid gzip header",
            ),
            (
                folder.file("cut.gz", &whole[..whole.len() - 4]),
                "./cut.gz cannot be unpacked: unexpected end of file",
            ),
            // One file of an archive has to be chosen.
            (
                both,
                "./both.zip has no single file to read: write the one you mean behind a #, for \
                 example ./both.zip#train.de",
            ),
            (
                folder.path("both.zip#trian.en"),
                "./both.zip: unknown entry \"trian.en\": did you mean train.en?\n  \
                 known: train.de, train.en",
            ),
            (folder.zip("none.zip", &[]), "./none.zip has no examples"),
        ] {
            refused(&path, message);
        }
        let latin = b"ok\nok\nna\xefve";
        for file in [
            folder.file("latin.txt", latin),
            folder.gz("latin.gz", latin),
        ] {
            let said = Content::read(&file).unwrap_err().to_string();
            let name = file.display();
            let expected = format!("{name}, line 3: byte 8 of the file is not UTF-8");
            assert!(said.starts_with(&expected), "{said}");
        }
        let error = Content::read(&folder.file("not.zip", b"plain")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("not.zip cannot be unpacked: "), "{error}");
    }

    #[test]
    fn what_becomes_far_too_large_is_not_unpacked() {
        let folder = Folder::new();
        // 65 times a mebibyte, of about a kilobyte each.
        let members = folder.packed(&[b'a'; 1 << 20]).repeat(65);
        let why = "would become more than 64 MiB, which no text of its size does: it is not read. \
                   If you know what it is, unpack it and name what is in it";
        let gz = folder.file("large.gz", &members);
        refused(&gz, &format!("./large.gz {why}"));
        let zip = folder.zip_of("large.zip", &[("large.txt.gz", &members)]);
        refused(&zip, &format!("./large.zip#large.txt.gz {why}"));
        let most = folder.packed(&[b'a'; 1 << 20]).repeat(64);
        let most = Content::read(&folder.file("most.gz", &most)).unwrap();
        assert_eq!(most.text.len(), 64 << 20);
    }

    #[test]
    fn an_archive_that_leaves_its_folder_is_not_read() {
        let folder = Folder::new();
        for entry in [
            "../a.txt",
            "in/../../a.txt",
            "/etc/a.txt",
            "..\\a.txt",
            "C:\\a.txt",
        ] {
            let zip = folder.zip("bad.zip", &[("good.txt", "a"), (entry, "b")]);
            refused(
                &zip,
                &format!(
                    "./bad.zip has an entry that leaves its folder: \"{entry}\". Nothing of it \
                     is read: make the archive anew, with names relative to one folder"
                ),
            );
        }
    }

    #[test]
    fn it_is_used_up_and_nothing_is_read_beyond_it() {
        let most = 10 << 20;
        let mut allowance = Allowance { most, left: 10 };
        let mut read = |bytes: &mut dyn Read| allowance.read(Path::new("a.zip"), bytes);
        assert_eq!(read(&mut &b"1234567"[..]).unwrap(), b"1234567");
        assert_eq!(read(&mut &b"890"[..]).unwrap(), b"890");
        let error = read(&mut std::io::repeat(b'a')).unwrap_err().to_string();
        assert!(
            error.starts_with("a.zip would become more than 10 MiB"),
            "{error}"
        );
    }

    #[test]
    fn a_large_file_may_become_larger() {
        assert_eq!(Allowance::of(0).most, ALWAYS);
        assert_eq!(Allowance::of(1 << 30).most, 100 << 30);
    }
}
