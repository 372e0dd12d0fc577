//! A fingerprint of the encoded data, stored in every checkpoint: a run that is resumed with
//! other data would not be the same run.

use std::path::Path;

use serde::{Deserialize, Serialize};
use zoo_config::{Config, Data, Files};
use zoo_data::Parts;

use crate::task::Ids;

/// The data of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataFingerprint {
    train: PartFingerprint,
    valid: PartFingerprint,
    test: PartFingerprint,
}

/// A part of it: how many examples there are, and checksums of their tokens and labels, in
/// order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFingerprint {
    /// Tokens, where it is running text.
    examples: usize,
    inputs: u32,
    /// Target texts, or labels.
    targets: u32,
}

/// What differs between two fingerprints, in words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DataChange {
    /// The key of the config, and the file it names.
    pub(crate) source: String,
    /// How it differs.
    pub(crate) what: String,
}

impl DataFingerprint {
    pub(crate) fn of(ids: &Parts<impl Ids>) -> Self {
        Self {
            train: ids.train.fingerprint(),
            valid: ids.valid.fingerprint(),
            test: ids.test.fingerprint(),
        }
    }

    /// What is different in `now`, the first part of the data that is.
    pub(crate) fn change(&self, now: &Self, config: &Config) -> Option<DataChange> {
        let parts = [
            ("train", &self.train, &now.train),
            ("valid", &self.valid, &now.valid),
            ("test", &self.test, &now.test),
        ];
        let (name, then, now) = parts.into_iter().find(|(_, then, now)| then != now)?;
        let unit = match config.data {
            Data::Plain(_) => "tokens",
            _ => "examples",
        };
        let what = match then.examples == now.examples {
            true => format!(
                "the {} of its {} {unit} differ",
                then.what_differs(now, config),
                now.examples
            ),
            false => format!("it had {} {unit}, and has {}", then.examples, now.examples),
        };
        Some(DataChange {
            source: source(config, name, then.inputs == now.inputs),
            what,
        })
    }
}

impl PartFingerprint {
    /// Of so many examples, or tokens of running text, with these checksums.
    pub(crate) fn new(examples: usize, inputs: Checksum, targets: Checksum) -> Self {
        Self {
            examples,
            inputs: inputs.finish(),
            targets: targets.finish(),
        }
    }

    fn what_differs(&self, now: &Self, config: &Config) -> &'static str {
        let targets = match config.data {
            Data::Labelled(_) | Data::ListOps(_) | Data::Documents(_) => "labels",
            _ => "target texts",
        };
        match self.inputs == now.inputs {
            true => targets,
            false => "texts",
        }
    }
}

/// The key of the config that a part of the data comes from, and its file. A part without a
/// file of its own is split from the training data.
fn source(config: &Config, part: &str, same_inputs: bool) -> String {
    let of = |file: &Path, name: &str| format!("data.{name} = {}", file.display());
    let own = |valid: bool, test: bool| match part {
        "valid" if valid => "valid",
        "test" if test => "test",
        _ => "train",
    };
    match &config.data {
        Data::Parallel(data) => {
            let name = own(data.valid.is_some(), data.test.is_some());
            let files = match name {
                "valid" => data.valid.as_ref(),
                "test" => data.test.as_ref(),
                _ => None,
            };
            match files.unwrap_or(&data.train) {
                Files::One(file) => of(file, name),
                Files::Two([_, target]) if same_inputs => of(target, name),
                Files::Two([source, _]) => of(source, name),
            }
        }
        Data::Labelled(zoo_config::Labelled {
            train, valid, test, ..
        })
        | Data::Plain(zoo_config::Plain {
            train, valid, test, ..
        }) => match own(valid.is_some(), test.is_some()) {
            "valid" => of(valid.as_ref().unwrap_or(train), "valid"),
            "test" => of(test.as_ref().unwrap_or(train), "test"),
            name => of(train, name),
        },
        // It depends on nothing but the config and the version of the program.
        generated => format!("data.kind = {} (generated)", generated.word()),
    }
}

/// A checksum of lists of numbers.
#[derive(Default)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Its length first, so that moving a token to the next list is a change.
    pub(crate) fn add(&mut self, ids: &[u32]) {
        self.add_number(ids.len());
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.0.update(&bytes);
    }

    pub(crate) fn add_number(&mut self, number: usize) {
        self.0.update(&(number as u64).to_le_bytes());
    }

    fn finish(self) -> u32 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use zoo_data::PairIds;

    use super::*;

    fn config(data: &str, model: &str) -> Config {
        let text = format!("[data]\n{data}\n[model]\nkind = \"{model}\"\n");
        Config::parse("a.toml", &text, &[]).unwrap()
    }

    fn pairs(train: &[(&[u32], &[u32])], valid: &[(&[u32], &[u32])]) -> DataFingerprint {
        let part = |pairs: &[(&[u32], &[u32])]| {
            let pair = |(source, target): &(&[u32], &[u32])| PairIds {
                source: source.to_vec(),
                target: target.to_vec(),
            };
            pairs.iter().map(pair).collect()
        };
        DataFingerprint::of(&Parts::<Vec<PairIds>> {
            train: part(train),
            valid: part(valid),
            test: vec![],
        })
    }

    #[test]
    fn the_file_that_changed_is_named() {
        let config = config(
            "kind = \"parallel\"\ntrain = [\"a.en\", \"a.de\"]\nvalid = \"b.tsv\"",
            "transformer",
        );
        let then = pairs(&[(&[4, 5], &[6]), (&[7], &[8])], &[(&[4], &[6])]);
        let change = |train: &[(&[u32], &[u32])], valid: &[(&[u32], &[u32])]| {
            let change = then.change(&pairs(train, valid), &config);
            change.map(|change| format!("{}: {}", change.source, change.what))
        };
        let train: [(&[u32], &[u32]); 2] = [(&[4, 5], &[6]), (&[7], &[8])];
        let valid: [(&[u32], &[u32]); 1] = [(&[4], &[6])];
        let expected = |text: &str| Some(text.to_owned());
        assert_eq!(change(&train, &valid), None);
        assert_eq!(
            change(&[(&[4, 5], &[6]), (&[7], &[9])], &valid),
            expected("data.train = a.de: the target texts of its 2 examples differ")
        );
        // The same tokens, cut elsewhere.
        assert_eq!(
            change(&[(&[4], &[6]), (&[5, 7], &[8])], &valid),
            expected("data.train = a.en: the texts of its 2 examples differ")
        );
        assert_eq!(
            change(&[(&[7], &[8]), (&[4, 5], &[6])], &valid),
            expected("data.train = a.en: the texts of its 2 examples differ")
        );
        assert_eq!(
            change(&train, &[]),
            expected("data.valid = b.tsv: it had 1 examples, and has 0")
        );
    }
}
