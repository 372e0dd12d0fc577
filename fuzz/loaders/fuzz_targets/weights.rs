//! Files of weights: an error names the file; what is read is no more than the file has, and
//! written and read again it is the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo_fuzz::{assert_names, choice, file};
use zoo_models::weights::Weights;

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = choice(input) else {
        return;
    };
    let name = ["a.safetensors", "a.bpk", "a.pt"][which % 3];
    let path = file(name, bytes);
    let weights = match Weights::read(&path) {
        Ok(weights) => weights,
        Err(error) => return assert_names(&error, &path),
    };
    // A tensor of PyTorch may be of one number for all places; others are what is there.
    if name != "a.pt" {
        let data = weights.keys().filter_map(|key| weights.get(key));
        let held: usize = data.map(|data| data.bytes().len()).sum();
        assert!(held <= bytes.len(), "{held} bytes of {}", bytes.len());
    }
    let again = file("again.safetensors", b"");
    // Not every name and type can be written as every format.
    if weights.replace(&again).is_err() {
        return;
    }
    let read = Weights::read(&again).expect("what was just written");
    assert!(weights.keys().eq(read.keys()));
    for key in weights.keys() {
        let [before, after] = [&weights, &read].map(|weights| weights.get(key).expect("listed"));
        assert_eq!(before.shape(), after.shape(), "{key}");
        assert_eq!(before.bytes(), after.bytes(), "{key}");
    }
});
