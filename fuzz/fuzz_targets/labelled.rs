//! Labelled documents as TSV, CSV and JSON lines.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_data::{DataError, LabelledText, Labels};
use zoo_fuzz::{assert_names, choice, temp_file};

/// A JSON number becomes a label as Rust formats it, which may be longer: `1e15`.
const MAX_NUMBER_LEN: usize = 32;

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = choice(input) else {
        return;
    };
    let path = temp_file("a.txt", bytes);
    let reader = match choice % 5 {
        0 => LabelledText::tsv(&path),
        1 => LabelledText::csv(&path, "label", "text"),
        2 => LabelledText::csv(&path, "label", "text").with_delimiter(b'\t'),
        3 => LabelledText::csv(&path, "text", "label").with_delimiter(b';'),
        _ => LabelledText::json_lines(&path, "label", "text"),
    };
    match reader.with_max_malformed(0.9).read() {
        Ok(read) => {
            assert_eq!(read.report.num_examples, read.examples.len());
            let mut size = 0;
            for document in &read.examples {
                for part in [&document.label, &document.text] {
                    assert!(!part.is_empty() && part.trim() == part, "{part:?}");
                    size += part.len();
                }
            }
            let max = bytes.len() + MAX_NUMBER_LEN * read.examples.len();
            assert!(size <= max, "{size} bytes from {}", bytes.len());
            if let Ok(labels) = Labels::from_examples(&read.examples) {
                let indices = labels.indices("training", &read.examples);
                assert!(indices.is_ok(), "{indices:?}");
            }
        }
        Err(error) => {
            assert_names(&error, &path);
            if !matches!(error, DataError::Empty { .. }) {
                assert!(error.to_string().contains(", line "), "no line: {error}");
            }
        }
    }
});
