//! A config as it was written: every value with its place.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::error::{ConfigError, Place, no_toml};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    /// What no key takes: a date, or a number too large to hold.
    Other(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Where the key stands; its value has a place of its own.
    pub(crate) place: Place,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) fn parse_file(name: &str, text: &str) -> Result<Self, ConfigError> {
        let lines = Lines::of(name, text);
        let place = |span: Range<usize>| lines.place(span.start);
        match DeTable::parse(text) {
            Ok(table) => Ok(Self {
                place: place(0..0),
                value: Value::Table(entries(table.get_ref(), &place)),
            }),
            Err(error) => {
                let place = place(error.span().unwrap_or(0..0));
                Err(no_toml(&place, &error.message().replace('\n', ", ")))
            }
        }
    }

    /// Reads a flag's value; what is not TOML is text.
    pub(crate) fn parse_flag(flag: &str, text: &str) -> Self {
        let place = |_: Range<usize>| Place::Flag(flag.to_owned());
        match DeValue::parse(text) {
            Ok(value) => Self {
                place: place(0..0),
                value: of_toml(value.get_ref(), &place),
            },
            Err(_) => Self {
                place: place(0..0),
                value: Value::Text(text.to_owned()),
            },
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// What is under keys with dots between.
    pub(crate) fn find(&self, path: &str) -> Option<&Entry> {
        let (first, rest) = match path.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        let entry = self.get(first)?;
        match rest {
            Some(rest) => entry.node.find(rest),
            None => Some(entry),
        }
    }

    /// Puts a value under a key, in a table or instead of what there was. A word becomes a
    /// table with it as `kind`, so that its sizes can be set.
    pub(crate) fn set(&mut self, path: &[String], node: Self) {
        let [first, rest @ ..] = path else {
            *self = node;
            return;
        };
        let place = node.place.clone();
        if !matches!(self.value, Value::Table(_)) {
            let word = std::mem::replace(&mut self.value, Value::Table(vec![]));
            if let (Value::Text(_), Value::Table(entries)) = (&word, &mut self.value) {
                entries.push(Entry {
                    key: "kind".to_owned(),
                    place: self.place.clone(),
                    node: Self {
                        place: self.place.clone(),
                        value: word,
                    },
                });
            }
        }
        let Value::Table(entries) = &mut self.value else {
            return;
        };
        let at = entries.iter().position(|entry| entry.key == *first);
        let at = at.unwrap_or_else(|| {
            entries.push(Entry {
                key: first.clone(),
                place: place.clone(),
                node: Self {
                    place: place.clone(),
                    value: Value::Table(vec![]),
                },
            });
            entries.len() - 1
        });
        if rest.is_empty() {
            entries[at].place = place;
        }
        entries[at].node.set(rest, node);
    }

    /// What is there, as it is said in an error.
    pub(crate) fn found(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("{text:?}"),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Flag(flag) => flag.to_string(),
            Value::Other(text) => text.clone(),
            Value::List(list) => {
                let found: Vec<_> = list.iter().map(Self::found).collect();
                format!("[{}]", found.join(", "))
            }
            Value::Table(_) => "a table".to_owned(),
        }
    }
}

fn entries(table: &DeTable<'_>, place: &impl Fn(Range<usize>) -> Place) -> Vec<Entry> {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| Entry {
        key: AsRef::<str>::as_ref(key.get_ref()).to_owned(),
        place: place(key.span()),
        node: Node {
            place: place(value.span()),
            value: of_toml(value.get_ref(), place),
        },
    };
    table.iter().map(entry).collect()
}

fn of_toml(value: &DeValue<'_>, place: &impl Fn(Range<usize>) -> Place) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Other(number.as_str().to_owned()),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(_) => Value::Other(number.as_str().to_owned()),
        },
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(date) => Value::Other(date.to_string()),
        DeValue::Array(list) => {
            let node = |value: &toml::Spanned<DeValue<'_>>| Node {
                place: place(value.span()),
                value: of_toml(value.get_ref(), place),
            };
            Value::List(list.iter().map(node).collect())
        }
        DeValue::Table(table) => Value::Table(entries(table, place)),
    }
}

/// A text by its lines, which are looked for once: a value asks for its place, and there may
/// be as many as there are lines.
struct Lines<'a> {
    name: &'a str,
    text: &'a str,
    /// The byte that each line begins with.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(name: &'a str, text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        let starts = std::iter::once(0).chain(ends).collect();
        Self { name, text, starts }
    }

    fn place(&self, byte: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = self.starts[line - 1];
        let before = self.text.get(start..byte).unwrap_or(&self.text[start..]);
        Place::File {
            name: self.name.to_owned(),
            line,
            column: before.chars().count() + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_place() {
        let tree = Node::parse_file("a.toml", "# é\n[run]\nname = \"é\" # x\n\n[b.c]\nd=[1, 2]");
        let tree = tree.expect("it is TOML");
        let place = |line, column| Place::File {
            name: "a.toml".to_owned(),
            line,
            column,
        };
        let name = tree.find("run.name").expect("it is there");
        assert_eq!(
            (&name.place, &name.node.place),
            (&place(3, 1), &place(3, 8))
        );
        let list = tree.find("b.c.d").expect("it is there");
        let Value::List(list) = &list.node.value else {
            panic!("a list");
        };
        assert_eq!(list[1].place, place(6, 7));
    }

    #[test]
    fn the_mark_put_first_is_not_toml() {
        let tree = Node::parse_file("a.toml", "\u{feff}[run]\nname = \"a\"").expect("it is TOML");
        assert!(tree.find("run.name").is_some());
    }

    #[test]
    fn a_long_file_is_read_at_once() {
        let text: String = (0..100_000).map(|at| format!("k{at} = 1\n")).collect();
        let tree = Node::parse_file("a.toml", &text).expect("it is TOML");
        let last = tree.find("k99999").expect("it is there");
        let Place::File { line, column, .. } = last.node.place else {
            panic!("in the file");
        };
        assert_eq!((line, column), (100_000, 10));
    }
}
