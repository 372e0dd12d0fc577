//! Names, types and ranges of keys.
//!
//! The result is normalised: a choice is always a table with a `kind`, and aliases are replaced by
//! names.

use toml::{Table, Value as Toml};
use zoo_spec::{BackendId, Printable, UnknownName};

use crate::error::{Diagnostic, Location, invalid_value};
use crate::keys::{Body, DefaultKind, Key, Presence, Section, Values, Variant};
use crate::renamed::new_name;
use crate::sections::SECTIONS;
use crate::tree::{Entry, Node, Value};

/// The file as a table to deserialize, and the diagnostics.
pub(crate) fn check_schema(tree: &Node) -> (Table, Vec<Diagnostic>) {
    let mut checker = SchemaChecker {
        diagnostics: vec![],
    };
    let table = checker.file(tree);
    (table, checker.diagnostics)
}

struct SchemaChecker {
    diagnostics: Vec<Diagnostic>,
}

/// The table being checked.
struct Context<'a> {
    /// `model`, or `model.attention`.
    path: &'a str,
    /// The chosen kind, and all kinds.
    kind: Option<(&'static Variant, &'static [Variant])>,
}

impl SchemaChecker {
    fn report(&mut self, location: &Location, message: String) {
        let location = location.clone();
        self.diagnostics.push(Diagnostic { location, message });
    }

    fn invalid(&mut self, node: &Node, key: &str, allowed: &str) -> Option<Toml> {
        let message = invalid_value(key, allowed, &node.describe());
        self.report(&node.location, message);
        None
    }

    fn missing(&mut self, node: &Node, key: &str, allowed: &str) {
        let message = format!("missing key {key}: it must be {allowed}");
        self.report(&node.location, message);
    }

