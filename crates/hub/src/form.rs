//! What becomes of a row.

use zoo_spec::UnknownWord;

use crate::{Cell, HubError, Row};

/// What files are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// JSON lines with every field.
    Fields,
    /// JSON lines with every field, of which these are a class and a text.
    Labelled {
        /// The field of the class.
        label: String,
        /// The field of the text.
        text: String,
    },
    /// Columns with a tab between: a text and its translation.
    Pairs {
        /// The field of the text.
        source: String,
        /// The field of its translation.
        target: String,
    },
    /// Running text.
    Text {
        /// The field of the text.
        text: String,
    },
}

/// A row as part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// What is written, with its line's end.
    Written {
        text: String,
        /// Whether tabs or ends of lines became spaces.
        smoothed: bool,
    },
    /// A field that is needed has nothing in it.
    Blank,
}

impl Form {
    /// How the names of its files end.
    pub fn extension(&self) -> &'static str {
        match self {
            Self::Fields | Self::Labelled { .. } => "jsonl",
            Self::Pairs { .. } => "tsv",
            Self::Text { .. } => "txt",
        }
    }

    /// The fields that it needs.
    fn needs(&self) -> Vec<&str> {
        match self {
            Self::Fields => vec![],
            Self::Labelled { label, text } => vec![label, text],
            Self::Pairs { source, target } => vec![source, target],
            Self::Text { text } => vec![text],
        }
    }

    /// The row with this number, counted from 1, of a split.
    pub(crate) fn piece(&self, row: &Row, split: &str, number: usize) -> Result<Piece, HubError> {
        let mut texts = vec![];
        for field in self.needs() {
            let cell = row.get(field).ok_or_else(|| HubError::UnknownField {
                split: split.to_owned(),
                unknown: UnknownWord::new("field", field, row.fields()),
            })?;
            if let Cell::Bytes(bytes) = cell {
                return Err(HubError::NoText {
                    split: split.to_owned(),
                    row: number,
                    field: field.to_owned(),
                    bytes: *bytes,
                });
            }
            match cell.text() {
                Some(text) if !text.trim().is_empty() => texts.push(text),
                _ => return Ok(Piece::Blank),
            }
        }
        let written = |text| Piece::Written {
            text,
            smoothed: false,
        };
        Ok(match (self, texts.as_slice()) {
            (Self::Pairs { .. }, [source, target]) => {
                // A tab or an end of a line would end the text for whoever reads the file.
                let smooth =
                    |text: &str| text.replace("\r\n", " ").replace(['\t', '\n', '\r'], " ");
                let line = [smooth(source.trim()), smooth(target.trim())];
                Piece::Written {
                    smoothed: line[0] != source.trim() || line[1] != target.trim(),
                    text: line.join("\t") + "\n",
                }
            }
            (Self::Text { .. }, [text]) => written(format!("{}\n", text.trim_end_matches('\n'))),
            _ => {
                // Cells are text and numbers: there is nothing that JSON has not.
                let json = serde_json::to_string(row).unwrap_or_default();
                written(json + "\n")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(de: Cell, en: Cell) -> Row {
        let cell = |name: &str, cell| (name.to_owned(), cell);
        Row(vec![
            cell("de", de),
            cell("en", en),
            cell("n", Cell::Whole(3)),
        ])
    }

    fn text(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }

    fn written(text: &str, smoothed: bool) -> Piece {
        let text = text.to_owned();
        Piece::Written { text, smoothed }
    }

    #[test]
    fn pairs_are_one_line_each() {
        let form = Form::Pairs {
            source: "de".to_owned(),
            target: "en".to_owned(),
        };
        let piece = |row: &Row| form.piece(row, "train", 1).unwrap();
        assert_eq!(
            piece(&row(text("gut "), text("good"))),
            written("gut\tgood\n", false)
        );
        assert_eq!(
            piece(&row(text("a\r\nb"), text("a\tb"))),
            written("a b\ta b\n", true)
        );
        assert_eq!(piece(&row(text("gut"), Cell::Missing)), Piece::Blank);
        assert_eq!(piece(&row(text(" \n"), text("good"))), Piece::Blank);
    }

    #[test]
    fn running_text_keeps_its_lines() {
        let form = Form::Text {
            text: "en".to_owned(),
        };
        let piece = form.piece(&row(Cell::Missing, text("a\n\n b\n\n")), "train", 1);
        assert_eq!(piece.unwrap(), written("a\n\n b\n", false));
    }

    #[test]
    fn fields_that_are_not_there_and_pictures_are_told() {
        let form = Form::Labelled {
            label: "n".to_owned(),
            text: "ne".to_owned(),
        };
        let said = form.piece(&row(text("a"), text("b")), "dev", 1);
        let said = said.unwrap_err().to_string();
        assert_eq!(
            said,
            "split dev: unknown field \"ne\": did you mean de?\n  known: de, en, n"
        );
        let form = Form::Text {
            text: "de".to_owned(),
        };
        let said = form.piece(&row(Cell::Bytes(9), text("b")), "dev", 4);
        let said = said.unwrap_err().to_string();
        assert!(
            said.starts_with("split dev, row 4: de is 9 bytes"),
            "{said}"
        );
    }
}
