//! Fingerprint of the encoded data, stored in every checkpoint to detect changed data on resume.

use serde::{Deserialize, Serialize};
use zoo_config::{Config, Data, Files};
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
    let (key, file) = match &config.data {
        Data::Parallel(data) => {
            let (key, files) = split_file(split, &data.train, &data.valid, &data.test);
            let file = match files {
                Files::One(file) => file,
                Files::Two([_, target]) if same_inputs => target,
                Files::Two([source, _]) => source,
            };
            (key, file)
        }
        Data::Labelled(data) => split_file(split, &data.train, &data.valid, &data.test),
        Data::Plain(data) => split_file(split, &data.train, &data.valid, &data.test),
        // Depends only on the config and the version of the program.
        generated => return format!("data.kind = {} (generated)", generated.name()),
    };
    format!("data.{key} = {}", file.display())
}

fn split_file<'a, F>(
    split: &str,
    train: &'a F,
    valid: &'a Option<F>,
    test: &'a Option<F>,
) -> (&'static str, &'a F) {
    match (split, valid, test) {
        ("valid", Some(valid), _) => ("valid", valid),
        ("test", _, Some(test)) => ("test", test),
        _ => ("train", train),
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

    fn config(data: &str, model: &str) -> Config {
        let text = format!("[data]\n{data}\n[model]\nkind = \"{model}\"\n");
        Config::parse("a.toml", &text, &[]).unwrap()
    }

    fn pairs(train: &[(&[u32], &[u32])], valid: &[(&[u32], &[u32])]) -> DataFingerprint {
        let split = |pairs: &[(&[u32], &[u32])]| {
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
        let config = config(
            "kind = \"parallel\"\ntrain = [\"a.en\", \"a.de\"]\nvalid = \"b.tsv\"",
            "transformer",
        );
        let then = pairs(&[(&[4, 5], &[6]), (&[7], &[8])], &[(&[4], &[6])]);
        let difference = |train: &[(&[u32], &[u32])], valid: &[(&[u32], &[u32])]| {
            let difference = then.difference(&pairs(train, valid), &config);
            difference.map(|(source, how)| format!("{source}: {how}"))
        };
        let train: [(&[u32], &[u32]); 2] = [(&[4, 5], &[6]), (&[7], &[8])];
        let valid: [(&[u32], &[u32]); 1] = [(&[4], &[6])];
        let expected = |text: &str| Some(text.to_owned());
        assert_eq!(difference(&train, &valid), None);
        assert_eq!(
            difference(&[(&[4, 5], &[6]), (&[7], &[9])], &valid),
            expected("data.train = a.de: the target texts of its 2 examples differ")
        );
        // The same tokens with other boundaries.
        assert_eq!(
            difference(&[(&[4], &[6]), (&[5, 7], &[8])], &valid),
            expected("data.train = a.en: the texts of its 2 examples differ")
        );
        assert_eq!(
            difference(&[(&[7], &[8]), (&[4, 5], &[6])], &valid),
            expected("data.train = a.en: the texts of its 2 examples differ")
        );
        assert_eq!(
            difference(&train, &[]),
            expected("data.valid = b.tsv: it had 1 examples, now 0")
        );
    }
}
