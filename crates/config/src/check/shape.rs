//! Whether every key is known, in its place, and of the right type and range.
//!
//! What comes out has one form for each value, whatever was written: a word that may have
//! sizes is a table with its `kind`, and other names of a word are the word.

use toml::{Table, Value as Toml};
use zoo_spec::{BackendWord, Printable, UnknownWord};

use crate::error::{Mistake, Place, wrong_value};
use crate::keys::{Body, Key, Presence, Section, UsualKind, Values, Variant};
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
    fn mistake(&mut self, place: &Place, what: String) {
        let place = place.clone();
        self.mistakes.push(Mistake { place, what });
    }

    fn wrong(&mut self, node: &Node, key: &str, allowed: &str) -> Option<Toml> {
        self.mistake(&node.place, wrong_value(key, allowed, &node.found()));
        None
    }

    fn missing(&mut self, node: &Node, key: &str, allowed: &str) {
        self.mistake(
            &node.place,
            format!("{key} is missing: it must be {allowed}"),
        );
    }

    fn file(&mut self, tree: &Node) -> Table {
        for entry in entries(tree) {
            if !SECTIONS.iter().any(|section| section.name == entry.key) {
                let names = SECTIONS.iter().map(|section| section.name);
                let unknown = UnknownWord::new("section", &entry.key, names);
                let what = format!("{unknown}{}", elsewhere(&entry.key, None));
                self.mistake(&entry.place, what);
            }
        }
        let data = match tree.find("data.kind").map(|entry| &entry.node.value) {
            Some(Value::Text(kind)) => kind.as_str(),
            _ => "",
        };
        let empty = Node {
            place: tree.place.clone(),
            value: Value::Table(vec![]),
        };
        let mut table = Table::new();
        for section in SECTIONS {
            let path = section.name;
            let node = tree.get(path).map_or(&empty, |entry| &entry.node);
            if !matches!(node.value, Value::Table(_)) {
                self.wrong(node, path, &format!("a section: [{path}]"));
                continue;
            }
            let read = match &section.body {
                Body::Keys(keys) => Some(self.table(node, keys, &Within { path, kind: None })),
                Body::Kinds(kinds, usual) => {
                    let usual = match usual {
                        UsualKind::Required => None,
                        UsualKind::Word(word) => Some(*word),
                        UsualKind::OfData(of_data) => Some(of_data(data)),
                    };
                    self.kinds(node, path, kinds, usual)
                }
            };
            if let Some(read) = read {
                table.insert(path.to_owned(), Toml::Table(read));
            }
        }
        table
    }

    /// A table with a `kind`, and the keys of that kind.
    fn kinds(
        &mut self,
        node: &Node,
        path: &str,
        kinds: &'static [Variant],
        usual: Option<&str>,
    ) -> Option<Table> {
        let key = format!("{path}.kind");
        let kind = match (node.get("kind").map(|entry| &entry.node), usual) {
            (Some(named), _) => match &named.value {
                Value::Text(word) => self.named(named, &key, word, kinds)?,
                _ => {
                    self.wrong(named, &key, &one_of(kinds));
                    return None;
                }
            },
            (None, Some(word)) => Variant::named(kinds, word)?,
            (None, None) => {
                self.missing(node, &key, &one_of(kinds));
                return None;
            }
        };
        let within = Within {
            path,
            kind: Some((kind, kinds)),
        };
        let mut table = self.table(node, kind.keys, &within);
        table.insert("kind".to_owned(), Toml::String(kind.word.to_owned()));
        Some(table)
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
            let unknown = UnknownWord::new("word", word, Variant::words(variants));
            self.mistake(&node.place, format!("{key}: {unknown}"));
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
                self.mistake(&entry.place, unknown_key(entry, keys, within));
                continue;
            };
            let name = format!("{}.{}", within.path, key.name);
            if let Some(value) = self.value(&entry.node, &name, &key.values) {
                table.insert(key.name.to_owned(), value);
            }
        }
        for key in keys {
            if matches!(key.presence, Presence::Required) && node.get(key.name).is_none() {
                let name = format!("{}.{}", within.path, key.name);
                self.missing(node, &name, &allowed(&key.values));
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
            (Values::Choice(choice), Value::Table(_)) => {
                let table = self.kinds(node, key, choice.variants, None);
                table.map(Toml::Table)
            }
            (Values::Backend, Value::Text(word)) => match word.parse::<BackendWord>() {
                Ok(word) => Some(Toml::String(word.to_string())),
                Err(error) => {
                    self.mistake(&node.place, format!("{key}: {error}"));
                    None
                }
            },
            (Values::Devices, Value::List(list)) if list.iter().all(is_count) => list_of(list),
            _ => self.wrong(node, key, &allowed(values)),
        }
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
fn unknown_key(entry: &Entry, keys: &'static [Key], within: &Within<'_>) -> String {
    let path = within.path;
    let mut known: Vec<_> = keys.iter().map(|key| key.name).collect();
    let mut table = format!("[{path}]");
    if let Some((kind, kinds)) = within.kind {
        let has_it = |kind: &&Variant| kind.keys.iter().any(|key| key.name == entry.key);
        let of: Vec<_> = kinds.iter().filter(has_it).map(|kind| kind.word).collect();
        let chosen = kind.word;
        if !of.is_empty() {
            let keys = match known.is_empty() {
                true => format!("{chosen} has no keys of its own"),
                false => format!("keys of {chosen}: {}", known.join(", ")),
            };
            return format!(
                "{path}.{} is a key of {}, and {path}.kind is {chosen}\n  {keys}",
                entry.key,
                of.join(", ")
            );
        }
        table += &format!(" of kind {chosen}");
        known.push("kind");
    }
    let unknown = UnknownWord::new("key", &entry.key, known);
    format!("{table}: {unknown}{}", elsewhere(&entry.key, Some(path)))
}

/// Which section has a key of this name, other than the one it was written in.
fn elsewhere(key: &str, except: Option<&str>) -> String {
    let has_it = |section: &&Section| {
        let mut tables = section.tables().into_iter();
        tables.any(|(_, keys)| keys.iter().any(|other| other.name == key))
    };
    let mut others = SECTIONS
        .iter()
        .filter(|section| Some(section.name) != except);
    match others.find(has_it) {
        Some(section) => format!("\n  there is a {} in [{}]", Printable(key), section.name),
        None => String::new(),
    }
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
