//! A parsed config in which every key and value has a location.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{ConfigError, Location, Source, syntax_error};

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
        let source = Arc::new(Source::File {
            name: name.to_owned(),
            text: text.to_owned(),
        });
        let location = |span: Range<usize>| Location::new(&source, span);
        let table = DeTable::parse(text).map_err(|error| {
            let location = location(error.span().unwrap_or(0..0));
            syntax_error(&location, &error.message().replace('\n', ", "))
        })?;
        Ok(Self {
            location: location(0..0),
            value: Value::Table(entries(table.get_ref(), &location)),
        })
    }

    /// Parses the value of a flag at a location; a value that is not TOML is a string.
    pub(crate) fn parse_flag(location: Location) -> Self {
        let (text, start) = (location.text(), location.span().start);
        let inside = |inner: Range<usize>| {
            Location::new(&location.source, start + inner.start..start + inner.end)
        };
        let value = match DeValue::parse(text) {
            Ok(value) => from_toml(value.get_ref(), &inside),
            Err(_) => Value::Text(text.to_owned()),
        };
        Self { location, value }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The entry at a dotted path.
    pub(crate) fn find(&self, path: &str) -> Option<&Entry> {
        match path.split_once('.') {
            Some((first, rest)) => self.get(first)?.node.find(rest),
            None => self.get(path),
        }
    }

    /// Sets the value at a path, of which the key is at `location`. A name on the way becomes a table
    /// with that `kind`, so that its keys can be set.
    pub(crate) fn set(&mut self, path: &[String], location: &Location, node: Self) {
        let [first, rest @ ..] = path else {
            *self = node;
            return;
        };
        let entry = |key: &str, node: Self| Entry {
            key: key.to_owned(),
            location: node.location.clone(),
            node,
        };
        match &self.value {
            Value::Table(_) => {}
            Value::Text(_) => self.value = Value::Table(vec![entry("kind", self.clone())]),
            _ => self.value = Value::Table(vec![]),
        }
        let Value::Table(entries) = &mut self.value else {
            return;
        };
        let index = entries.iter().position(|entry| entry.key == *first);
        let index = index.unwrap_or_else(|| {
            let value = Value::Table(vec![]);
            let location = location.clone();
            entries.push(entry(first, Self { location, value }));
            entries.len() - 1
        });
        if rest.is_empty() {
            entries[index].location = location.clone();
        }
        entries[index].node.set(rest, location, node);
    }

    /// Removes the key at a path `section.key`, unless a flag set it.
    pub(crate) fn remove_from_file(&mut self, path: &str) {
        let Some((section, key)) = path.split_once('.') else {
            return;
        };
        let Value::Table(sections) = &mut self.value else {
            return;
        };
        for section in sections.iter_mut().filter(|entry| entry.key == section) {
            if let Value::Table(entries) = &mut section.node.value {
                let is_flag = |entry: &Entry| matches!(&*entry.location.source, Source::Flag(_));
                entries.retain(|entry| entry.key != key || is_flag(entry));
            }
        }
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
    let entries = table.iter().map(|(key, value)| Entry {
        key: key.get_ref().to_string(),
        location: location(key.span()),
        node: node(value, location),
    });
    entries.collect()
}

fn node(value: &Spanned<DeValue<'_>>, location: &impl Fn(Range<usize>) -> Location) -> Node {
    Node {
        location: location(value.span()),
        value: from_toml(value.get_ref(), location),
    }
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
            Value::List(list.iter().map(|value| node(value, location)).collect())
        }
        DeValue::Table(table) => Value::Table(entries(table, location)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_of_keys_and_values() {
        let tree = Node::parse_file("a.toml", "# é\n[run]\nname = \"é\" # x\n\n[b.c]\nd=[1, 2]");
        let tree = tree.expect("valid TOML");
        let name = tree.find("run.name").expect("an entry");
        assert_eq!(name.location.to_string(), "a.toml:3:1");
        assert_eq!(name.node.location.to_string(), "a.toml:3:8");
        let list = tree.find("b.c.d").expect("an entry");
        let Value::List(list) = &list.node.value else {
            panic!("a list");
        };
        assert_eq!(list[1].location.to_string(), "a.toml:6:7");
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
        assert_eq!(last.node.location.line_and_column(), (100_000, 10));
    }
}
