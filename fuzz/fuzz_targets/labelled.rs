//! Documents and their classes, as lines with tabs, as a table and as JSON lines.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_data::{DataError, LabelledText, Labels};
use zoo_fuzz::{assert_names, choice, file};

/// A number in JSON is a label as Rust writes it, which may be longer: `1e15`.
const LONGEST_NUMBER: usize = 32;

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = choice(input) else {
        return;
    };
    let path = file("a.txt", bytes);
    let reader = match choice % 5 {
        0 => LabelledText::tsv(&path),
        1 => LabelledText::csv(&path, "label", "text"),
        2 => LabelledText::csv(&path, "label", "text").with_delimiter(b'\t'),
        3 => LabelledText::csv(&path, "text", "label").with_delimiter(b';'),
        _ => LabelledText::json_lines(&path, "label", "text"),
    };
    match reader.with_allowed_bad(0.9).read() {
        Ok(read) => {
            assert_eq!(read.report.kept, read.examples.len());
            let mut size = 0;
            for document in &read.examples {
                for part in [&document.label, &document.text] {
                    assert!(!part.is_empty() && part.trim() == part, "{part:?}");
                    size += part.len();
                }
            }
            let most = bytes.len() + LONGEST_NUMBER * read.examples.len();
            assert!(size <= most, "{size} bytes from {}", bytes.len());
            if let Ok(labels) = Labels::of(&read.examples) {
                let numbers = labels.numbers("training", &read.examples);
                assert!(numbers.is_ok(), "{numbers:?}");
            }
        }
        Err(error) => {
            assert_names(&error, &path);
            if !matches!(error, DataError::Empty { .. }) {
                assert!(error.to_string().contains(", line "), "which line? {error}");
            }
        }
    }
});
