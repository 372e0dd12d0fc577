//! Arbitrary bytes as `.gz` and `.zip`: small files never decompress to large texts.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_data::{LabelledText, plain_text};
use zoo_fuzz::{MAX_UNPACKED, assert_names, choice, temp_file};

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = choice(input) else {
        return;
    };
    let path = temp_file(["a.gz", "a.zip", "b.zip"][choice % 3], bytes);
    let read = match choice % 3 {
        0 | 1 => plain_text(&path).map(|text| text.len()),
        _ => LabelledText::folders(&path).read().map(|read| {
            let sizes = read.examples.iter().map(|document| document.text.len());
            sizes.sum()
        }),
    };
    match read {
        Ok(size) => assert!(size <= MAX_UNPACKED, "{size} bytes"),
        Err(error) => assert_names(&error, &path),
    }
});
