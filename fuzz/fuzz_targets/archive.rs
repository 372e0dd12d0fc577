//! Valid archives with arbitrary file names: archives with path traversal are rejected, and files
//! of all others are read as written.

#![no_main]

use std::io::{Cursor, Write as _};
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;
use zoo_data::{DataError, LabelledText, plain_text};
use zoo_fuzz::{assert_names, temp_file};

/// An independent definition of path traversal.
fn is_traversal(name: &str) -> bool {
    let name = name.replace('\\', "/");
    let drive = name.get(1..2) == Some(":");
    drive || name.starts_with('/') || format!("/{name}/").contains("/../")
}

/// Builds an archive from lines `name:content`, and returns it with its files.
fn build_archive(text: &str) -> (Vec<u8>, Vec<(&str, &str)>) {
    let mut writer = ZipWriter::new(Cursor::new(vec![]));
    let mut files: Vec<(&str, &str)> = vec![];
    for (name, content) in text.lines().filter_map(|line| line.split_once(':')) {
        let is_duplicate = files.iter().any(|(other, _)| *other == name);
        let options = SimpleFileOptions::default();
        if !is_duplicate && !name.ends_with(['/', '\\']) && writer.start_file(name, options).is_ok()
        {
            let result = writer.write_all(content.as_bytes());
            result.expect("writing to memory succeeds");
            // A byte order mark is not part of the text.
            files.push((name, content.strip_prefix('\u{feff}').unwrap_or(content)));
        }
    }
    let bytes = writer.finish().expect("writing to memory succeeds");
    (bytes.into_inner(), files)
}

fuzz_target!(|text: &str| {
    let (bytes, files) = build_archive(text);
    let path = temp_file("a.zip", &bytes);
    if let Err(error) = LabelledText::folders(&path).read() {
        assert_names(&error, &path);
    }
    let has_traversal = files.iter().any(|(name, _)| is_traversal(name));
    for (name, content) in files {
        let entry = PathBuf::from(format!("{}#{name}", path.display()));
        match plain_text(&entry) {
            Ok(read) => assert_eq!((read.as_str(), false), (content, has_traversal), "{name:?}"),
            Err(error) => {
                assert_names(&error, &path);
                let is_rejected = matches!(error, DataError::PathTraversal { .. });
                assert_eq!(is_rejected, has_traversal, "{error}");
            }
        }
    }
});
