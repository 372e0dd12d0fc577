//! Fingerprint of the encoded data, stored in every checkpoint to detect changed data on resume.

use serde::{Deserialize, Serialize};
use zoo_config::{Config, Data};
use zoo_data::Splits;

use crate::task::TokenData;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataFingerprint {
    train: SplitFingerprint,
    valid: SplitFingerprint,
    test: SplitFingerprint,
}

/// The number of examples of a split, and checksums of their tokens and labels in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SplitFingerprint {
    /// Number of examples, or of tokens of running text.
    examples: usize,
    inputs: u32,
    targets: u32,
}

impl DataFingerprint {
    pub(crate) fn new(ids: &Splits<impl TokenData>) -> Self {
        Self {
            train: ids.train.fingerprint(),
            valid: ids.valid.fingerprint(),
            test: ids.test.fingerprint(),
        }
    }

    /// The first split that differs in `now`: its config key and file, and how it differs.
    pub(crate) fn difference(&self, now: &Self, config: &Config) -> Option<(String, String)> {
        let splits = [
            ("train", &self.train, &now.train),
            ("valid", &self.valid, &now.valid),
            ("test", &self.test, &now.test),
        ];
        let (name, then, now) = splits.into_iter().find(|(_, then, now)| then != now)?;
        let unit = match config.data {
            Data::Plain(_) => "tokens",
            _ => "examples",
        };
        let same_inputs = then.inputs == now.inputs;
        let differing = match config.data {
            _ if !same_inputs => "texts",
            Data::Labelled(_) | Data::ListOps(_) | Data::Documents(_) => "labels",
            _ => "target texts",
        };
        let difference = if then.examples == now.examples {
            format!("the {differing} of its {} {unit} differ", now.examples)
        } else {
            format!("it had {} {unit}, now {}", then.examples, now.examples)
        };
        Some((data_source(config, name, same_inputs), difference))
    }
}

impl SplitFingerprint {
    pub(crate) fn new(examples: usize, inputs: Checksum, targets: Checksum) -> Self {
        Self {
            examples,
            inputs: inputs.0.finalize(),
            targets: targets.0.finalize(),
        }
    }
}

/// The config key and the file of a split. A split without its own file is taken from the training
/// data.
fn data_source(config: &Config, split: &str, same_inputs: bool) -> String {
    let mut files = config.files();
    let mut key = format!("data.{split}");
    if !files.iter().any(|(other, _)| *other == key) {
        key = "data.train".to_owned();
    }
    files.retain(|(other, _)| *other == key);
    // Of two files, the second one has the targets.
    let changed = if same_inputs {
        files.last()
    } else {
        files.first()
    };
    match changed {
        Some((_, file)) => format!("{key} = {}", file.display()),
        // Depends only on the config and the version of the program.
        None => format!("data.kind = {} (generated)", config.data.name()),
    }
}

#[derive(Default)]
pub(crate) struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Includes the length, so that moving a token to the next list is detected.
    pub(crate) fn add(&mut self, ids: &[u32]) {
        self.add_number(ids.len());
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.0.update(&bytes);
    }

    pub(crate) fn add_number(&mut self, number: usize) {
        self.0.update(&(number as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use zoo_data::PairIds;

    use super::*;

    type Pairs<'a> = &'a [(&'a [u32], &'a [u32])];

    fn fingerprint(train: Pairs<'_>, valid: Pairs<'_>) -> DataFingerprint {
        let split = |pairs: Pairs<'_>| {
            let pair = |(source, target): &(&[u32], &[u32])| PairIds {
                source: source.to_vec(),
                target: target.to_vec(),
            };
            pairs.iter().map(pair).collect()
        };
        DataFingerprint::new(&Splits::<Vec<PairIds>> {
            train: split(train),
            valid: split(valid),
            test: vec![],
        })
    }

    #[test]
    fn the_changed_file_is_named() {
        let text = "[data]\nkind = \"parallel\"\ntrain = [\"a.en\", \"a.de\"]\nvalid = \"b.tsv\"\n\
                    [model]\nkind = \"transformer\"\n";
        let config = Config::parse("a.toml", text, &[]).unwrap();
        let train: Pairs<'_> = &[(&[4, 5], &[6]), (&[7], &[8])];
        let valid: Pairs<'_> = &[(&[4], &[6])];
        let then = fingerprint(train, valid);
        assert_eq!(then.difference(&fingerprint(train, valid), &config), None);
        let check = |train: Pairs<'_>, valid: Pairs<'_>, source: &str, difference: &str| {
            let found = then.difference(&fingerprint(train, valid), &config);
            let expected = (source.to_owned(), difference.to_owned());
            assert_eq!(found, Some(expected));
        };
        let targets = "the target texts of its 2 examples differ";
        let other_target: Pairs<'_> = &[(&[4, 5], &[6]), (&[7], &[9])];
        check(other_target, valid, "data.train = a.de", targets);
        let texts = "the texts of its 2 examples differ";
        // The same tokens with other boundaries.
        let other_boundaries: Pairs<'_> = &[(&[4], &[6]), (&[5, 7], &[8])];
        check(other_boundaries, valid, "data.train = a.en", texts);
        let other_order: Pairs<'_> = &[(&[7], &[8]), (&[4, 5], &[6])];
        check(other_order, valid, "data.train = a.en", texts);
        let fewer = "it had 1 examples, now 0";
        check(train, &[], "data.valid = b.tsv", fewer);
    }
}
