//! Whether every key is known, in its place, and of the right type and range.
//!
//! What comes out has one form for each value, whatever was written: a word that may have
//! sizes is a table with its `kind`, and other names of a word are the word.

use toml::{Table, Value as Toml};
use zoo_spec::{BackendWord, UnknownWord};

use crate::error::{Mistake, Place, Problem};
use crate::keys::{Body, Choice, Key, Presence, Section, UsualKind, Values, Variant};
use crate::sections::SECTIONS;
use crate::tree::{Entry, Node, Value};

/// The file as a table that the structs can be read from, and what is wrong with it.
pub(crate) fn check_shape(tree: &Node) -> (Table, Vec<Mistake>) {
    let mut reader = Reader { mistakes: vec![] };
    let table = reader.file(tree);
    (table, reader.mistakes)
}

struct Reader {
    mistakes: Vec<Mistake>,
}

/// A table that is being read: what it is called, and what chose its keys.
struct Within<'a> {
    /// `model`, or `model.attention`.
    path: &'a str,
    /// The kind that was chosen, and all there are.
    kind: Option<(&'static Variant, &'static [Variant])>,
}

impl Reader {
    fn mistake(&mut self, place: &Place, problem: Problem) {
        let place = place.clone();
        self.mistakes.push(Mistake { place, problem });
    }

    fn wrong(&mut self, node: &Node, key: &str, allowed: impl Into<String>) -> Option<Toml> {
        let problem = Problem::Value {
            key: key.to_owned(),
            allowed: allowed.into(),
            found: node.found(),
        };
        self.mistake(&node.place, problem);
        None
    }

    fn file(&mut self, tree: &Node) -> Table {
        for entry in entries(tree) {
            if !SECTIONS.iter().any(|section| section.name == entry.key) {
                let names = SECTIONS.iter().map(|section| section.name);
                let problem = Problem::UnknownSection {
                    unknown: UnknownWord::new("section", &entry.key, names),
                    key_of: section_with(&entry.key, None),
                };
                self.mistake(&entry.place, problem);
            }
        }
        let data = tree.find("data.kind").map(|entry| &entry.node.value);
        let data = match data {
            Some(Value::Text(kind)) => kind.clone(),
            _ => String::new(),
        };
        let empty = Node {
            place: tree.place.clone(),
            value: Value::Table(vec![]),
        };
        let mut table = Table::new();
        for section in SECTIONS {
            let node = tree.get(section.name).map_or(&empty, |entry| &entry.node);
            if !matches!(node.value, Value::Table(_)) {
                self.wrong(node, section.name, format!("a section: [{}]", section.name));
                continue;
            }
            if let Some(read) = self.section(section, node, &data) {
                table.insert(section.name.to_owned(), Toml::Table(read));
            }
        }
        table
    }

    fn section(&mut self, section: &'static Section, node: &Node, data: &str) -> Option<Table> {
        let path = section.name;
        match &section.body {
            Body::Keys(keys) => Some(self.table(node, keys, &Within { path, kind: None })),
            Body::Kinds(kinds, usual) => {
                let kind = match (node.get("kind"), usual) {
                    (Some(entry), _) => self.kind(&entry.node, path, kinds)?,
                    (None, UsualKind::Word(word)) => Variant::named(kinds, word)?,
                    (None, UsualKind::OfData(of_data)) => Variant::named(kinds, of_data(data))?,
                    (None, UsualKind::Required) => {
                        let problem = Problem::Missing {
                            key: format!("{path}.kind"),
                            allowed: one_of(kinds),
                        };
                        self.mistake(&node.place, problem);
                        return None;
                    }
                };
                Some(self.kind_table(node, path, kind, kinds))
            }
        }
    }

    fn kind_table(
        &mut self,
        node: &Node,
        path: &str,
        kind: &'static Variant,
        kinds: &'static [Variant],
    ) -> Table {
        let within = Within {
            path,
            kind: Some((kind, kinds)),
        };
        let mut table = self.table(node, kind.keys, &within);
        table.insert("kind".to_owned(), Toml::String(kind.word.to_owned()));
        table
    }

