//! Weight files with random damage: reading returns weights or an error that names the file, and
//! never panics.
//!
//! `ZOO_DAMAGED` is the number of files of each format; the default takes a second.

use std::fs;
use std::path::Path;

use burn::tensor::TensorData;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use zoo_models::weights::Weights;

use crate::support::*;

const DEFAULT_CASES: u32 = 300;

pub(crate) fn trials(suite: &mut Suite) {
    for extension in ["safetensors", "bpk", "pt"] {
        let name = format!("weights/damaged-{extension}");
        suite.add(name, move |_| read_all(extension));
    }
}

fn read_all(extension: &str) {
    let cases = std::env::var("ZOO_DAMAGED").map_or(DEFAULT_CASES, |count| must(count.parse()));
    let name = format!("zoo-changed-{}.{extension}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let intact = intact_file(&path);
    let config = Config {
        cases,
        failure_persistence: None,
        // Reproducible on every machine.
        rng_seed: RngSeed::Fixed(1),
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&prop::collection::vec(change(), 1..5), |changes| {
        let mut bytes = intact.clone();
        for change in changes {
            change.apply(&mut bytes);
        }
        fs::write(&path, &bytes)?;
        if let Err(error) = Weights::read(&path) {
            let message = error.to_string();
            let names_file = message.contains(&path.display().to_string());
            prop_assert!(names_file, "{message}");
        }
        Ok(())
    });
    must(fs::remove_file(&path));
    must(outcome);
}

fn intact_file(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|extension| extension == "pt") {
        return include_bytes!("../../golden/gpt2.pt").to_vec();
    }
    let values = |count: u8| (0..count).map(f32::from).collect::<Vec<_>>();
    let weight = TensorData::new(values(12), [3, 4]);
    let bias = TensorData::new(values(4), [4]);
    let named = [
        ("first.weight".to_owned(), weight),
        ("first.bias".to_owned(), bias),
    ];
    must(Weights::from_tensors(named).replace(path));
    must(fs::read(path))
}

#[derive(Debug, Clone)]
enum Kind {
    Truncate,
    Insert(Vec<u8>),
    Remove,
    Fill(u8),
    FlipBits(u8),
}

#[derive(Debug, Clone)]
struct Change {
    /// Offset from the start or the end, where some formats have their index.
    offset: usize,
    from_end: bool,
    length: usize,
    kind: Kind,
}

fn change() -> impl Strategy<Value = Change> {
    let kind = prop_oneof![
        Just(Kind::Truncate),
        prop::collection::vec(any::<u8>(), 1..9).prop_map(Kind::Insert),
        Just(Kind::Remove),
        prop::sample::select(vec![0, 0x7f, 0x80, 0xff, b'"', b'9']).prop_map(Kind::Fill),
        (0_u8..8).prop_map(|bit| Kind::FlipBits(1 << bit)),
        (0_u8..8).prop_map(|bit| Kind::FlipBits(1 << bit)),
    ];
    let offset = prop_oneof![0_usize..32, 0_usize..600, any::<usize>()];
    (offset, any::<bool>(), 1_usize..9, kind).prop_map(|(offset, from_end, length, kind)| Change {
        offset,
        from_end,
        length,
        kind,
    })
}

impl Change {
    fn apply(self, bytes: &mut Vec<u8>) {
        let offset = self.offset % (bytes.len() + 1);
        let start = if self.from_end {
            bytes.len() - offset
        } else {
            offset
        };
        let end = (start + self.length).min(bytes.len());
        match self.kind {
            Kind::Truncate => bytes.truncate(start),
            Kind::Insert(more) => drop(bytes.splice(start..start, more)),
            Kind::Remove => drop(bytes.drain(start..end)),
            Kind::Fill(byte) => bytes[start..end].fill(byte),
            Kind::FlipBits(bits) => bytes[start..end]
                .iter_mut()
                .take(1)
                .for_each(|byte| *byte ^= bits),
        }
    }
}
