//! `docs/config.md`: every key of a config file.

use std::fmt::Write;

use crate::check::allowed;
use crate::keys::{Body, Choice, Key, Presence, UsualKind, Values, Variant};
use crate::sections::SECTIONS;
use crate::write::inline;

/// Where the document lies, from the workspace's root.
pub const DOCS_PATH: &str = "docs/config.md";

const HEAD: &str = "\
<!-- Written by `cargo xtask config-docs`; what it says stands in crates/config/src/sections. -->

# Config files

A run is one TOML file: `cargo xtask train configs/NAME.toml`. Two keys are always needed, `data.kind`
and `model.kind`; everything else has a default, and this trains:

```toml
[data]
kind = \"reverse\"

[model]
kind = \"transformer\"
```

`--set model.layers=4` changes a key for one run; the value is TOML, and what is none is text.
`--print-config` prints the file with every default in it. `zoo new transformer` writes a file to begin
with. Paths are taken from where the program is started.

A key that nobody knows, a word that is misspelt, a number out of range, a model that does not fit the
data: each is told with its line and what is allowed before anything starts. So is a run that needs more
memory than the machine has: weights, gradients, the optimizer's state, a batch and generated examples are
estimated from below, on backends that compute on the CPU.
";

const WORDS: &str = "
## Words with sizes

A word alone takes the usual sizes: `attention = \"sliding-window\"`. A table says some or all:
`attention = { kind = \"sliding-window\", window = 64 }`.
";

/// The whole document.
pub fn docs() -> String {
    let mut text = HEAD.to_owned();
    let mut choices: Vec<&'static Choice> = vec![];
    for section in SECTIONS {
        let _ = write!(
            text,
            "\n## `[{}]`\n\n{}\n",
            section.name,
            section.about.trim()
        );
        match &section.body {
            Body::Keys(keys) => table(&mut text, keys, &mut choices),
            Body::Kinds(kinds, usual) => {
                let default = match usual {
                    UsualKind::Required => "It cannot be left out.".to_owned(),
                    UsualKind::Word(word) => format!("Default: `{word}`."),
                    UsualKind::OfData(of_data) => by_data(*of_data),
                };
                let _ = write!(text, "\n`kind` is one of these. {default}\n\n");
                for kind in *kinds {
                    let _ = writeln!(text, "- `{}`: {}", kind.word, kind.about.trim());
                }
                // Kinds that have the very same keys are described together.
                let kinds = kinds.iter().map(|kind| (rows(kind.keys), kind));
                for (_, kinds) in grouped(kinds) {
                    let words: Vec<&str> = kinds.iter().map(|kind| kind.word).collect();
                    let _ = write!(text, "\n### {} of {}\n", section.name, quoted(&words));
                    table(&mut text, kinds[0].keys, &mut choices);
                }
            }
        }
    }
    text.push_str(WORDS);
    // Choices within choices would be added while this goes on; there are none.
    for choice in choices {
        choice_list(&mut text, choice);
    }
    text
}

/// Values with the same key, together, in the order of the first of each.
fn grouped<K: PartialEq, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = vec![];
    for (key, value) in pairs {
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

fn quoted(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

fn by_data(of_data: fn(&str) -> &'static str) -> String {
    let kinds = crate::Data::KINDS.iter();
    let groups = grouped(kinds.map(|kind| (of_data(kind.word), kind.word)));
    let groups: Vec<_> = groups
        .iter()
        .map(|(word, data)| format!("`{word}` for {}", quoted(data)))
        .collect();
    format!("Default: {}.", groups.join("; "))
}

fn table(text: &mut String, keys: &'static [Key], choices: &mut Vec<&'static Choice>) {
    text.push_str("\n| key | values | default | |\n|---|---|---|---|\n");
    text.push_str(&rows(keys));
    for key in keys {
        if let Values::Choice(choice) = key.values
            && !choices.iter().any(|other| other.name == choice.name)
        {
            choices.push(choice);
        }
    }
}

fn rows(keys: &[Key]) -> String {
    let row = |key: &Key| {
        let (values, default, about) = (values(&key.values), default(key), cell(key.about));
        format!("| `{}` | {values} | {default} | {about} |\n", key.name)
    };
    keys.iter().map(row).collect()
}

/// What may not stand in a table's cell as it is.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}

fn default(key: &Key) -> String {
    match (key.presence, (key.default)()) {
        (Presence::Required, _) => "needed".to_owned(),
        (Presence::Optional(meaning), _) => cell(meaning),
        (Presence::Usual, Some(value)) => format!("`{}`", inline(&value, &key.values)),
        (Presence::Usual, None) => String::new(),
    }
}

fn values(values: &Values) -> String {
    match values {
        Values::Words(variants) => {
            let word = |variant: &Variant| {
                let about = variant.about.trim().trim_end_matches('.');
                format!("`\"{}\"`: {}", variant.word, cell(about))
            };
            variants.iter().map(word).collect::<Vec<_>>().join("<br>")
        }
        Values::Choice(choice) => {
            format!("[{}](#{})", choice.name, choice.name.replace(' ', "-"))
        }
        other => allowed(other),
    }
}

fn choice_list(text: &mut String, choice: &'static Choice) {
    let mut name = choice.name.to_owned();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let _ = write!(text, "\n### {name}\n\n| word | | sizes |\n|---|---|---|\n");
    for variant in choice.variants {
        let others: String = (variant.others.iter())
            .map(|other| format!(", `{other}`"))
            .collect();
        let size = |key: &Key| {
            let values = match &key.values {
                Values::Words(variants) => {
                    let words: Vec<_> = variants.iter().map(|variant| variant.word).collect();
                    quoted(&words)
                }
                other => values(other),
            };
            let about = cell(key.about.trim_end().trim_end_matches('.'));
            format!(
                "`{}`: {about} ({values}; default {})",
                key.name,
                default(key)
            )
        };
        let sizes: Vec<_> = variant.keys.iter().map(size).collect();
        let _ = writeln!(
            text,
            "| `{}`{others} | {} | {} |",
            variant.word,
            cell(variant.about),
            sizes.join("<br>")
        );
    }
}