    fn kind(
        &mut self,
        node: &Node,
        path: &str,
        kinds: &'static [Variant],
    ) -> Option<&'static Variant> {
        let key = format!("{path}.kind");
        match &node.value {
            Value::Text(word) => self.named(node, &key, word, kinds),
            _ => {
                self.wrong(node, &key, one_of(kinds));
                None
            }
        }
    }

    fn named(
        &mut self,
        node: &Node,
        key: &str,
        word: &str,
        variants: &'static [Variant],
    ) -> Option<&'static Variant> {
        let found = Variant::named(variants, word);
        if found.is_none() {
            let problem = Problem::UnknownWord {
                key: key.to_owned(),
                unknown: UnknownWord::new("word", word, Variant::words(variants)),
            };
            self.mistake(&node.place, problem);
        }
        found
    }

    fn table(&mut self, node: &Node, keys: &'static [Key], within: &Within<'_>) -> Table {
        let mut table = Table::new();
        for entry in entries(node) {
            if entry.key == "kind" && within.kind.is_some() {
                continue;
            }
            let Some(key) = keys.iter().find(|key| key.name == entry.key) else {
                let problem = unknown_key(entry, keys, within);
                self.mistake(&entry.place, problem);
                continue;
            };
            let name = format!("{}.{}", within.path, key.name);
            if let Some(value) = self.value(&entry.node, &name, &key.values) {
                table.insert(key.name.to_owned(), value);
            }
        }
        for key in keys {
            if matches!(key.presence, Presence::Required) && node.get(key.name).is_none() {
                let problem = Problem::Missing {
                    key: format!("{}.{}", within.path, key.name),
                    allowed: allowed(&key.values),
                };
                self.mistake(&node.place, problem);
            }
        }
        table
    }

    fn value(&mut self, node: &Node, key: &str, values: &Values) -> Option<Toml> {
        let is_path = |node: &Node| matches!(&node.value, Value::Text(path) if !path.is_empty());
        match (values, &node.value) {
            (Values::Count { least, most }, Value::Integer(n)) if (least..=most).contains(&n) => {
                Some(Toml::Integer(*n))
            }
            (Values::Number(range), Value::Integer(n)) if range.contains(*n as f64) => {
                Some(Toml::Float(*n as f64))
            }
            (Values::Number(range), Value::Float(x)) if range.contains(*x) => Some(Toml::Float(*x)),
            (Values::Flag, Value::Flag(flag)) => Some(Toml::Boolean(*flag)),
            (Values::Text, Value::Text(text)) => Some(Toml::String(text.clone())),
            (Values::Path | Values::Paths, Value::Text(path)) if is_path(node) => {
                Some(Toml::String(path.clone()))
            }
            (Values::Paths, Value::List(list)) if list.len() == 2 && list.iter().all(is_path) => {
                list_of(list)
            }
            (Values::Words(words), Value::Text(word)) => {
                let word = self.named(node, key, word, words)?.word;
                Some(Toml::String(word.to_owned()))
            }
            (Values::Choice(choice), Value::Text(word)) => {
                let kind = self.named(node, key, word, choice.variants)?.word;
                let kind = ("kind".to_owned(), Toml::String(kind.to_owned()));
                Some(Toml::Table(Table::from_iter([kind])))
            }
            (Values::Choice(choice), Value::Table(_)) => self.choice(node, key, choice),
            (Values::Backend, Value::Text(word)) => match word.parse::<BackendWord>() {
                Ok(word) => Some(Toml::String(word.to_string())),
                Err(error) => {
                    let (key, why) = (key.to_owned(), error.to_string());
                    self.mistake(&node.place, Problem::Misfit { key, why });
                    None
                }
            },
            (Values::Devices, Value::List(list)) if list.iter().all(is_count) => list_of(list),
            _ => self.wrong(node, key, allowed(values)),
        }
    }

    fn choice(&mut self, node: &Node, key: &str, choice: &'static Choice) -> Option<Toml> {
        let Some(entry) = node.get("kind") else {
            let problem = Problem::Missing {
                key: format!("{key}.kind"),
                allowed: one_of(choice.variants),
            };
            self.mistake(&node.place, problem);
            return None;
        };
        let kind = self.kind(&entry.node, key, choice.variants)?;
        Some(Toml::Table(self.kind_table(
            node,
            key,
            kind,
            choice.variants,
        )))
    }
}

