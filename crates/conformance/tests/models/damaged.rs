//! Files of weights with bytes that nobody wrote: an error that names the file, or weights;
//! never a panic.
//!
//! `ZOO_DAMAGED` says how many of each format are tried; the usual number takes a second.

use std::fs;
use std::path::Path;

use burn::tensor::TensorData;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use zoo_models::weights::Weights;

use crate::support::*;

const USUAL: u32 = 300;

pub(crate) fn trials(suite: &mut Suite) {
    for extension in ["safetensors", "bpk", "pt"] {
        let name = format!("weights/damaged .{extension}");
        suite.add(name, move |_| read_all(extension));
    }
}

fn read_all(extension: &str) {
    let cases = std::env::var("ZOO_DAMAGED").map_or(USUAL, |count| must(count.parse()));
    let name = format!("zoo-changed-{}.{extension}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let whole = whole(&path);
    let config = Config {
        cases,
        failure_persistence: None,
        // The same on every machine: what fails here fails there.
        rng_seed: RngSeed::Fixed(1),
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&prop::collection::vec(change(), 1..5), |changes| {
        let mut bytes = whole.clone();
        for change in changes {
            change.apply(&mut bytes);
        }
        fs::write(&path, &bytes)?;
        if let Err(error) = Weights::read(&path) {
            let said = error.to_string();
            let named = said.contains(&path.display().to_string());
            prop_assert!(named, "which file? {said}");
        }
        Ok(())
    });
    must(fs::remove_file(&path));
    must(outcome);
}

fn whole(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|extension| extension == "pt") {
        return include_bytes!("../../golden/gpt2.pt").to_vec();
    }
    let numbers = |count: u8| (0..count).map(f32::from).collect::<Vec<_>>();
    let weight = TensorData::new(numbers(12), [3, 4]);
    let bias = TensorData::new(numbers(4), [4]);
    let named = [
        ("first.weight".to_owned(), weight),
        ("first.bias".to_owned(), bias),
    ];
    must(Weights::of_tensors(named).replace(path));
    must(fs::read(path))
}

#[derive(Debug, Clone)]
enum What {
    CutOff,
    Insert(Vec<u8>),
    Remove,
    Fill(u8),
    Turn(u8),
}

#[derive(Debug, Clone)]
struct Change {
    /// Bytes from the beginning, or from the end: there files say what they hold.
    at: usize,
    from_end: bool,
    length: usize,
    what: What,
}

fn change() -> impl Strategy<Value = Change> {
    let what = prop_oneof![
        Just(What::CutOff),
        prop::collection::vec(any::<u8>(), 1..9).prop_map(What::Insert),
        Just(What::Remove),
        prop::sample::select(vec![0, 0x7f, 0x80, 0xff, b'"', b'9']).prop_map(What::Fill),
        (0_u8..8).prop_map(|bit| What::Turn(1 << bit)),
        (0_u8..8).prop_map(|bit| What::Turn(1 << bit)),
    ];
    let at = prop_oneof![0_usize..32, 0_usize..600, any::<usize>()];
    (at, any::<bool>(), 1_usize..9, what).prop_map(|(at, from_end, length, what)| Change {
        at,
        from_end,
        length,
        what,
    })
}

impl Change {
    fn apply(self, bytes: &mut Vec<u8>) {
        let place = self.at % (bytes.len() + 1);
        let at = if self.from_end {
            bytes.len() - place
        } else {
            place
        };
        let upto = (at + self.length).min(bytes.len());
        match self.what {
            What::CutOff => bytes.truncate(at),
            What::Insert(more) => drop(bytes.splice(at..at, more)),
            What::Remove => drop(bytes.drain(at..upto)),
            What::Fill(byte) => bytes[at..upto].fill(byte),
            What::Turn(bit) => bytes[at..upto]
                .iter_mut()
                .take(1)
                .for_each(|byte| *byte ^= bit),
        }
    }
}
