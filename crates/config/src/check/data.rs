//! Consistency of `[data]`, with itself and with the model.

use super::consistency::Checker;
use crate::{Config, Data, Files, Model};

impl Checker<'_> {
    pub(super) fn data(&mut self, config: &Config) {
        match &config.data {
            Data::Copy(data) | Data::Reverse(data) | Data::Sort(data) => {
                self.min_and_max("length", data.min_length, data.max_length);
            }
            Data::ListOps(data) => self.min_and_max("length", data.min_length, data.max_length),
            Data::Dates(data) => {
                let keys = ["data.first_year", "data.last_year"];
                let allowed = format!("at most last_year = {}", data.last_year);
                let is_ordered = data.first_year <= data.last_year;
                self.require(&keys, is_ordered, &allowed, data.first_year);
                let allowed = "a four-digit year";
                self.at_most("data.last_year", data.last_year, 9999, allowed);
            }
            Data::Recall(data) => {
                self.min_and_max("keys", data.min_keys, data.max_keys);
                let symbols = data.num_symbols();
                let allowed = format!("at most symbols = {symbols} (keys are distinct)");
                self.at_most("data.max_keys", data.max_keys, symbols, &allowed);
                let (min_keys, train_min_keys) = (data.min_keys, data.train_min_keys());
                let allowed = format!("at most min_keys = {min_keys}");
                self.at_most("data.train_min_keys", train_min_keys, min_keys, &allowed);
            }
            Data::Documents(data) => {
                self.at_most("data.classes", data.classes, 8, "at most 8");
                self.min_and_max("sentences", data.min_sentences, data.max_sentences);
                self.min_and_max("words", data.min_words, data.max_words);
                let needed = data.key_sentences.saturating_add(data.distractors);
                if needed > data.min_sentences {
                    let why = format!(
                        "key_sentences = {} and distractors = {} need at least {needed} sentences per \
                         document, but min_sentences = {}",
                        data.key_sentences, data.distractors, data.min_sentences
                    );
                    let keys = [
                        "data.key_sentences",
                        "data.distractors",
                        "data.min_sentences",
                    ];
                    self.report(&keys, why);
                }
            }
            Data::Phrases(_) => {}
            Data::Parallel(data) => {
                self.splits([data.valid_fraction, data.test_fraction]);
                let files = [Some(&data.train), data.valid.as_ref(), data.test.as_ref()];
                let has_columns = files.iter().any(|file| matches!(file, Some(Files::One(_))));
                for key in ["data.source_column", "data.target_column"] {
                    if self.is_set(key) && !has_columns {
                        let why = "source and target are separate files, which have no columns";
                        self.report(&[key], why);
                    }
                }
            }
            Data::Labelled(data) => {
                self.splits([data.valid_fraction, data.test_fraction]);
                let is_han = matches!(config.model, Model::Han(_));
                let model = config.model.name();
                for (key, is_of_han, help) in [
                    ("data.sentences", true, "remove it"),
                    ("data.max_sentences", true, "use max_length"),
                    ("data.max_words", true, "use max_length"),
                    ("data.max_length", false, "use max_sentences and max_words"),
                ] {
                    if self.is_set(key) && is_of_han != is_han {
                        self.report(&[key], format!("not used by {model}; {help}"));
                    }
                }
            }
            Data::Plain(data) => self.splits([data.valid_fraction, data.test_fraction]),
        }
    }

    fn min_and_max(&mut self, name: &str, min: usize, max: usize) {
        let keys = ["min", "max"].map(|end| format!("data.{end}_{name}"));
        let allowed = format!("at most max_{name} = {max}");
        let keys = keys.each_ref().map(String::as_str);
        self.require(&keys, min <= max, &allowed, min);
    }

    fn at_most(&mut self, key: &str, value: usize, max: usize, allowed: &str) {
        self.require(&[key], value <= max, allowed, value);
    }

    /// Validation and test data are files, or fractions of the training data.
    fn splits(&mut self, fractions: [Option<f64>; 2]) {
        for name in ["valid", "test"] {
            let key = format!("data.{name}_fraction");
            if self.is_set(&format!("data.{name}")) && self.is_set(&key) {
                let why = format!("data.{name} is also set; remove one of them");
                self.report(&[&key], why);
            }
        }
        let [valid, test] = fractions.map(|fraction| fraction.unwrap_or(0.0));
        if valid + test >= 1.0 {
            let why = format!(
                "data.valid_fraction = {valid} and data.test_fraction = {test} leave no training data; \
                 their sum must be below 1"
            );
            self.report(&["data.valid_fraction", "data.test_fraction"], why);
        }
    }
}