fn entries(node: &Node) -> &[Entry] {
    match &node.value {
        Value::Table(entries) => entries,
        _ => &[],
    }
}

fn is_count(node: &Node) -> bool {
    matches!(node.value, Value::Integer(n) if n >= 0)
}

fn list_of(list: &[Node]) -> Option<Toml> {
    let item = |node: &Node| match &node.value {
        Value::Text(text) => Some(Toml::String(text.clone())),
        Value::Integer(number) => Some(Toml::Integer(*number)),
        _ => None,
    };
    list.iter()
        .map(item)
        .collect::<Option<_>>()
        .map(Toml::Array)
}

/// A key that the chosen table does not have: another kind may.
fn unknown_key(entry: &Entry, keys: &'static [Key], within: &Within<'_>) -> Problem {
    let known: Vec<_> = keys.iter().map(|key| key.name).collect();
    let has_it = |kind: &&Variant| kind.keys.iter().any(|key| key.name == entry.key);
    let (kind, kinds) = match within.kind {
        Some((kind, kinds)) => (Some(kind), kinds),
        None => (None, [].as_slice()),
    };
    let of: Vec<_> = kinds.iter().filter(has_it).map(|kind| kind.word).collect();
    let path = within.path;
    match kind {
        Some(kind) if !of.is_empty() => Problem::OtherKind {
            key: format!("{path}.{}", entry.key),
            of,
            chooser: format!("{path}.kind"),
            chosen: kind.word,
            known,
        },
        _ => {
            let kind = kind.map_or_else(String::new, |kind| format!(" of kind {}", kind.word));
            let known = match within.kind {
                Some(_) => [known, vec!["kind"]].concat(),
                None => known,
            };
            Problem::UnknownKey {
                table: format!("[{path}]{kind}"),
                unknown: UnknownWord::new("key", &entry.key, known),
                key_of: section_with(&entry.key, Some(path)),
            }
        }
    }
}

/// A section that has a key of this name, other than the one it was written in.
fn section_with(key: &str, except: Option<&str>) -> Option<&'static str> {
    let has_it = |section: &&Section| {
        let mut tables = section.tables().into_iter();
        tables.any(|(_, keys)| keys.iter().any(|other| other.name == key))
    };
    let others = SECTIONS
        .iter()
        .filter(|section| Some(section.name) != except);
    let mut with_it = others.filter(has_it);
    with_it.next().map(|section| section.name)
}

fn one_of(variants: &[Variant]) -> String {
    let words: Vec<_> = variants.iter().map(|variant| variant.word).collect();
    format!("one of {}", words.join(", "))
}

/// What a key may be, in words.
pub(crate) fn allowed(values: &Values) -> String {
    match values {
        Values::Count {
            least,
            most: i64::MAX,
        } => format!("a whole number, at least {least}"),
        Values::Count { least, most } => format!("a whole number from {least} to {most}"),
        Values::Number(range) => format!("a number {range}"),
        Values::Flag => "true or false".to_owned(),
        Values::Text => "text in quotes".to_owned(),
        Values::Path => "a path in quotes".to_owned(),
        Values::Paths => "a path in quotes, or a list of two".to_owned(),
        Values::Words(words) => one_of(words),
        Values::Choice(choice) => format!(
            "{}, or a table with it as kind and its sizes",
            one_of(choice.variants)
        ),
        Values::Backend => "a backend's word in quotes, as \"flex\" or \"wgpu:0\"".to_owned(),
        Values::Devices => "a list of device numbers, as [0, 1]".to_owned(),
    }
}
