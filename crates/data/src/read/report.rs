//! Datasets read from files, and reports of bad lines.

use std::fmt;
use std::path::Path;

use zoo_spec::Printable;

use super::content::Content;
use crate::DataError;

const MAX_LISTED: usize = 5;
const EXCERPT_LEN: usize = 60;

/// Statistics of reading a dataset, for printing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadReport {
    /// Files that were read.
    pub files: Vec<String>,
    /// Number of examples.
    pub num_examples: usize,
    /// Number of blank lines.
    pub blank: usize,
    /// Number of lines, or documents, that could not be parsed.
    pub bad: usize,
    /// The first of these: location, reason and excerpt.
    pub first_bad: Vec<String>,
    /// Files that are not examples.
    pub ignored: Vec<String>,
}

impl fmt::Display for ReadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.join(" and ");
        let files = Printable(&files);
        write!(f, "{files}: {} examples", self.num_examples)?;
        if self.blank > 0 {
            write!(f, ", {} blank lines", self.blank)?;
        }
        if self.bad > 0 {
            write!(f, ", {} bad lines", self.bad)?;
        }
        for bad in &self.first_bad {
            write!(f, "\n  {bad}")?;
        }
        if self.bad > self.first_bad.len() {
            write!(f, "\n  and {} more", self.bad - self.first_bad.len())?;
        }
        if let [first, ..] = self.ignored.as_slice() {
            write!(
                f,
                "\n  ignored {} other files, for example {}",
                self.ignored.len(),
                Printable(first)
            )?;
        }
        Ok(())
    }
}

/// Examples read from files, and a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset<T> {
    /// Examples in the order of the file.
    pub examples: Vec<T>,
    /// Statistics, including bad lines.
    pub report: ReadReport,
}

impl<T> Dataset<T> {
    pub(super) fn new(name: &str) -> Self {
        Self {
            examples: vec![],
            report: ReadReport {
                files: vec![name.to_owned()],
                ..ReadReport::default()
            },
        }
    }

    pub(super) fn from_lines(
        path: &Path,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Self, DataError> {
        let file = Content::read(path)?;
        let mut dataset = Self::new(&file.name);
        for (i, line) in file.text.lines().enumerate() {
            match line.trim() {
                "" => dataset.report.blank += 1,
                _ => dataset.add(&file.name, i + 1, parse(line), line),
            }
        }
        Ok(dataset)
    }

    /// Adds an example, or reports why its line is bad.
    pub(super) fn add(&mut self, name: &str, line: usize, example: Result<T, String>, text: &str) {
        let report = &mut self.report;
        let reason = match example {
            Ok(example) => {
                report.num_examples += 1;
                return self.examples.push(example);
            }
            Err(reason) => reason,
        };
        report.bad += 1;
        if report.first_bad.len() < MAX_LISTED {
            let (name, reason) = (Printable(name), Printable(&reason));
            let mut shown = format!("{name}, line {line}: {reason}");
            let mut excerpt: String = text.chars().take(EXCERPT_LEN).collect();
            if excerpt.len() < text.len() {
                excerpt.push('…');
            }
            if !excerpt.is_empty() {
                shown += &format!(": {excerpt:?}");
            }
            report.first_bad.push(shown);
        }
    }

    /// Returns an error if there are too many bad lines or no examples.
    pub(super) fn check(self, allowed: f64) -> Result<Self, DataError> {
        let report = &self.report;
        let all = report.num_examples + report.bad;
        if report.bad as f64 > allowed * all as f64 {
            let allowed = allowed * 100.0;
            return Err(DataError::TooManyBad(format!(
                "more than {allowed:.1}% of the lines are bad\n{report}\n  help: fix the file or its \
                 format, or increase max_malformed"
            )));
        }
        if report.num_examples == 0 {
            return Err(DataError::empty(match report.files.as_slice() {
                [file] => file.clone(),
                files => format!("the data of {}", files.join(" and ")),
            }));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(good: usize, bad: usize, text: &str) -> Dataset<()> {
        let mut dataset = Dataset::new("data.tsv");
        for line in 1..=good + bad {
            let example = (line > bad).then_some(()).ok_or("no tab".to_owned());
            dataset.add("data.tsv", line, example, text);
        }
        dataset
    }

    #[test]
    fn first_bad_lines_are_listed() {
        let mut report = dataset(93, 7, &"long ".repeat(20)).report;
        report.blank = 2;
        let excerpt = "long ".repeat(12);
        let bad = |line: usize| format!("  data.tsv, line {line}: no tab: \"{excerpt}…\"\n");
        let shown: String = (1..=5).map(bad).collect();
        let first = "data.tsv: 93 examples, 2 blank lines, 7 bad lines";
        let expected = format!("{first}\n{shown}  and 2 more");
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn too_many_bad_lines_and_empty_data_are_errors() {
        assert!(dataset(99, 1, "x").check(0.01).is_ok());
        let mut two = dataset(0, 0, "");
        two.report.files = vec!["a.en".to_owned(), "a.de".to_owned()];
        for (dataset, allowed, message) in [
            (
                dataset(99, 1, "x"),
                0.009,
                "more than 0.9% of the lines are bad\n\
                 data.tsv: 99 examples, 1 bad lines\n  \
                 data.tsv, line 1: no tab: \"x\"\n  \
                 help: fix the file or its format, or increase max_malformed",
            ),
            (dataset(0, 0, ""), 0.5, "data.tsv has no examples"),
            (two, 0.0, "the data of a.en and a.de has no examples"),
        ] {
            assert_eq!(dataset.check(allowed).unwrap_err().to_string(), message);
        }
    }
}
