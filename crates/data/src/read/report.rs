//! What became of every line that was read: nothing is dropped without a word.

use std::fmt;
use std::path::Path;

use zoo_spec::Printable;

use super::content::Content;
use crate::DataError;

/// Bad lines that are kept to be shown; the others are only counted.
const SHOWN: usize = 5;

/// Characters of a bad line that are shown.
const EXCERPT: usize = 60;

/// A line that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// The file, or the archive and the file in it.
    pub name: String,
    /// Which line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
    /// How it begins.
    pub excerpt: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, why) = (Printable(&self.name), Printable(&self.why));
        write!(f, "{name}, line {}: {why}", self.line)?;
        match self.excerpt.as_str() {
            "" => Ok(()),
            excerpt => write!(f, ": {excerpt:?}"),
        }
    }
}

/// What was read, and what of it was kept. Print it: it says what was left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadReport {
    /// Files that were read.
    pub files: Vec<String>,
    /// Examples that were kept.
    pub kept: usize,
    /// Lines with nothing on them.
    pub blank: usize,
    /// Lines, or documents, that could not be parsed.
    pub bad: usize,
    /// The first of those.
    pub first_bad: Vec<BadLine>,
    /// Files that lie beside the examples and are none.
    pub ignored: Vec<String>,
}

impl ReadReport {
    /// A report about one file.
    fn of(name: &str) -> Self {
        Self {
            files: vec![name.to_owned()],
            ..Self::default()
        }
    }

    /// Notes a line that could not be parsed.
    fn note(&mut self, name: &str, line: usize, why: impl Into<String>, text: &str) {
        self.bad += 1;
        if self.first_bad.len() < SHOWN {
            let mut excerpt: String = text.chars().take(EXCERPT).collect();
            if excerpt.len() < text.len() {
                excerpt.push('…');
            }
            self.first_bad.push(BadLine {
                name: name.to_owned(),
                line,
                why: why.into(),
                excerpt,
            });
        }
    }

    /// Refuses data of which too much is bad, or nothing good.
    fn judge(self, allowed: f64) -> Result<Self, DataError> {
        let all = self.kept + self.bad;
        if self.bad as f64 > allowed * all as f64 {
            return Err(DataError::TooManyBad {
                allowed,
                report: Box::new(self),
            });
        }
        if self.kept == 0 {
            let what = match self.files.as_slice() {
                [one] => one.clone(),
                several => format!("the data of {}", several.join(" and ")),
            };
            return Err(DataError::Empty { what });
        }
        Ok(self)
    }
}

impl fmt::Display for ReadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = match self.files.as_slice() {
            [first, .., last] if self.files.len() > 2 => {
                let (first, last) = (Printable(first), Printable(last));
                format!("{} files, {first} to {last}", self.files.len())
            }
            files => Printable(&files.join(" and ")).to_string(),
        };
        write!(f, "{files}: {} examples", self.kept)?;
        if self.blank > 0 {
            write!(f, ", {} blank lines", self.blank)?;
        }
        if self.bad > 0 {
            write!(f, ", {} that cannot be parsed", self.bad)?;
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
                "\n  {} files are no examples, {} among them",
                self.ignored.len(),
                Printable(first)
            )?;
        }
        Ok(())
    }
}

/// Examples, and what became of what was read for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read<T> {
    /// In the order of the file.
    pub examples: Vec<T>,
    /// What was kept and what was not.
    pub report: ReadReport,
}

impl<T> Read<T> {
    /// Nothing yet of a file.
    pub(super) fn of(name: &str) -> Self {
        Self {
            examples: vec![],
            report: ReadReport::of(name),
        }
    }

    /// An example a line.
    pub(super) fn lines(
        path: &Path,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Self, DataError> {
        let file = Content::read(path)?;
        let mut read = Self::of(&file.name);
        for (at, line) in file.text.lines().enumerate() {
            match line.trim() {
                "" => read.report.blank += 1,
                _ => read.add(&file.name, at + 1, parse(line), line),
            }
        }
        Ok(read)
    }

    /// An example, or why the line that it is on is none.
    pub(super) fn add(&mut self, name: &str, line: usize, example: Result<T, String>, text: &str) {
        match example {
            Ok(example) => {
                self.examples.push(example);
                self.report.kept += 1;
            }
            Err(why) => self.report.note(name, line, why, text),
        }
    }

    /// Refuses data of which too much is bad, or nothing good.
    pub(super) fn judge(self, allowed: f64) -> Result<Self, DataError> {
        let Self { examples, report } = self;
        let report = report.judge(allowed)?;
        Ok(Self { examples, report })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bad_lines_are_shown_and_all_counted() {
        let mut report = ReadReport::of("data.tsv");
        report.kept = 93;
        report.blank = 2;
        for line in 1..=7 {
            report.note("data.tsv", line, "no tab", "long ".repeat(20).as_str());
        }
        let shown = report.to_string();
        let mut lines = shown.lines();
        assert_eq!(
            lines.next(),
            Some("data.tsv: 93 examples, 2 blank lines, 7 that cannot be parsed")
        );
        let excerpt = "long ".repeat(12);
        assert_eq!(
            lines.next(),
            Some(format!("  data.tsv, line 1: no tab: \"{excerpt}…\"").as_str())
        );
        assert_eq!(lines.next_back(), Some("  and 2 more"));
        assert_eq!(shown.lines().count(), 7);
    }

    #[test]
    fn too_many_are_an_error_and_few_are_not() {
        let mut report = ReadReport::of("data.tsv");
        report.kept = 99;
        report.note("data.tsv", 4, "no tab", "x");
        assert!(report.clone().judge(0.01).is_ok());
        let error = report.judge(0.009).unwrap_err();
        assert_eq!(
            error.to_string(),
            "too much of the data cannot be parsed, at most 0.9% may be\n\
             data.tsv: 99 examples, 1 that cannot be parsed\n  \
             data.tsv, line 4: no tab: \"x\""
        );
    }

    #[test]
    fn nothing_at_all_is_an_error() {
        let error = ReadReport::of("empty.tsv").judge(0.5).unwrap_err();
        assert_eq!(error.to_string(), "empty.tsv has no examples");
        let two = ReadReport {
            files: vec!["a.en".to_owned(), "a.de".to_owned()],
            ..ReadReport::default()
        };
        let error = two.judge(0.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the data of a.en and a.de has no examples"
        );
    }
}
