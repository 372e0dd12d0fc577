//! Documents and the classes they are of.

use std::path::{Path, PathBuf};

use serde_json::Value;
use zoo_spec::{Printable, UnknownWord};

use super::content::Content;
use super::table::Records;
use super::{ALLOWED_BAD, Read, folders};
use crate::{DataError, Labelled};

/// Where documents and their classes are.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledText {
    path: PathBuf,
    format: Format,
    allowed_bad: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Format {
    /// Lines `label<TAB>text`.
    Tsv,
    /// A table with a line of names first, by the names of label and text, and a delimiter.
    Csv([String; 2], u8),
    /// An object a line, by the names of label and text.
    JsonLines([String; 2]),
    /// A folder for each class, a `.txt` for each document.
    Folders,
}

impl LabelledText {
    fn new(path: impl Into<PathBuf>, format: Format) -> Self {
        Self {
            path: path.into(),
            format,
            allowed_bad: ALLOWED_BAD,
        }
    }

    /// Lines `label<TAB>text`. Further tabs are part of the text.
    pub fn tsv(path: impl Into<PathBuf>) -> Self {
        Self::new(path, Format::Tsv)
    }

    /// A table with commas and a line of column names first: those of the label and of the text.
    /// Fields may be quoted, and then hold delimiters, line ends and doubled quotes. A quote that
    /// would swallow rows is an error.
    pub fn csv(
        path: impl Into<PathBuf>,
        label: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self::new(path, Format::Csv([label.into(), text.into()], b','))
    }

    /// A JSON object a line, with the names of the label's and of the text's field.
    pub fn json_lines(
        path: impl Into<PathBuf>,
        label: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self::new(path, Format::JsonLines([label.into(), text.into()]))
    }

    /// A folder, or a `.zip`, with a folder for each class and a `.txt` (or `.txt.gz`) for
    /// each document.
    pub fn folders(path: impl Into<PathBuf>) -> Self {
        Self::new(path, Format::Folders)
    }

    /// What separates the columns of a table, where it is no comma. Does nothing for other
    /// formats.
    #[must_use]
    pub fn with_delimiter(mut self, character: u8) -> Self {
        if let Format::Csv(_, delimiter) = &mut self.format {
            *delimiter = character;
        }
        self
    }

    /// The share of lines, or documents, that may be bad. Default: 0.01.
    #[must_use]
    pub fn with_allowed_bad(mut self, share: f64) -> Self {
        self.allowed_bad = share;
        self
    }

    /// Reads them. Blanks around a label or a text are not part of it.
    ///
    /// # Errors
    ///
    /// [`DataError::Refused`] if a table has no such column or a quote in it swallows rows,
    /// [`DataError::TooManyBad`] and [`DataError::Empty`]; otherwise what [`DataError`] has for files,
    /// archives and encodings.
    pub fn read(&self) -> Result<Read<Labelled>, DataError> {
        DataError::share("allowed_bad", self.allowed_bad)?;
        let read = match &self.format {
            Format::Tsv => Read::lines(&self.path, tsv_line)?,
            Format::JsonLines([label, text]) => {
                Read::lines(&self.path, |line| json_line(line, label, text))?
            }
            Format::Csv([label, text], delimiter) => csv(&self.path, label, text, *delimiter)?,
            Format::Folders => folders::read(&self.path)?,
        };
        read.judge(self.allowed_bad)
    }
}

/// A label and a text, unless one of them is blank.
pub(super) fn labelled(label: &str, text: &str) -> Result<Labelled, String> {
    match (label.trim(), text.trim()) {
        ("", _) => Err("the label is blank".to_owned()),
        (_, "") => Err("the text is blank".to_owned()),
        (label, text) => Ok(Labelled::new(label, text)),
    }
}

fn tsv_line(line: &str) -> Result<Labelled, String> {
    let (label, text) = line
        .split_once('\t')
        .ok_or("no tab between label and text")?;
    labelled(label, text)
}

fn json_line(line: &str, label: &str, text: &str) -> Result<Labelled, String> {
    // Which line it is of the file is said already.
    let failed = |error: serde_json::Error| {
        let why = error.to_string().replace(" at line 1 ", " at ");
        format!("not JSON ({why})")
    };
    let value: Value = serde_json::from_str(line).map_err(failed)?;
    let object = value.as_object().ok_or("not a JSON object")?;
    let field = |name: &str| {
        object.get(name).ok_or_else(|| {
            let known = object.keys().map(String::as_str);
            let unknown = UnknownWord::new("field", name, known).to_string();
            unknown.replace("\n  ", " ")
        })
    };
    let label = match field(label)? {
        Value::String(label) => label.clone(),
        number @ (Value::Number(_) | Value::Bool(_)) => number.to_string(),
        _ => return Err(format!("\"{label}\" is no text and no number")),
    };
    let text = field(text)?
        .as_str()
        .ok_or_else(|| format!("\"{text}\" is no text"))?;
    labelled(&label, text)
}

