//! Whether what `[data]` says goes together, and with the model.

use super::fit::Fit;
use crate::{Config, Data, Files, Model};

impl Fit<'_> {
    /// Checks `[data]`.
    pub(super) fn data(&mut self, config: &Config) {
        let least = |fit: &mut Self, low: (&str, usize), high: (&str, usize)| {
            let name = high.0.rsplit('.').next().unwrap_or_default();
            let allowed = format!("at most {name} = {}", high.1);
            fit.range(&[low.0, high.0], low.1 <= high.1, &allowed, low.1);
        };
        match &config.data {
            Data::Copy(data) | Data::Reverse(data) | Data::Sort(data) => least(
                self,
                ("data.min_length", data.min_length),
                ("data.max_length", data.max_length),
            ),
            Data::ListOps(data) => least(
                self,
                ("data.min_length", data.min_length),
                ("data.max_length", data.max_length),
            ),
            Data::Dates(data) => {
                least(
                    self,
                    ("data.first_year", data.first_year),
                    ("data.last_year", data.last_year),
                );
                let allowed = "a year of four digits";
                let fits = data.last_year <= 9999;
                self.range(&["data.last_year"], fits, allowed, data.last_year);
            }
            Data::Recall(data) => {
                least(
                    self,
                    ("data.min_keys", data.min_keys),
                    ("data.max_keys", data.max_keys),
                );
                let allowed = "at most 26, the letters there are";
                self.range(
                    &["data.max_keys"],
                    data.max_keys <= 26,
                    allowed,
                    data.max_keys,
                );
            }
            Data::Documents(data) => {
                let allowed = "at most 8";
                self.range(&["data.classes"], data.classes <= 8, allowed, data.classes);
                for (low, high) in [
                    (
                        ("data.min_sentences", data.min_sentences),
                        ("data.max_sentences", data.max_sentences),
                    ),
                    (
                        ("data.min_words", data.min_words),
                        ("data.max_words", data.max_words),
                    ),
                ] {
                    least(self, low, high);
                }
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
                self.given_twice(data.valid.is_some(), data.test.is_some());
                self.shares(data.valid_share, data.test_share);
                let files = [&Some(data.train.clone()), &data.valid, &data.test];
                let has_columns = |files: &&Option<Files>| matches!(files, Some(Files::One(_)));
                for key in ["data.source_column", "data.target_column"] {
                    if self.says(key) && !files.iter().any(has_columns) {
                        self.misfit(
                            &[key],
                            "there are no columns where source and target are two files",
                        );
                    }
                }
            }
            Data::Labelled(data) => {
                self.given_twice(data.valid.is_some(), data.test.is_some());
                self.shares(data.valid_share, data.test_share);
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
                self.given_twice(data.valid.is_some(), data.test.is_some());
                self.shares(data.valid_share, data.test_share);
            }
        }
    }

    fn given_twice(&mut self, valid: bool, test: bool) {
        for (key, other, is_given) in [
            ("data.valid_share", "data.valid", valid),
            ("data.test_share", "data.test", test),
        ] {
            if is_given && self.says(key) {
                self.misfit(
                    &[key],
                    format!("{other} is given too; leave one of them out"),
                );
            }
        }
    }

    fn shares(&mut self, valid: Option<f64>, test: Option<f64>) {
        let [valid, test] = [valid, test].map(|share| share.unwrap_or(0.0));
        if valid + test >= 1.0 {
            let why = format!(
                "with data.valid_share = {valid} and data.test_share = {test} nothing is left to \
                 learn from: both together must be below 1"
            );
            self.misfit(&["data.valid_share", "data.test_share"], why);
        }
    }
}
