//! Parallel text: every line is an example, blank or malformed, and examples are substrings of the
//! text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_data::{DataError, ParallelText};
use zoo_fuzz::{assert_names, choice, temp_file};

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = choice(input) else {
        return;
    };
    let path = temp_file("a.tsv", bytes);
    let reader = match choice % 4 {
        0 => ParallelText::tsv(&path),
        1 => ParallelText::tsv_columns(&path, 2, 0),
        2 => ParallelText::tsv_columns(&path, 1, usize::MAX),
        _ => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
            let path = temp_file("a.tsv", &bytes[..end]);
            ParallelText::files(&path, temp_file("b.txt", &bytes[end..]))
        }
    };
    match reader.with_max_malformed(0.9).read() {
        Ok(read) => {
            let text = std::str::from_utf8(bytes).expect("text that was read is UTF-8");
            let report = read.report;
            assert_eq!(report.num_examples, read.examples.len());
            let accounted = report.num_examples + report.bad + report.blank;
            assert!(accounted <= text.lines().count(), "{report}");
            for pair in read.examples {
                for side in [pair.source, pair.target] {
                    assert!(!side.is_empty() && side.trim() == side, "{side:?}");
                    assert!(text.contains(&side), "{side:?} is not in the file");
                }
            }
        }
        Err(error) => {
            // The error may be in either file.
            if error.to_string().contains("b.txt") {
                assert_names(&error, &path.with_file_name("b.txt"));
            } else {
                assert_names(&error, &path);
            }
            if let DataError::TooManyBad { .. } | DataError::Encoding { .. } = error {
                assert!(error.to_string().contains(", line "), "no line: {error}");
            }
        }
    }
});
