//! A fingerprint of the encoded data, stored in every checkpoint: a run that is resumed with
//! other data would not be the same run.

use serde::{Deserialize, Serialize};
use zoo_config::{Config, Data, Files};
use zoo_data::Parts;

use crate::task::Ids;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataFingerprint {
    train: PartFingerprint,
    valid: PartFingerprint,
    test: PartFingerprint,
}

/// A part of it: how many examples there are, and checksums of their tokens and labels, in
/// order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartFingerprint {
    /// Tokens, where it is running text.
    examples: usize,
    inputs: u32,
    /// Target texts, or labels.
    targets: u32,
}

impl DataFingerprint {
    pub(crate) fn of(ids: &Parts<impl Ids>) -> Self {
        Self {
            train: ids.train.fingerprint(),
            valid: ids.valid.fingerprint(),
            test: ids.test.fingerprint(),
        }
    }

    /// The first part of the data that is different in `now`: the key of the config and the file
    /// it names, and how they differ.
    pub(crate) fn change(&self, now: &Self, config: &Config) -> Option<(String, String)> {
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
        let same_inputs = then.inputs == now.inputs;
        let differing = match config.data {
            _ if !same_inputs => "texts",
            Data::Labelled(_) | Data::ListOps(_) | Data::Documents(_) => "labels",
            _ => "target texts",
        };
        let what = match then.examples == now.examples {
            true => format!("the {differing} of its {} {unit} differ", now.examples),
            false => format!("it had {} {unit}, and has {}", then.examples, now.examples),
        };
        Some((source(config, name, same_inputs), what))
    }
}

impl PartFingerprint {
    /// Of so many examples, or tokens of running text, with these checksums.
    pub(crate) fn new(examples: usize, inputs: Checksum, targets: Checksum) -> Self {
        Self {
            examples,
            inputs: inputs.0.finalize(),
            targets: targets.0.finalize(),
        }
    }
}

/// The key of the config that a part of the data comes from, and its file. A part without a
/// file of its own is split from the training data.
fn source(config: &Config, part: &str, same_inputs: bool) -> String {
    let (key, file) = match &config.data {
        Data::Parallel(data) => {
            let (key, files) = own(part, &data.train, &data.valid, &data.test);
            let file = match files {
                Files::One(file) => file,
                Files::Two([_, target]) if same_inputs => target,
                Files::Two([source, _]) => source,
            };
            (key, file)
        }
        Data::Labelled(data) => own(part, &data.train, &data.valid, &data.test),
        Data::Plain(data) => own(part, &data.train, &data.valid, &data.test),
        // It depends on nothing but the config and the version of the program.
        generated => return format!("data.kind = {} (generated)", generated.word()),
    };
    format!("data.{key} = {}", file.display())
}

fn own<'a, F>(
    part: &str,
    train: &'a F,
    valid: &'a Option<F>,
    test: &'a Option<F>,
) -> (&'static str, &'a F) {
    match (part, valid, test) {
        ("valid", Some(valid), _) => ("valid", valid),
        ("test", _, Some(test)) => ("test", test),
        _ => ("train", train),
    }
}

#[derive(Default)]
pub(crate) struct Checksum(crc32fast::Hasher);

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
            change.map(|(source, what)| format!("{source}: {what}"))
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