fn csv(path: &Path, label: &str, text: &str, delimiter: u8) -> Result<Read<Labelled>, DataError> {
    let file = Content::read(path)?;
    let mut read = Read::of(&file.name);
    let mut records = Records::new(&file.name, &file.text, delimiter);
    let names = records.next()?.map_or(vec![], |first| first.fields);
    if names.iter().all(|name| name.trim().is_empty()) {
        return Err(DataError::Empty { what: file.name });
    }
    let column = |wanted: &str| {
        let all = names.iter().map(|name| name.trim());
        all.clone().position(|name| name == wanted).ok_or_else(|| {
            let unknown = UnknownWord::new("column", wanted, all);
            DataError::Refused(format!("{}, line 1: {unknown}", Printable(&file.name)))
        })
    };
    let [label, text] = [column(label)?, column(text)?];
    while let Some(record) = records.next()? {
        let fields = &record.fields;
        // Programs that end every line with a delimiter add a column without anything in it.
        let is_too_long = fields
            .iter()
            .skip(names.len())
            .any(|it| !it.trim().is_empty());
        let example = match (record.fault, fields.get(label), fields.get(text)) {
            (Some(fault), ..) => Err(fault.to_owned()),
            (None, Some(label), Some(text)) if !is_too_long => labelled(label, text),
            _ => {
                let [count, needed] = [fields.len(), names.len()];
                Err(format!("{count} columns instead of {needed}"))
            }
        };
        let text = example
            .as_ref()
            .map_or_else(|_| fields.join(","), |_| String::new());
        read.add(&file.name, record.line, example, &text);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::Folder;

    /// A file, its labels with their texts, and its bad lines with the reason.
    type Case<'a> = (
        LabelledText,
        &'a [(&'a str, &'a str)],
        &'a [(usize, &'a str)],
    );

    #[test]
    fn good_lines_are_read_and_bad_ones_are_named() {
        let folder = Folder::new();
        let csv = |text: &str| {
            let name = format!("{}.csv", text.len());
            LabelledText::csv(folder.file(&name, text), "y", "x")
        };
        let lines = "{\"y\": \"good\", \"x\": \"一 film\"}\n{\"y\": 2, \"x\": \"b\"}\n\
                     {\"x\": \"c\"}\n[1]\n{\"y\": 1, \"x\": 7}\n{\"y\"\n{\"y\": null, \"x\": \"d\"}\n";
        let cases: [Case<'_>; 5] = [
            (
                LabelledText::tsv(folder.gz("a.txt.gz", b"1\tgood\tfilm\n\nno tab\n2\tbad\n3\t\n")),
                &[("1", "good\tfilm"), ("2", "bad")],
                &[
                    (3, "no tab between label and text"),
                    (5, "the text is blank"),
                ],
            ),
            (
                LabelledText::json_lines(folder.file("a.jsonl", lines), "y", "x"),
                &[("good", "一 film"), ("2", "b")],
                &[
                    (3, "unknown field \"y\": did you mean x? known: x"),
                    (4, "not a JSON object"),
                    (5, "\"x\" is no text"),
                    (6, "not JSON (EOF while parsing an object at column 4)"),
                    (7, "\"y\" is no text and no number"),
                ],
            ),
            (
                csv("id,x,y\n1,\"good,\nreally\",5\n2,alone\n3,\"he said \"\"no\"\"\",1\n"),
                &[("5", "good,\nreally"), ("1", "he said \"no\"")],
                &[(4, "2 columns instead of 3")],
            ),
            // Rows that are too long, but for a column with nothing in it.
            (
                csv("y,x\n1,good, really\n2,bad,\n3,fine, ,\n"),
                &[("2", "bad"), ("3", "fine")],
                &[(2, "3 columns instead of 2")],
            ),
            (
                csv("y;x\nx;one, two\n").with_delimiter(b';'),
                &[("x", "one, two")],
                &[],
            ),
        ];
        for (text, examples, bad) in cases {
            // Nearly all lines may be bad.
            let read = text.with_allowed_bad(0.9).read().unwrap();
            let documents = read.examples.iter().map(|it| (&*it.label, &*it.text));
            assert_eq!(documents.collect::<Vec<_>>(), examples);
            assert_eq!(read.report.first_bad.len(), bad.len());
            for (shown, (line, why)) in read.report.first_bad.iter().zip(bad) {
                assert!(shown.contains(&format!(", line {line}: {why}")), "{shown}");
            }
        }
    }

    #[test]
    fn blank_lines_are_counted_and_too_many_bad_ones_are_an_error() {
        let folder = Folder::new();
        let text = LabelledText::tsv(folder.file("a.tsv", "1\ta\n\nno tab\n"));
        assert!(matches!(text.read(), Err(DataError::TooManyBad { .. })));
        let report = text.with_allowed_bad(0.5).read().unwrap().report;
        assert_eq!((report.kept, report.blank, report.bad), (1, 1, 1));
        assert!(report.first_bad[0].ends_with(": \"no tab\""), "{report}");
    }

    #[test]
    fn tables_that_cannot_be_read_are_errors() {
        let folder = Folder::new();
        let mut rows: Vec<String> = (0..1000).map(|at| format!("{},a film", at % 2)).collect();
        rows[300] = "1,\"a film".to_owned();
        let swallowed = format!("y,x\n{}\n", rows.join("\n"));
        for (table, expected) in [
            (
                "id,reveiw,y\n1,good,5\n",
                ", line 1: unknown column \"x\": did you mean y?\n  known: id, reveiw, y",
            ),
            // One stray quote does not swallow the rest of a file.
            (
                swallowed.as_str(),
                ", line 302: the quote that opens here takes in lines 303 to 322",
            ),
            ("", " has no examples"),
            ("y,x\n", " has no examples"),
        ] {
            let path = folder.file("a.csv", table);
            let said = LabelledText::csv(&path, "y", "x").read();
            let said = said.unwrap_err().to_string();
            let expected = format!("{}{expected}", path.display());
            assert!(said.starts_with(&expected), "{said}");
        }
    }
}
