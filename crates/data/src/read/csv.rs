//! CSV parser that detects stray quotes.
//!
//! - A field that begins with a quote ends at the next quote that is not doubled. Line ends within
//!   it belong to the field.
//! - A quote inside a field that does not begin with one is an ordinary character: `5" pipe`.
//! - Text after a closing quote on the line where that quote opened is a bad record: reading
//!   continues with the next line.
//! - A quote that swallows rows is an error: it is not closed at the end of the file, it is closed
//!   on a later line with text after it (where the next quoted field opens), or it contains
//!   [`RUNAWAY`] consecutive lines that look like rows.

use zoo_spec::Printable;

use crate::DataError;

/// Consecutive lines with exactly the delimiters of a row after which a quoted field is considered
/// a stray quote. A third of the lines of English prose has exactly one comma: the chance of a text
/// of two columns to have that many in a row is one in 10 billion a line.
const RUNAWAY: usize = 20;

/// A row, with the reason if it is malformed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// First line of the record, counted from 1.
    pub(super) line: usize,
    pub(super) fields: Vec<String>,
    pub(super) fault: Option<&'static str>,
}

/// Reader of the records of a text; blank lines are skipped.
pub(super) struct Records<'a> {
    name: &'a str,
    bytes: &'a [u8],
    delimiter: u8,
    position: usize,
    line: usize,
    /// Number of fields of the first record.
    columns: Option<usize>,
}

impl<'a> Records<'a> {
    pub(super) fn new(name: &'a str, text: &'a str, delimiter: u8) -> Self {
        Self {
            name,
            bytes: text.as_bytes(),
            delimiter,
            position: 0,
            line: 1,
            columns: None,
        }
    }

    /// Reads the next record, or `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// [`DataError::Invalid`] for a quote that swallows rows.
    pub(super) fn next(&mut self) -> Result<Option<Record>, DataError> {
        while matches!(self.peek(), Some(b'\n' | b'\r')) {
            self.advance();
        }
        if self.peek().is_none() {
            return Ok(None);
        }
        let mut record = Record {
            line: self.line,
            fields: vec![],
            fault: None,
        };
        loop {
            let mut field = vec![];
            if self.peek() == Some(b'"') {
                self.quoted(&mut field, &mut record.fault)?;
            }
            while let Some(byte) = self.peek().filter(|byte| !self.ends_field(*byte)) {
                field.push(byte);
                self.advance();
            }
            let field = String::from_utf8_lossy(&field).into_owned();
            record.fields.push(field);
            let end = self.peek();
            self.advance();
            if end != Some(self.delimiter) {
                break;
            }
        }
        self.columns.get_or_insert(record.fields.len());
        Ok(Some(record))
    }

    fn quoted(
        &mut self,
        field: &mut Vec<u8>,
        fault: &mut Option<&'static str>,
    ) -> Result<(), DataError> {
        let opened = self.line;
        let name = Printable(self.name);
        let stray = |reason: String| {
            Err(DataError::Invalid(format!(
                "{name}, line {opened}: the quote opened here {reason}\n  help: remove or close it; \
                 inside a quoted field, double a quote (\"\"). Use JSON lines for texts that \
                 contain tables"
            )))
        };
        self.advance();
        // Only whole lines count, since the first line is part of a row anyway.
        let (mut delimiters, mut like_rows) = (0, 0);
        loop {
            let Some(byte) = self.peek() else {
                return stray("is not closed".to_owned());
            };
            self.advance();
            match byte {
                b'"' if self.peek() == Some(b'"') => self.advance(),
                b'"' => break,
                b'\n' => {
                    let is_whole = self.line > opened + 1;
                    let is_like_row = self.columns.is_some_and(|columns| {
                        is_whole && columns > 1 && delimiters == columns - 1
                    });
                    like_rows = if is_like_row { like_rows + 1 } else { 0 };
                    if like_rows == RUNAWAY {
                        let (first, last) = (self.line - RUNAWAY, self.line - 1);
                        return stray(format!(
                            "swallows lines {first} to {last}, which look like rows"
                        ));
                    }
                    delimiters = 0;
                }
                byte if byte == self.delimiter => delimiters += 1,
                _ => {}
            }
            field.push(byte);
        }
        // Spaces before a delimiter are common and harmless.
        let rest = &self.bytes[self.position..];
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t') && **byte != self.delimiter;
        let next = rest.iter().find(|byte| !blank(byte));
        if next.is_some_and(|byte| !self.ends_field(*byte)) {
            if self.line > opened {
                return stray(format!(
                    "is closed on line {}, where text follows instead of a delimiter",
                    self.line
                ));
            }
            *fault = Some("text after a closing quote");
        }
        Ok(())
    }

