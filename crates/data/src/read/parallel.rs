//! Readers of parallel text.

use std::path::{Path, PathBuf};

use zoo_spec::Printable;

use super::content::Content;
use super::{Dataset, MAX_MALFORMED};
use crate::{DataError, Pair};

/// Files of texts and their translations.
#[derive(Debug, Clone, PartialEq)]
pub struct ParallelText {
    source: PathBuf,
    target: Target,
    max_malformed: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Target {
    /// Line N is the translation of line N of the source file.
    File(PathBuf),
    /// Tab-separated columns of the source file, counted from 0; `None` for exactly two columns.
    Columns(Option<[usize; 2]>),
}

impl ParallelText {
    fn new(source: impl Into<PathBuf>, target: Target) -> Self {
        Self {
            source: source.into(),
            target,
            max_malformed: MAX_MALFORMED,
        }
    }

    /// Two files: line N of one is the translation of line N of the other.
    pub fn files(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self::new(source, Target::File(target.into()))
    }

    /// One file of lines `source<TAB>target`.
    pub fn tsv(path: impl Into<PathBuf>) -> Self {
        Self::new(path, Target::Columns(None))
    }

    /// One file of tab-separated lines, with the columns of source and target counted from 0.
    pub fn tsv_columns(path: impl Into<PathBuf>, source: usize, target: usize) -> Self {
        Self::new(path, Target::Columns(Some([source, target])))
    }

    /// Fraction of lines that may be bad. Default: 0.01.
    #[must_use]
    pub fn with_max_malformed(mut self, fraction: f64) -> Self {
        self.max_malformed = fraction;
        self
    }

    /// Reads the pairs. Whitespace around texts is removed.
    ///
    /// # Errors
    ///
    /// [`DataError::Invalid`] if the files have different numbers of lines,
    /// [`DataError::TooManyBad`], [`DataError::Empty`]; otherwise the errors of [`DataError`] for
    /// files, archives and encodings.
    pub fn read(&self) -> Result<Dataset<Pair>, DataError> {
        DataError::fraction("max_malformed", self.max_malformed)?;
        let dataset = match &self.target {
            Target::File(target) => read_files(&self.source, target)?,
            Target::Columns(columns) => {
                Dataset::from_lines(&self.source, |line| parse_columns(line, *columns))?
            }
        };
        dataset.check(self.max_malformed)
    }
}

fn read_files(source: &Path, target: &Path) -> Result<Dataset<Pair>, DataError> {
    let source = Content::read(source)?;
    let target = Content::read(target)?;
    let [source_lines, target_lines] = [&source, &target].map(|file| file.text.lines().count());
    if source_lines != target_lines {
        return Err(DataError::Invalid(format!(
            "{} has {source_lines} lines, but {} has {target_lines}\n  help: line N of one file must \
             be the translation of line N of the other",
            Printable(&source.name),
            Printable(&target.name)
        )));
    }
    let mut dataset = Dataset::new(&source.name);
    dataset.report.files.push(target.name.clone());
    let lines = source.text.lines().zip(target.text.lines());
    for (line, (from, to)) in (1..).zip(lines) {
        let (name, pair, text) = match (from.trim(), to.trim()) {
            ("", "") => {
                dataset.report.blank += 1;
                continue;
            }
            ("", to) => (&source.name, Err("blank line with a translation"), to),
            (from, "") => (&target.name, Err("blank translation"), from),
            (from, to) => (&source.name, Ok(Pair::new(from, to)), from),
        };
        dataset.add(name, line, pair.map_err(str::to_owned), text);
    }
    Ok(dataset)
}

fn parse_columns(line: &str, columns: Option<[usize; 2]>) -> Result<Pair, String> {
    let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
    let count = fields.len();
    let [from, to] = columns.unwrap_or([0, 1]);
    let needed = from.max(to).saturating_add(1);
    if count < needed || columns.is_none() && count > needed {
        return Err(format!("{count} columns instead of {needed}"));
    }
    match [fields[from], fields[to]] {
        ["", _] | [_, ""] => Err("blank column".to_owned()),
        [from, to] => Ok(Pair::new(from, to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::Folder;

    fn read(text: &ParallelText) -> Dataset<Pair> {
        text.clone().with_max_malformed(0.9).read().unwrap()
    }

    #[test]
    fn files_are_read_line_by_line() {
        let folder = Folder::new();
        let en = folder.gz("a.en.gz", b"one\r\n\n two \n");
        let zh = folder.file("a.zh", "一\n\n二");
        let two = ParallelText::files(&en, zh).read().unwrap();
        let expected = [Pair::new("one", "一"), Pair::new("two", "二")];
        assert_eq!(two.examples, expected);
        assert_eq!((two.report.num_examples, two.report.blank), (2, 1));

        let short = folder.file("short.de", "eins\n");
        let error = ParallelText::files(&en, &short).read().unwrap_err();
        let [name, short] = [en, short].map(|path| path.display().to_string());
        let expected = format!(
            "{name} has 3 lines, but {short} has 1\n  help: line N of one file must be the \
             translation of line N of the other"
        );
        assert_eq!(error.to_string(), expected);

        let en = folder.file("a.en", "one\n\nthree\n");
        let de = folder.file("a.de", "eins\nzwei\n\n");
        let text = ParallelText::files(&en, &de);
        let half = read(&text);
        assert_eq!(half.examples, [Pair::new("one", "eins")]);
        assert_eq!(half.report.bad, 2);
        let [en, de] = [en, de].map(|path| path.display().to_string());
        let expected = [
            format!("{en}, line 2: blank line with a translation: \"zwei\""),
            format!("{de}, line 3: blank translation: \"three\""),
        ];
        assert_eq!(half.report.first_bad, expected);
        assert!(matches!(text.read(), Err(DataError::TooManyBad { .. })));
    }

    #[test]
    fn columns_are_the_only_two_or_selected() {
        let folder = Folder::new();
        let path = folder.file("a.tsv", "1\t好\tgood\n\n2\t坏\n3\t大\tbig\n");
        let selected = ParallelText::tsv_columns(&path, 2, 1);
        let named = vec![Pair::new("good", "好"), Pair::new("big", "大")];
        let two = vec![Pair::new("2", "坏")];
        for (text, examples, bad) in [
            (selected, named, "line 3: 2 columns instead of 3"),
            (
                ParallelText::tsv(&path),
                two,
                "line 1: 3 columns instead of 2",
            ),
        ] {
            let read = read(&text);
            assert_eq!(read.examples, examples);
            let report = read.report;
            assert!(report.first_bad[0].contains(bad), "{report}");
            assert_eq!(report.blank, 1);
        }
        // No overflow.
        let read = ParallelText::tsv_columns(&path, 0, usize::MAX).read();
        assert!(matches!(read, Err(DataError::TooManyBad { .. })));
        let error = ParallelText::tsv("a").with_max_malformed(1.0).read();
        let expected = "max_malformed must be at least 0 and below 1, got 1";
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
}
