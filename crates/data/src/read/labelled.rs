//! Readers of labelled documents.

use std::path::{Path, PathBuf};

use serde_json::Value;
use zoo_spec::{Printable, UnknownName};

use super::content::Content;
use super::csv::Records;
use super::{Dataset, MAX_MALFORMED, folders};
use crate::{DataError, Labelled};

/// A file or folder of labelled documents.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledText {
    path: PathBuf,
    format: Format,
    max_malformed: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Format {
    /// Lines `label<TAB>text`.
    Tsv,
    /// CSV with a header: columns of label and text, and the delimiter.
    Csv([String; 2], u8),
    /// One JSON object per line: fields of label and text.
    JsonLines([String; 2]),
    /// One folder per class, one `.txt` file per document.
    Folders,
}

impl LabelledText {
    fn new(path: impl Into<PathBuf>, format: Format) -> Self {
        Self {
            path: path.into(),
            format,
            max_malformed: MAX_MALFORMED,
        }
    }

    /// Lines `label<TAB>text`. Further tabs are part of the text.
    pub fn tsv(path: impl Into<PathBuf>) -> Self {
        Self::new(path, Format::Tsv)
    }

    /// A comma-separated table whose header names the columns of label and text. Fields may be
    /// quoted, and then contain delimiters, line ends and doubled quotes. A stray quote that
    /// swallows rows is an error.
    pub fn csv<S: Into<String>>(path: impl Into<PathBuf>, label: S, text: S) -> Self {
        Self::new(path, Format::Csv([label.into(), text.into()], b','))
    }

    /// JSON lines with fields for label and text.
    pub fn json_lines<S: Into<String>>(path: impl Into<PathBuf>, label: S, text: S) -> Self {
        Self::new(path, Format::JsonLines([label.into(), text.into()]))
    }

    /// A folder or a `.zip` with one folder per class and one `.txt` (or `.txt.gz`) file per
    /// document.
    pub fn folders(path: impl Into<PathBuf>) -> Self {
        Self::new(path, Format::Folders)
    }

    /// Delimiter of a CSV table, if not a comma. Ignored by other formats.
    #[must_use]
    pub fn with_delimiter(mut self, character: u8) -> Self {
        if let Format::Csv(_, delimiter) = &mut self.format {
            *delimiter = character;
        }
        self
    }

    /// Fraction of lines, or documents, that may be bad. Default: 0.01.
    #[must_use]
    pub fn with_max_malformed(mut self, fraction: f64) -> Self {
        self.max_malformed = fraction;
        self
    }

    /// Reads the documents. Whitespace around labels and texts is removed.
    ///
    /// # Errors
    ///
    /// [`DataError::Invalid`] if a column is missing or a quote swallows rows,
    /// [`DataError::TooManyBad`], [`DataError::Empty`]; otherwise the errors of [`DataError`] for
    /// files, archives and encodings.
    pub fn read(&self) -> Result<Dataset<Labelled>, DataError> {
        DataError::fraction("max_malformed", self.max_malformed)?;
        let dataset = match &self.format {
            Format::Tsv => Dataset::from_lines(&self.path, tsv_line)?,
            Format::JsonLines([label, text]) => {
                Dataset::from_lines(&self.path, |line| json_line(line, label, text))?
            }
            Format::Csv(header, delimiter) => csv(&self.path, header, *delimiter)?,
            Format::Folders => folders::read(&self.path)?,
        };
        dataset.check(self.max_malformed)
    }
}

pub(super) fn labelled(label: &str, text: &str) -> Result<Labelled, String> {
    match (label.trim(), text.trim()) {
        ("", _) => Err("the label is blank".to_owned()),
        (_, "") => Err("the text is blank".to_owned()),
        (label, text) => Ok(Labelled::new(label, text)),
    }
}

fn tsv_line(line: &str) -> Result<Labelled, String> {
    let fields = line.split_once('\t');
    let (label, text) = fields.ok_or("no tab between label and text")?;
    labelled(label, text)
}

fn json_line(line: &str, label: &str, text: &str) -> Result<Labelled, String> {
    // The caller reports the line of the file.
    let failed = |error: serde_json::Error| {
        let reason = error.to_string().replace(" at line 1 ", " at ");
        format!("not JSON ({reason})")
    };
    let value: Value = serde_json::from_str(line).map_err(failed)?;
    let object = value.as_object().ok_or("not a JSON object")?;
    let field = |name: &str| {
        object.get(name).ok_or_else(|| {
            let known = object.keys().map(String::as_str);
            let unknown = UnknownName::new("field", name, known).to_string();
            unknown.replace("\n  ", " ")
        })
    };
    let label = match field(label)? {
        Value::String(label) => label.clone(),
        number @ (Value::Number(_) | Value::Bool(_)) => number.to_string(),
        _ => return Err(format!("\"{label}\" is neither a string nor a number")),
    };
    let not_a_string = || format!("\"{text}\" is not a string");
    let text = field(text)?.as_str().ok_or_else(not_a_string)?;
    labelled(&label, text)
}

