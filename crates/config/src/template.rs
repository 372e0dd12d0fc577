//! The config templates of `zoo new`.

use zoo_spec::UnknownName;

use crate::keys::Variant;
use crate::write;
use crate::{Config, ConfigError, Model};

/// The models with a template.
pub const TEMPLATES: [&str; 5] = ["transformer", "seq2seq", "han", "gpt", "classifier"];

/// A config with every key at its default and a comment for each.
///
/// # Errors
///
/// [`ConfigError::InvalidInput`] for an unknown model, with the closest name.
pub fn template(kind: &str) -> Result<String, ConfigError> {
    let data = match kind {
        "transformer" => "kind = \"reverse\"",
        "seq2seq" => "kind = \"dates\"",
        "han" => "kind = \"documents\"",
        "gpt" => "kind = \"plain\"\ntrain = \"data/input.txt\"",
        "classifier" => "kind = \"listops\"",
        _ => {
            let unknown = UnknownName::new("template", kind, TEMPLATES);
            return Err(ConfigError::InvalidInput(unknown.to_string()));
        }
    };
    let required = format!("[data]\n{data}\n\n[model]\nkind = \"{kind}\"\n");
    // As in the help of `zoo new`.
    let name = "my.toml";
    let (written, _) = Config::parse_unresolved(name, &required, &[])?;
    let resolved = Config::parse(name, &required, &[])?;
    let head = format!(
        "# Config of a {kind}. Every key has its default value and can be removed, except the kind of\n\
         # data and model{}. Keys whose defaults depend on other keys are commented out.\n\
         # docs/config.md lists the keys of all other kinds.\n\
         #\n\
         #     zoo train {name}\n\n",
        if kind == "gpt" { " and the path" } else { "" }
    );
    Ok(head + &choices(kind) + &write::commented(&written, &resolved))
}

/// A comment that lists the values of keys such as `attention`, with their keys and defaults.
fn choices(kind: &str) -> String {
    let keys = Variant::named(Model::KINDS, kind).map_or(&[][..], |model| model.keys);
    let mut text = String::new();
    let mut last = "";
    let choices = keys.iter().filter_map(|key| key.values.choice());
    for choice in choices {
        // Keys with the same choices follow each other.
        if choice.name != last {
            last = choice.name;
            text += &format!("# Values of {} keys, with their defaults:\n", choice.name);
            for variant in choice.variants {
                text += &format!("#     {}\n", write::with_defaults(variant));
            }
            text += "#\n";
        }
    }
    if !text.is_empty() {
        text += "# `zoo mechanisms NAME` describes a mechanism.\n\n";
    }
    text
}
