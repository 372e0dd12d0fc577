//! Documents and the classes they are of.

use std::path::{Path, PathBuf};

use serde_json::Value;
use zoo_spec::UnknownWord;

use super::content::Content;
use super::table::Records;
use super::{ALLOWED_BAD, Read, ReadReport, folders};
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
    /// A table with a line of names first.
    Csv {
        label: String,
        text: String,
        delimiter: u8,
    },
    /// An object a line.
    JsonLines { label: String, text: String },
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
    /// would swallow rows is an error: see [`DataError::Quote`].
    pub fn csv(
        path: impl Into<PathBuf>,
        label: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        let (label, text) = (label.into(), text.into());
        let delimiter = b',';
        Self::new(
            path,
            Format::Csv {
                label,
                text,
                delimiter,
            },
        )
    }

    /// A JSON object a line, with the names of the label's and of the text's field.
    pub fn json_lines(
        path: impl Into<PathBuf>,
        label: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        let (label, text) = (label.into(), text.into());
        Self::new(path, Format::JsonLines { label, text })
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
        if let Format::Csv { delimiter, .. } = &mut self.format {
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
    /// [`DataError::Column`] if a table has no such column, [`DataError::Quote`] if a quote in it
    /// swallows rows, [`DataError::TooManyBad`] and [`DataError::Empty`]; otherwise what [`DataError`] has for files, archives and encodings.
    pub fn read(&self) -> Result<Read<Labelled>, DataError> {
        DataError::share("allowed_bad", self.allowed_bad)?;
        let (examples, report) = match &self.format {
            Format::Tsv => lines(&self.path, tsv_line)?,
            Format::JsonLines { label, text } => {
                lines(&self.path, |line| json_line(line, label, text))?
            }
            Format::Csv {
                label,
                text,
                delimiter,
            } => csv(&self.path, label, text, *delimiter)?,
            Format::Folders => folders::read(&self.path)?,
        };
        let report = report.judge(self.allowed_bad)?;
        Ok(Read { examples, report })
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

/// An example a line.
fn lines(
    path: &Path,
    parse: impl Fn(&str) -> Result<Labelled, String>,
) -> Result<(Vec<Labelled>, ReadReport), DataError> {
    let file = Content::read(path)?;
    let mut report = ReadReport::of(&file.name);
    let mut examples = vec![];
    for (at, line) in file.text.lines().enumerate() {
        if line.trim().is_empty() {
            report.blank += 1;
            continue;
        }
        match parse(line) {
            Ok(example) => examples.push(example),
            Err(why) => report.note(&file.name, at + 1, why, line),
        }
    }
    report.kept = examples.len();
    Ok((examples, report))
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

fn csv(
    path: &Path,
    label: &str,
    text: &str,
    delimiter: u8,
) -> Result<(Vec<Labelled>, ReadReport), DataError> {
    let file = Content::read(path)?;
    let mut report = ReadReport::of(&file.name);
    let mut records = Records::new(&file.name, &file.text, delimiter);
    let names = records.next()?.map_or(vec![], |first| first.fields);
    if names.iter().all(|name| name.trim().is_empty()) {
        return Err(DataError::Empty { what: file.name });
    }
    let column = |wanted: &str| {
        names
            .iter()
            .position(|name| name.trim() == wanted)
            .ok_or_else(|| DataError::Column {
                name: file.name.clone(),
                unknown: UnknownWord::new("column", wanted, names.iter().map(|name| name.trim())),
            })
    };
    let [label, text] = [column(label)?, column(text)?];
    let mut examples = vec![];
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
            _ => Err(format!(
                "{} columns instead of {}",
                fields.len(),
                names.len()
            )),
        };
        match example {
            Ok(example) => examples.push(example),
            Err(why) => report.note(&file.name, record.line, why, &fields.join(",")),
        }
    }
    report.kept = examples.len();
    Ok((examples, report))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::Folder;

    #[test]
    fn tab_separated_lines() {
        let folder = Folder::new();
        let path = folder.gz("a.txt.gz", b"1\tgood\tfilm\n\nno tab\n2\tbad\n3\t\n");
        let text = LabelledText::tsv(&path);
        let read = text.clone().with_allowed_bad(0.5).read().unwrap();
        assert_eq!(
            read.examples,
            [Labelled::new("1", "good\tfilm"), Labelled::new("2", "bad")]
        );
        assert_eq!((read.report.blank, read.report.bad), (1, 2));
        let bad = &read.report.first_bad;
        assert_eq!(
            (bad[0].line, bad[0].why.as_str()),
            (3, "no tab between label and text")
        );
        assert_eq!((bad[1].line, bad[1].why.as_str()), (5, "the text is blank"));
        assert!(matches!(text.read(), Err(DataError::TooManyBad { .. })));
    }

    #[test]
    fn tables_by_the_names_of_their_columns() {
        let folder = Folder::new();
        let table = "id,review,stars\n1,\"good,\nreally\",5\n2,alone\n3,\"he said \"\"no\"\"\",1\n";
        let path = folder.file("a.csv", table.as_bytes());
        let read = LabelledText::csv(&path, "stars", "review")
            .with_allowed_bad(0.5)
            .read()
            .unwrap();
        assert_eq!(
            read.examples,
            [
                Labelled::new("5", "good,\nreally"),
                Labelled::new("1", "he said \"no\"")
            ]
        );
        let bad = &read.report.first_bad[0];
        assert_eq!((bad.line, bad.why.as_str()), (4, "2 columns instead of 3"));
        assert_eq!(bad.excerpt, "2,alone");

        let error = LabelledText::csv(&path, "stars", "reveiw")
            .read()
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{}, line 1: unknown column \"reveiw\": did you mean review?\n  \
                 known: id, review, stars",
                path.display()
            )
        );
    }

    #[test]
    fn one_stray_quote_does_not_swallow_the_rest_of_a_file() {
        let folder = Folder::new();
        let mut rows: Vec<String> = (0..1000).map(|at| format!("{},a film", at % 2)).collect();
        rows[300] = "1,\"a film".to_owned();
        let path = folder.file("a.csv", format!("y,x\n{}\n", rows.join("\n")).as_bytes());
        let error = LabelledText::csv(&path, "y", "x").read().unwrap_err();
        assert!(
            error.to_string().starts_with(&format!(
                "{}, line 302: the quote that opens here takes in lines 303 to 322",
                path.display()
            )),
            "{error}"
        );
    }

    #[test]
    fn rows_that_are_too_long_are_bad() {
        let folder = Folder::new();
        let path = folder.file("a.csv", b"y,x\n1,good, really\n2,bad,\n3,fine, ,\n");
        let read = LabelledText::csv(path, "y", "x")
            .with_allowed_bad(0.5)
            .read();
        let read = read.unwrap();
        assert_eq!(
            read.examples,
            [Labelled::new("2", "bad"), Labelled::new("3", "fine")]
        );
        let bad = &read.report.first_bad[0];
        assert_eq!((bad.line, bad.why.as_str()), (2, "3 columns instead of 2"));
    }

    #[test]
    fn tables_with_another_delimiter_and_without_lines() {
        let folder = Folder::new();
        let path = folder.file("a.csv", b"class;text\nx;one, two\n");
        let read = LabelledText::csv(path, "class", "text")
            .with_delimiter(b';')
            .read();
        assert_eq!(read.unwrap().examples, [Labelled::new("x", "one, two")]);
        for (name, bytes) in [
            ("empty.csv", b"".as_slice()),
            ("names.csv", b"class,text\n"),
        ] {
            let path = folder.file(name, bytes);
            let error = LabelledText::csv(path, "class", "text").read().unwrap_err();
            assert!(error.to_string().ends_with("has no examples"), "{error}");
        }
    }

    #[test]
    fn json_objects_a_line() {
        let folder = Folder::new();
        let lines = "{\"y\": \"good\", \"x\": \"一 film\"}\n{\"y\": 2, \"x\": \"b\"}\n\
                     {\"x\": \"c\"}\n[1]\n{\"y\": 1, \"x\": 7}\n{\"y\"\n{\"y\": null, \"x\": \"d\"}\n";
        let path = folder.file("a.jsonl", lines.as_bytes());
        let read = LabelledText::json_lines(path, "y", "x")
            .with_allowed_bad(0.9)
            .read()
            .unwrap();
        assert_eq!(
            read.examples,
            [Labelled::new("good", "一 film"), Labelled::new("2", "b")]
        );
        let why: Vec<&str> = read
            .report
            .first_bad
            .iter()
            .map(|bad| bad.why.as_str())
            .collect();
        assert_eq!(
            why,
            [
                "unknown field \"y\": did you mean x? known: x",
                "not a JSON object",
                "\"x\" is no text",
                "not JSON (EOF while parsing an object at column 4)",
                "\"y\" is no text and no number",
            ]
        );
    }
}