fn csv(path: &Path, header: &[String; 2], delimiter: u8) -> Result<Dataset<Labelled>, DataError> {
    let file = Content::read(path)?;
    let mut dataset = Dataset::new(&file.name);
    let mut records = Records::new(&file.name, &file.text, delimiter);
    let names = records.next()?.map_or(vec![], |first| first.fields);
    if names.iter().all(|name| name.trim().is_empty()) {
        return Err(DataError::empty(file.name));
    }
    let column = |header: &str| {
        let all = names.iter().map(|name| name.trim());
        all.clone().position(|name| name == header).ok_or_else(|| {
            let unknown = UnknownName::new("column", header, all);
            DataError::Invalid(format!("{}, line 1: {unknown}", Printable(&file.name)))
        })
    };
    let [label, text] = [column(&header[0])?, column(&header[1])?];
    while let Some(record) = records.next()? {
        let fields = &record.fields;
        // A delimiter at the end of a line adds an empty column.
        let mut surplus = fields.iter().skip(names.len());
        let is_too_long = surplus.any(|field| !field.trim().is_empty());
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
        dataset.add(&file.name, record.line, example, &text);
    }
    Ok(dataset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::Folder;

    #[test]
    fn valid_lines_are_read_and_bad_lines_are_reported() {
        let folder = Folder::new();
        let csv = |text: &str| {
            let name = format!("{}.csv", text.len());
            LabelledText::csv(folder.file(&name, text), "y", "x")
        };
        let lines = "{\"y\": \"good\", \"x\": \"一 film\"}\n{\"y\": 2, \"x\": \"b\"}\n\
                     {\"x\": \"c\"}\n[1]\n{\"y\": 1, \"x\": 7}\n{\"y\"\n{\"y\": null, \"x\": \"d\"}\n";
        let tsv = "1\tgood\tfilm\n\nno tab\n2\tbad\n3\t\n";
        for (text, examples, bad) in [
            (
                LabelledText::tsv(folder.gz("a.txt.gz", tsv.as_bytes())),
                vec!["1: good\tfilm", "2: bad"],
                vec![
                    "3: no tab between label and text: \"no tab\"",
                    "5: the text is blank",
                ],
            ),
            (
                LabelledText::json_lines(folder.file("a.jsonl", lines), "y", "x"),
                vec!["good: 一 film", "2: b"],
                vec![
                    "3: unknown field \"y\": did you mean x? known: x",
                    "4: not a JSON object",
                    "5: \"x\" is not a string",
                    "6: not JSON (EOF while parsing an object at column 4)",
                    "7: \"y\" is neither a string nor a number",
                ],
            ),
            (
                csv("id,x,y\n1,\"good,\nreally\",5\n2,alone\n3,\"he error \"\"no\"\"\",1\n"),
                vec!["5: good,\nreally", "1: he error \"no\""],
                vec!["4: 2 columns instead of 3: \"2,alone\""],
            ),
            // Rows that are too long, except for an empty column.
            (
                csv("y,x\n1,good, really\n2,bad,\n3,fine, ,\n"),
                vec!["2: bad", "3: fine"],
                vec!["2: 3 columns instead of 2"],
            ),
            (
                csv("y;x\nx;one, two\n").with_delimiter(b';'),
                vec!["x: one, two"],
                vec![],
            ),
        ] {
            let is_rejected = matches!(text.read(), Err(DataError::TooManyBad(_)));
            assert_eq!(is_rejected, !bad.is_empty());
            let read = text.with_max_malformed(0.9).read().unwrap();
            let documents = read.examples.iter();
            let documents = documents.map(|it| format!("{}: {}", it.label, it.text));
            assert_eq!(documents.collect::<Vec<_>>(), examples);
            let first_bad = read.report.first_bad;
            assert_eq!([read.report.bad, first_bad.len()], [bad.len(); 2]);
            for (shown, expected) in first_bad.iter().zip(bad) {
                assert!(shown.contains(&format!(", line {expected}")), "{shown}");
            }
        }
    }

    #[test]
    fn invalid_tables_are_rejected() {
        let folder = Folder::new();
        let mut rows: Vec<String> = (0..1000).map(|i| format!("{},a film", i % 2)).collect();
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
                ", line 302: the quote opened here swallows lines 303 to 322",
            ),
            ("", " has no examples"),
            ("y,x\n", " has no examples"),
        ] {
            let path = folder.file("a.csv", table);
            let error = LabelledText::csv(&path, "y", "x").read();
            let error = error.unwrap_err().to_string();
            let expected = format!("{}{expected}", path.display());
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
