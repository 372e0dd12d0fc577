//! Archives that are whole, with files of any names: one that leaves its folder is refused,
//! and of all others every file reads as it was written.

#![no_main]

use std::io::{Cursor, Write as _};
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;
use zoo_data::{DataError, LabelledText, plain_text};
use zoo_fuzz::{assert_names, file};

/// As a person would say it.
fn leaves(name: &str) -> bool {
    let name = name.replace('\\', "/");
    let drive = name.get(1..2) == Some(":");
    drive || name.starts_with('/') || format!("/{name}/").contains("/../")
}

/// An archive with the files of lines `name:content`, and those that it has.
fn packed(text: &str) -> (Vec<u8>, Vec<(&str, &str)>) {
    let mut writer = ZipWriter::new(Cursor::new(vec![]));
    let mut files: Vec<(&str, &str)> = vec![];
    for (name, content) in text.lines().filter_map(|line| line.split_once(':')) {
        let twice = files.iter().any(|(other, _)| *other == name);
        let options = SimpleFileOptions::default();
        if !twice && !name.ends_with(['/', '\\']) && writer.start_file(name, options).is_ok() {
            let written = writer.write_all(content.as_bytes());
            written.expect("memory has room");
            // The mark of an encoding is no text.
            files.push((name, content.strip_prefix('\u{feff}').unwrap_or(content)));
        }
    }
    let bytes = writer.finish().expect("memory has room");
    (bytes.into_inner(), files)
}

fuzz_target!(|text: &str| {
    let (bytes, files) = packed(text);
    let path = file("a.zip", &bytes);
    if let Err(error) = LabelledText::folders(&path).read() {
        assert_names(&error, &path);
    }
    let bad = files.iter().any(|(name, _)| leaves(name));
    for (name, content) in files {
        let entry = PathBuf::from(format!("{}#{name}", path.display()));
        match plain_text(&entry) {
            Ok(read) => assert_eq!((read.as_str(), false), (content, bad), "{name:?}"),
            Err(error) => {
                assert_names(&error, &path);
                let refused = matches!(error, DataError::LeavesFolder { .. });
                assert_eq!(refused, bad, "{error}");
            }
        }
    }
});