    fn ends_field(&self, byte: u8) -> bool {
        byte == self.delimiter || matches!(byte, b'\n' | b'\r')
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn advance(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line += 1;
        }
        self.position += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Record>, String> {
        let mut records = Records::new("a.csv", text, b',');
        let all = std::iter::from_fn(|| records.next().transpose());
        all.map(|record| record.map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn fields_and_lines() {
        for (text, expected) in [
            ("", vec![]),
            ("a,b", vec![(1, vec!["a", "b"])]),
            ("a,b\n", vec![(1, vec!["a", "b"])]),
            (
                "a,b\r\n\r\nc,d\r\n",
                vec![(1, vec!["a", "b"]), (3, vec!["c", "d"])],
            ),
            ("a,\n,b\n", vec![(1, vec!["a", ""]), (2, vec!["", "b"])]),
            (
                "\"a\nb\",c\nd,e",
                vec![(1, vec!["a\nb", "c"]), (3, vec!["d", "e"])],
            ),
            ("\"a\"\"b\",\"\"\n", vec![(1, vec!["a\"b", ""])]),
            ("\"a\" ,b\n", vec![(1, vec!["a ", "b"])]),
            ("5\" pipe,\"x\"\n", vec![(1, vec!["5\" pipe", "x"])]),
            ("a, \"b\"\n", vec![(1, vec!["a", " \"b\""])]),
            ("一,\"二\n三\"\n", vec![(1, vec!["一", "二\n三"])]),
        ] {
            let read = read(text).unwrap();
            assert!(read.iter().all(|record| record.fault.is_none()), "{text:?}");
            let read = read.iter().map(|it| (it.line, it.fields.iter().collect()));
            let read: Vec<(usize, Vec<&String>)> = read.collect();
            assert_eq!(format!("{read:?}"), format!("{expected:?}"), "{text:?}");
        }
    }

    #[test]
    fn quotes_that_swallow_rows_are_errors() {
        let rows = |count: usize| "5,fine\n".repeat(count);
        for (text, line, reason) in [
            (
                format!("y,x\n5,fine\n1,\"stray\n{}", rows(30)),
                3,
                "swallows lines 4 to 23",
            ),
            (format!("y,x\n1,\"stray\n{}", rows(5)), 2, "is not closed"),
            ("y,x\n1,\"".to_owned(), 2, "is not closed"),
            ("y,\"x\n1,2\n".to_owned(), 1, "is not closed"),
            // Closed by the next quoted field.
            (
                format!("y,x\n1,\"stray\n{}2,\"quoted\"\n", rows(5)),
                2,
                "is closed on line 8, where text follows",
            ),
            // Closed by a second stray quote.
            (
                format!("y,x\n1,\"stray\n{}2,stray\"\n5,fine\n", rows(25)),
                2,
                "swallows lines 3 to 22, which look like rows",
            ),
        ] {
            let error = read(&text).unwrap_err();
            let begin = format!("a.csv, line {line}: the quote opened here {reason}");
            assert!(error.starts_with(&begin), "{text:?}: {error}");
        }
    }

    #[test]
    fn long_quoted_texts_are_accepted() {
        let verse = "no comma\none, comma\none, other\ntwo, of, them\n\n".repeat(100);
        let read = read(&format!("y,x\n1,\"{verse}\"\n2,b\n")).unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!(read[1].fields, ["1", verse.as_str()]);
        assert_eq!((read[2].line, read[2].fault), (503, None));
    }

    #[test]
    fn text_after_a_closing_quote_is_one_bad_record() {
        let read = read("y,x\n1,\"he said \"no\" twice\"\n2,\"b\"\n").unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!(read[1].fault, Some("text after a closing quote"));
        assert_eq!((read[2].line, read[2].fault), (3, None));
        assert_eq!(read[2].fields, ["2", "b"]);
    }
}
