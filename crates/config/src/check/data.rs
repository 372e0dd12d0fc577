//! Whether what `[data]` says goes together, and with the model.

use super::fit::Fit;
use crate::{Config, Data, Files, Model};

impl Fit<'_> {
    /// Checks `[data]`.
    pub(super) fn data(&mut self, config: &Config) {
        match &config.data {
            Data::Copy(data) | Data::Reverse(data) | Data::Sort(data) => {
                self.min_and_max("length", data.min_length, data.max_length);
            }
            Data::ListOps(data) => self.min_and_max("length", data.min_length, data.max_length),
            Data::Dates(data) => {
                let keys = ["data.first_year", "data.last_year"];
                let allowed = format!("at most last_year = {}", data.last_year);
                let fits = data.first_year <= data.last_year;
                self.range(&keys, fits, &allowed, data.first_year);
                let allowed = "a year of four digits";
                self.at_most("data.last_year", data.last_year, 9999, allowed);
            }
            Data::Recall(data) => {
                self.min_and_max("keys", data.min_keys, data.max_keys);
                let allowed = "at most 26, the letters there are";
                self.at_most("data.max_keys", data.max_keys, 26, allowed);
            }
            Data::Documents(data) => {
                self.at_most("data.classes", data.classes, 8, "at most 8");
                self.min_and_max("sentences", data.min_sentences, data.max_sentences);
                self.min_and_max("words", data.min_words, data.max_words);
                let told = data.key_sentences.saturating_add(data.decoys);
                if told > data.min_sentences {
                    let why = format!(
                        "key_sentences = {} and decoys = {} need documents of {told} sentences, \
                         and min_sentences = {}",
                        data.key_sentences, data.decoys, data.min_sentences
                    );
                    let keys = ["data.key_sentences", "data.decoys", "data.min_sentences"];
                    self.misfit(&keys, why);
                }
            }
            Data::Phrases(_) => {}
            Data::Parallel(data) => {
                self.parts(
                    [&data.valid, &data.test],
                    [data.valid_share, data.test_share],
                );
                let train = Some(data.train.clone());
                let files = [&train, &data.valid, &data.test];
                let has_columns = |files: &&Option<Files>| matches!(files, Some(Files::One(_)));
                for key in ["data.source_column", "data.target_column"] {
                    if self.says(key) && !files.iter().any(has_columns) {
                        let why = "there are no columns where source and target are two files";
                        self.misfit(&[key], why);
                    }
                }
            }
            Data::Labelled(data) => {
                self.parts(
                    [&data.valid, &data.test],
                    [data.valid_share, data.test_share],
                );
                let is_han = matches!(config.model, Model::Han(_));
                let model = config.model.word();
                for (key, of_han) in [
                    ("data.sentences", true),
                    ("data.max_sentences", true),
                    ("data.max_words", true),
                    ("data.max_length", false),
                ] {
                    if self.says(key) && of_han != is_han {
                        let instead = match of_han {
                            true => "max_length limits its texts",
                            false => "max_sentences and max_words limit its documents",
                        };
                        self.misfit(&[key], format!("{model} has no use for it; {instead}"));
                    }
                }
            }
            Data::Plain(data) => {
                self.parts(
                    [&data.valid, &data.test],
                    [data.valid_share, data.test_share],
                );
            }
        }
    }

    fn min_and_max(&mut self, name: &str, least: usize, most: usize) {
        let keys = ["min", "max"].map(|end| format!("data.{end}_{name}"));
        let allowed = format!("at most max_{name} = {most}");
        let keys = keys.each_ref().map(String::as_str);
        self.range(&keys, least <= most, &allowed, least);
    }

    fn at_most(&mut self, key: &str, size: usize, most: usize, allowed: &str) {
        self.range(&[key], size <= most, allowed, size);
    }

    /// Validation and test are given, or a share of what is learned from.
    fn parts<T>(&mut self, given: [&Option<T>; 2], shares: [Option<f64>; 2]) {
        for (name, given) in ["valid", "test"].iter().zip(given) {
            let key = format!("data.{name}_share");
            if given.is_some() && self.says(&key) {
                let why = format!("data.{name} is given too; leave one of them out");
                self.misfit(&[&key], why);
            }
        }
        let [valid, test] = shares.map(|share| share.unwrap_or(0.0));
        if valid + test >= 1.0 {
            let why = format!(
                "with data.valid_share = {valid} and data.test_share = {test} nothing is left to \
                 learn from: both together must be below 1"
            );
            self.misfit(&["data.valid_share", "data.test_share"], why);
        }
    }
}
