//! A parsed config in which every key and value has a location.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::error::{ConfigError, Location, syntax_error};

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) location: Location,
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    /// A value that no key accepts: a date, or an integer that overflows `i64`.
    Other(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Location of the key; its value has another.
    pub(crate) location: Location,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) fn parse_file(name: &str, text: &str) -> Result<Self, ConfigError> {
        let lines = Lines::new(name, text);
        let location = |span: Range<usize>| lines.location(span.start);
        match DeTable::parse(text) {
            Ok(table) => Ok(Self {
                location: location(0..0),
                value: Value::Table(entries(table.get_ref(), &location)),
            }),
            Err(error) => {
                let location = location(error.span().unwrap_or(0..0));
                Err(syntax_error(
                    &location,
                    &error.message().replace('\n', ", "),
                ))
            }
        }
    }

    /// Parses the value of a flag; a value that is not TOML is a string.
    pub(crate) fn parse_flag(flag: &str, text: &str) -> Self {
        let location = |_: Range<usize>| Location::Flag(flag.to_owned());
        match DeValue::parse(text) {
            Ok(value) => Self {
                location: location(0..0),
                value: from_toml(value.get_ref(), &location),
            },
            Err(_) => Self {
                location: location(0..0),
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

    /// The entry at a dotted path.
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

    /// Sets the value at a path. A name on the way becomes a table with that `kind`, so that its keys
    /// can be set.
    pub(crate) fn set(&mut self, path: &[String], node: Self) {
        let [first, rest @ ..] = path else {
            *self = node;
            return;
        };
        let location = node.location.clone();
        if !matches!(self.value, Value::Table(_)) {
            let name = std::mem::replace(&mut self.value, Value::Table(vec![]));
            if let (Value::Text(_), Value::Table(entries)) = (&name, &mut self.value) {
                entries.push(Entry {
                    key: "kind".to_owned(),
                    location: self.location.clone(),
                    node: Self {
                        location: self.location.clone(),
                        value: name,
                    },
                });
            }
        }
        let Value::Table(entries) = &mut self.value else {
            return;
        };
        let index = entries.iter().position(|entry| entry.key == *first);
        let index = index.unwrap_or_else(|| {
            entries.push(Entry {
                key: first.clone(),
                location: location.clone(),
                node: Self {
                    location: location.clone(),
                    value: Value::Table(vec![]),
                },
            });
            entries.len() - 1
        });
        if rest.is_empty() {
            entries[index].location = location;
        }
        entries[index].node.set(rest, node);
    }

    /// The value, for an error message.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("{text:?}"),
            Value::Integer(value) => value.to_string(),
            Value::Float(value) => format!("{value:?}"),
            Value::Bool(value) => value.to_string(),
            Value::Other(text) => text.clone(),
            Value::List(list) => {
                let items: Vec<_> = list.iter().map(Self::describe).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Table(_) => "a table".to_owned(),
        }
    }
}

fn entries(table: &DeTable<'_>, location: &impl Fn(Range<usize>) -> Location) -> Vec<Entry> {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| Entry {
        key: AsRef::<str>::as_ref(key.get_ref()).to_owned(),
        location: location(key.span()),
        node: Node {
            location: location(value.span()),
            value: from_toml(value.get_ref(), location),
        },
    };
    table.iter().map(entry).collect()
}

fn from_toml(value: &DeValue<'_>, location: &impl Fn(Range<usize>) -> Location) -> Value {
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
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(date) => Value::Other(date.to_string()),
        DeValue::Array(list) => {
            let node = |value: &toml::Spanned<DeValue<'_>>| Node {
                location: location(value.span()),
                value: from_toml(value.get_ref(), location),
            };
            Value::List(list.iter().map(node).collect())
        }
        DeValue::Table(table) => Value::Table(entries(table, location)),
    }
}

/// Line starts of a text, computed once for the locations of all values.
struct Lines<'a> {
    name: &'a str,
    text: &'a str,
    /// Byte offset of each line.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(name: &'a str, text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        let starts = std::iter::once(0).chain(ends).collect();
        Self { name, text, starts }
    }

    fn location(&self, byte: usize) -> Location {
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = self.starts[line - 1];
        let before = self.text.get(start..byte).unwrap_or(&self.text[start..]);
        Location::File {
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
    fn locations_of_keys_and_values() {
        let tree = Node::parse_file("a.toml", "# é\n[run]\nname = \"é\" # x\n\n[b.c]\nd=[1, 2]");
        let tree = tree.expect("valid TOML");
        let location = |line, column| Location::File {
            name: "a.toml".to_owned(),
            line,
            column,
        };
        let name = tree.find("run.name").expect("an entry");
        assert_eq!(
            (&name.location, &name.node.location),
            (&location(3, 1), &location(3, 8))
        );
        let list = tree.find("b.c.d").expect("an entry");
        let Value::List(list) = &list.node.value else {
            panic!("a list");
        };
        assert_eq!(list[1].location, location(6, 7));
    }

    #[test]
    fn byte_order_mark_is_skipped() {
        let tree = Node::parse_file("a.toml", "\u{feff}[run]\nname = \"a\"").expect("valid TOML");
        assert!(tree.find("run.name").is_some());
    }

    #[test]
    fn long_files_parse_in_linear_time() {
        let text: String = (0..100_000).map(|i| format!("k{i} = 1\n")).collect();
        let tree = Node::parse_file("a.toml", &text).expect("valid TOML");
        let last = tree.find("k99999").expect("an entry");
        let Location::File { line, column, .. } = last.node.location else {
            panic!("a location in the file");
        };
        assert_eq!((line, column), (100_000, 10));
    }
}
