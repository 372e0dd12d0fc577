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
    /// The first of those: where they are, what is wrong with them, and how they begin.
    pub first_bad: Vec<String>,
    /// Files that lie beside the examples and are none.
    pub ignored: Vec<String>,
}

impl fmt::Display for ReadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.join(" and ");
        let files = Printable(&files);
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
    pub(super) fn of(name: &str) -> Self {
        Self {
            examples: vec![],
            report: ReadReport {
                files: vec![name.to_owned()],
                ..ReadReport::default()
            },
        }
    }

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
        let report = &mut self.report;
        let why = match example {
            Ok(example) => {
                report.kept += 1;
                return self.examples.push(example);
            }
            Err(why) => why,
        };
        report.bad += 1;
        if report.first_bad.len() < SHOWN {
            let mut excerpt: String = text.chars().take(EXCERPT).collect();
            if excerpt.len() < text.len() {
                excerpt.push('…');
            }
            let (name, why) = (Printable(name), Printable(&why));
            let shown = match excerpt.is_empty() {
                true => format!("{name}, line {line}: {why}"),
                false => format!("{name}, line {line}: {why}: {excerpt:?}"),
            };
            report.first_bad.push(shown);
        }
    }

    /// Refuses data of which too much is bad, or nothing good.
    pub(super) fn judge(self, allowed: f64) -> Result<Self, DataError> {
        let report = &self.report;
        let all = report.kept + report.bad;
        if report.bad as f64 > allowed * all as f64 {
            let allowed = allowed * 100.0;
            return Err(DataError::TooManyBad(format!(
                "too much of the data cannot be parsed, at most {allowed:.1}% may be\n{report}"
            )));
        }
        if report.kept == 0 {
            let what = match report.files.as_slice() {
                [one] => one.clone(),
                several => format!("the data of {}", several.join(" and ")),
            };
            return Err(DataError::Empty { what });
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many good lines, and so many bad ones.
    fn read(good: usize, bad: usize, text: &str) -> Read<()> {
        let mut read = Read::of("data.tsv");
        for line in 1..=good + bad {
            let example = if line <= bad {
                Err("no tab".to_owned())
            } else {
                Ok(())
            };
            read.add("data.tsv", line, example, text);
        }
        read
    }

    #[test]
    fn the_first_bad_lines_are_shown_and_all_counted() {
        let mut report = read(93, 7, &"long ".repeat(20)).report;
        report.blank = 2;
        let excerpt = "long ".repeat(12);
        let bad = |line: usize| format!("  data.tsv, line {line}: no tab: \"{excerpt}…\"\n");
        let shown: String = (1..=5).map(bad).collect();
        let first = "data.tsv: 93 examples, 2 blank lines, 7 that cannot be parsed";
        let expected = format!("{first}\n{shown}  and 2 more");
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn too_many_bad_lines_or_nothing_at_all_are_an_error() {
        assert!(read(99, 1, "x").judge(0.01).is_ok());
        let mut two = read(0, 0, "");
        two.report.files = vec!["a.en".to_owned(), "a.de".to_owned()];
        for (read, allowed, message) in [
            (
                read(99, 1, "x"),
                0.009,
                "too much of the data cannot be parsed, at most 0.9% may be\n\
                 data.tsv: 99 examples, 1 that cannot be parsed\n  \
                 data.tsv, line 1: no tab: \"x\"",
            ),
            (read(0, 0, ""), 0.5, "data.tsv has no examples"),
            (two, 0.0, "the data of a.en and a.de has no examples"),
        ] {
            assert_eq!(read.judge(allowed).unwrap_err().to_string(), message);
        }
    }
}