    fn file(&mut self, tree: &Node) -> Table {
        for entry in entries(tree) {
            if !SECTIONS.iter().any(|section| section.name == entry.key) {
                let names = SECTIONS.iter().map(|section| section.name);
                let unknown = UnknownName::new("section", &entry.key, names);
                let hint = section_hint(&entry.key, None);
                self.report(&entry.location, format!("{unknown}{hint}"));
            }
        }
        let data = match tree.find("data.kind").map(|entry| &entry.node.value) {
            Some(Value::Text(kind)) => kind.as_str(),
            _ => "",
        };
        let empty = Node {
            location: tree.location.clone(),
            value: Value::Table(vec![]),
        };
        let mut table = Table::new();
        for section in SECTIONS {
            let path = section.name;
            let node = tree.get(path).map_or(&empty, |entry| &entry.node);
            if !matches!(node.value, Value::Table(_)) {
                self.invalid(node, path, &format!("a section: [{path}]"));
                continue;
            }
            let read = match &section.body {
                Body::Keys(keys) => Some(self.table(node, keys, &Context { path, kind: None })),
                Body::Kinds(kinds, default) => {
                    let default = match default {
                        DefaultKind::Required => None,
                        DefaultKind::Named(name) => Some(*name),
                        DefaultKind::FromData(from_data) => Some(from_data(data)),
                    };
                    self.kinds(node, path, kinds, default)
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
        default: Option<&str>,
    ) -> Option<Table> {
        let key = format!("{path}.kind");
        let kind = match (node.get("kind").map(|entry| &entry.node), default) {
            (Some(named), _) => match &named.value {
                Value::Text(name) => self.named(named, &key, name, kinds)?,
                _ => {
                    self.invalid(named, &key, &one_of(kinds));
                    return None;
                }
            },
            (None, Some(name)) => Variant::named(kinds, name)?,
            (None, None) => {
                self.missing(node, &key, &one_of(kinds));
                return None;
            }
        };
        let context = Context {
            path,
            kind: Some((kind, kinds)),
        };
        let mut table = self.table(node, kind.keys, &context);
        table.insert("kind".to_owned(), Toml::String(kind.name.to_owned()));
        Some(table)
    }

    fn named(
        &mut self,
        node: &Node,
        key: &str,
        name: &str,
        variants: &'static [Variant],
    ) -> Option<&'static Variant> {
        let found = Variant::named(variants, name);
        if found.is_none() {
            let unknown = UnknownName::new("value", name, Variant::names(variants));
            self.report(&node.location, format!("{key}: {unknown}"));
        }
        found
    }

    fn table(&mut self, node: &Node, keys: &'static [Key], context: &Context<'_>) -> Table {
        let mut table = Table::new();
        for entry in entries(node) {
            if entry.key == "kind" && context.kind.is_some() {
                continue;
            }
            let Some(key) = keys.iter().find(|key| key.name == entry.key) else {
                self.report(&entry.location, unknown_key(entry, keys, context));
                continue;
            };
            let name = format!("{}.{}", context.path, key.name);
            if let Some(value) = self.value(&entry.node, &name, &key.values) {
                table.insert(key.name.to_owned(), value);
            }
        }
        self.required(node, keys, context.path);
        table
    }

    /// Reports the required keys that are missing in a table, or all of them for a bare name.
    fn required(&mut self, node: &Node, keys: &[Key], path: &str) {
        for key in keys {
            if matches!(key.presence, Presence::Required) && node.get(key.name).is_none() {
                let name = format!("{path}.{}", key.name);
                self.missing(node, &name, &allowed(&key.values));
            }
        }
    }

    fn value(&mut self, node: &Node, key: &str, values: &Values) -> Option<Toml> {
        let is_path = |node: &Node| matches!(&node.value, Value::Text(path) if !path.is_empty());
        match (values, &node.value) {
            (Values::Count { min, max }, Value::Integer(n)) if (min..=max).contains(&n) => {
                Some(Toml::Integer(*n))
            }
            (Values::Number(range), Value::Integer(n)) if range.contains(*n as f64) => {
                Some(Toml::Float(*n as f64))
            }
            (Values::Number(range), Value::Float(x)) if range.contains(*x) => Some(Toml::Float(*x)),
            (Values::Bool, Value::Bool(value)) => Some(Toml::Boolean(*value)),
            (Values::Text, Value::Text(text)) => Some(Toml::String(text.clone())),
            (Values::Path | Values::Paths, Value::Text(path)) if is_path(node) => {
                Some(Toml::String(path.clone()))
            }
            (Values::Paths, Value::List(list)) if list.len() == 2 && list.iter().all(is_path) => {
                to_array(list)
            }
            (Values::Names(variants), Value::Text(name)) => {
                let name = self.named(node, key, name, variants)?.name;
                Some(Toml::String(name.to_owned()))
            }
            (Values::Choices(choice), Value::List(list)) if !list.is_empty() => {
                let items = list
                    .iter()
                    .map(|item| self.value(item, key, &Values::Choice(*choice)));
                // All of them are checked, so that every error is reported.
                let items: Vec<Option<Toml>> = items.collect();
                items.into_iter().collect::<Option<_>>().map(Toml::Array)
            }
            (Values::Choice(choice) | Values::Choices(choice), Value::Text(name)) => {
                let variant = self.named(node, key, name, choice.variants)?;
                self.required(node, variant.keys, key);
                let kind = ("kind".to_owned(), Toml::String(variant.name.to_owned()));
                Some(Toml::Table(Table::from_iter([kind])))
            }
            (Values::Choice(choice) | Values::Choices(choice), Value::Table(_)) => {
                let table = self.kinds(node, key, choice.variants, None);
                table.map(Toml::Table)
            }
            (Values::Backend, Value::Text(name)) => match name.parse::<BackendId>() {
                Ok(id) => Some(Toml::String(id.to_string())),
                Err(error) => {
                    self.report(&node.location, format!("{key}: {error}"));
                    None
                }
            },
            (Values::Devices, Value::List(list)) if list.iter().all(is_index) => to_array(list),
            _ => self.invalid(node, key, &allowed(values)),
        }
    }
}

fn entries(node: &Node) -> &[Entry] {
    match &node.value {
        Value::Table(entries) => entries,
        _ => &[],
    }
}

fn is_index(node: &Node) -> bool {
    matches!(node.value, Value::Integer(n) if n >= 0)
}

fn to_array(list: &[Node]) -> Option<Toml> {
    let item = |node: &Node| match &node.value {
        Value::Text(text) => Some(Toml::String(text.clone())),
        Value::Integer(number) => Some(Toml::Integer(*number)),
        _ => None,
    };
    let items: Option<_> = list.iter().map(item).collect();
    items.map(Toml::Array)
}

/// The message for an unknown key: it may have been renamed, or belong to another kind or section.
fn unknown_key(entry: &Entry, keys: &'static [Key], context: &Context<'_>) -> String {
    let path = context.path;
    let old = &entry.key;
    if let Some(new) = new_name(&format!("{path}.{old}"), keys) {
        return format!(
            "{path}.{old} has been renamed to {path}.{new}\n  help: replace {old} with {new}"
        );
    }
    let mut known: Vec<_> = keys.iter().map(|key| key.name).collect();
    let mut table = format!("[{path}]");
    if let Some((kind, kinds)) = context.kind {
        let has_it = |kind: &&Variant| kind.keys.iter().any(|key| key.name == entry.key);
        let others: Vec<_> = kinds.iter().filter(has_it).map(|kind| kind.name).collect();
        let chosen = kind.name;
        if !others.is_empty() {
            let keys = if known.is_empty() {
                format!("{chosen} has no keys")
            } else {
                format!("keys of {chosen}: {}", known.join(", "))
            };
            return format!(
                "{path}.{} is a key of {}, but {path}.kind is {chosen}\n  {keys}",
                entry.key,
                others.join(", ")
            );
        }
        table += &format!(" of kind {chosen}");
        known.push("kind");
    }
    let unknown = UnknownName::new("key", &entry.key, known);
    format!("{table}: {unknown}{}", section_hint(&entry.key, Some(path)))
}

/// A hint if another section has a key of this name.
fn section_hint(key: &str, except: Option<&str>) -> String {
    let has_it = |section: &&Section| {
        let mut tables = section.tables().into_iter();
        tables.any(|(_, keys)| keys.iter().any(|other| other.name == key))
    };
    let is_other = |section: &&Section| Some(section.name) != except;
    match SECTIONS.iter().filter(is_other).find(has_it) {
        Some(section) => format!("\n  help: [{}] has a key {}", section.name, Printable(key)),
        None => String::new(),
    }
}

fn one_of(variants: &[Variant]) -> String {
    let names: Vec<_> = variants.iter().map(|variant| variant.name).collect();
    format!("one of {}", names.join(", "))
}

/// A description of the accepted values.
pub(crate) fn allowed(values: &Values) -> String {
    match values {
        Values::Count { min, max: i64::MAX } => format!("an integer, at least {min}"),
        Values::Count { min, max } => format!("an integer from {min} to {max}"),
        Values::Number(range) => format!("a number {range}"),
        Values::Bool => "true or false".to_owned(),
        Values::Text => "a string".to_owned(),
        Values::Path => "a path".to_owned(),
        Values::Paths => "a path or a list of two paths".to_owned(),
        Values::Names(variants) => one_of(variants),
        Values::Choice(choice) => format!(
            "{}, or a table with a kind and its keys",
            one_of(choice.variants)
        ),
        Values::Choices(choice) => format!(
            "{}, a table with a kind and its keys, or a list of these",
            one_of(choice.variants)
        ),
        Values::Backend => "a backend such as \"flex\" or \"wgpu:0\"".to_owned(),
        Values::Devices => "a list of device indices such as [0, 1]".to_owned(),
    }
}
