//! What `zoo new` writes: a config to begin with.

use zoo_spec::UnknownWord;

use crate::write;
use crate::{Config, ConfigError};

/// The models there is a template for, each with data that suits it.
pub const TEMPLATES: [&str; 5] = ["transformer", "seq2seq", "han", "gpt", "classifier"];

/// A file with every key of a model of this kind, at its default, with a comment.
///
/// # Errors
///
/// [`ConfigError::Refused`] if there is no such model, with the nearest one.
pub fn template(kind: &str) -> Result<String, ConfigError> {
    let data = match kind {
        "transformer" => "kind = \"reverse\"",
        "seq2seq" => "kind = \"dates\"",
        "han" => "kind = \"documents\"",
        "gpt" => "kind = \"plain\"\ntrain = \"data/input.txt\"",
        "classifier" => "kind = \"listops\"",
        _ => {
            let unknown = UnknownWord::new("template", kind, TEMPLATES);
            return Err(ConfigError::Refused(unknown.to_string()));
        }
    };
    let needed = format!("[data]\n{data}\n\n[model]\nkind = \"{kind}\"\n");
    let name = format!("my-{kind}.toml");
    let (written, _) = Config::as_written(&name, &needed, &[])?;
    let resolved = Config::parse(&name, &needed, &[])?;
    let head = format!(
        "# A run of a {kind}. Every key is at its default and may be left out, but for the kind of\n\
         # data and of model{}. What follows from other keys is a comment, with what it is now.\n\
         # docs/config.md has the keys of all other kinds.\n\
         #\n\
         #     cargo xtask train my-{kind}.toml\n\n",
        if kind == "gpt" { ", and the path" } else { "" }
    );
    Ok(head + &write::commented(&written, &resolved))
}
