//! A row of a table nobody knows the columns of.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The column that counts rows; the database has it, the data set does not.
const COUNTER: &str = "row_id";

/// What one column of one row holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing.
    Missing,
    /// A whole number; also a class, whose name the database does not have, or a yes or no.
    Whole(i64),
    /// Another number.
    Real(f64),
    /// A text.
    Text(String),
    /// So many bytes, which no file of ours holds: a picture, a sound, or a list. Of a list the
    /// import keeps what stood in Python's memory, for texts their addresses alone.
    Bytes(usize),
}

impl Cell {
    /// What it is, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Whole(_) => "whole number",
            Self::Real(_) => "number",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
        }
    }

    /// Its text, or its number as one; nothing where it has none.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Missing | Self::Bytes(_) => None,
            Self::Whole(number) => Some(number.to_string().into()),
            Self::Real(number) => Some(number.to_string().into()),
            Self::Text(text) => Some(text.as_str().into()),
        }
    }
}

/// Cells by the names of their columns, in the order of these.
///
/// What was nested in a data set is not in its database: `translation.en` is a column
/// `translation_en`. As JSON it is an object without the bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Row(pub Vec<(String, Cell)>);

impl Row {
    /// The cell of that column.
    pub fn get(&self, field: &str) -> Option<&Cell> {
        let found = self.0.iter().find(|(name, _)| name == field);
        found.map(|(_, cell)| cell)
    }

    /// The names of its columns.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, cell) in &self.0 {
            match cell {
                Cell::Missing => map.serialize_entry(name, &())?,
                Cell::Whole(number) => map.serialize_entry(name, number)?,
                Cell::Real(number) => map.serialize_entry(name, number)?,
                Cell::Text(text) => map.serialize_entry(name, text)?,
                Cell::Bytes(_) => {}
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = Row;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("columns with names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
        let mut cells = Vec::new();
        while let Some((name, cell)) = map.next_entry::<String, Cell>()? {
            if name != COUNTER {
                cells.push((name, cell));
            }
        }
        Ok(Row(cells))
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = Cell;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text, bytes or nothing")
    }

    fn visit_none<E: Error>(self) -> Result<Cell, E> {
        Ok(Cell::Missing)
    }

    fn visit_unit<E: Error>(self) -> Result<Cell, E> {
        Ok(Cell::Missing)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Cell, E> {
        Ok(Cell::Whole(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Cell, E> {
        // Databases have 64 bits with a sign.
        let number = i64::try_from(number).map_err(E::custom)?;
        Ok(Cell::Whole(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Cell, E> {
        Ok(Cell::Real(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cell, E> {
        Ok(Cell::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Cell, E> {
        Ok(Cell::Text(text))
    }

    // Bytes come one by one.
    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Cell, A::Error> {
        let mut count = 0;
        while bytes.next_element::<u8>()?.is_some() {
            count += 1;
        }
        Ok(Cell::Bytes(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_their_order_and_bytes_are_left_out() {
        let text = r#"{"z": "一", "row_id": 4, "b": [1, 2], "a": null, "n": -1, "x": 0.5}"#;
        let row: Row = serde_json::from_str(text).unwrap();
        assert_eq!(row.fields().collect::<Vec<_>>(), ["z", "b", "a", "n", "x"]);
        assert_eq!(row.get("b"), Some(&Cell::Bytes(2)));
        let written = serde_json::to_string(&row).unwrap();
        assert_eq!(written, r#"{"z":"一","a":null,"n":-1,"x":0.5}"#);
    }
}
