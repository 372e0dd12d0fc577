//! Weight files: errors name the file, tensors are no larger than the file, and weights round-trip.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_fuzz::{assert_names, choice, temp_file};
use zoo_models::weights::Weights;

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = choice(input) else {
        return;
    };
    let name = ["a.safetensors", "a.bpk", "a.pt"][which % 3];
    let path = temp_file(name, bytes);
    let weights = match Weights::read(&path) {
        Ok(weights) => weights,
        Err(error) => return assert_names(&error, &path),
    };
    // PyTorch tensors may be broadcast from fewer elements; other formats store every element.
    if name != "a.pt" {
        let data = weights.keys().filter_map(|key| weights.get(key));
        let total: usize = data.map(|data| data.bytes().len()).sum();
        assert!(total <= bytes.len(), "{total} bytes of {}", bytes.len());
    }
    let again = temp_file("again.safetensors", b"");
    // Not every name and dtype can be written to every format.
    if weights.replace(&again).is_err() {
        return;
    }
    let read = Weights::read(&again).expect("weights that were just written");
    assert!(weights.keys().eq(read.keys()));
    for key in weights.keys() {
        let [before, after] = [&weights, &read].map(|weights| weights.get(key).expect("listed"));
        assert_eq!(before.shape(), after.shape(), "{key}");
        assert_eq!(before.bytes(), after.bytes(), "{key}");
    }
});
