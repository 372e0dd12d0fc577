//! The `[data]` of a config that reads what was written.

use crate::Form;
use crate::write::Written;

/// The section, or what is still to be said before there is one.
pub fn section(form: &Form, written: &[Written]) -> String {
    let fields = written.first().map_or(&[][..], |first| &first.fields);
    let (kind, more) = match form {
        Form::Pairs { .. } => ("parallel", vec![]),
        Form::Text { .. } => ("plain", vec![]),
        Form::Labelled { label, text } => {
            let keys = [("label_field", label), ("text_field", text)];
            ("labelled", keys.to_vec())
        }
        Form::Fields => match guess(fields) {
            Some((label, text)) => (
                "labelled",
                vec![("label_field", label), ("text_field", text)],
            ),
            None => return to_be_said(fields),
        },
    };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut lines = vec!["[data]".to_owned(), format!("kind = \"{kind}\"")];
    for file in written {
        let path = quoted(&file.path.display().to_string());
        lines.push(format!("{} = {path}", file.part.word()));
    }
    for (key, value) in more {
        lines.push(format!("{key} = {}", quoted(value)));
    }
    lines.join("\n") + "\n"
}

/// A class and a text, where it is plain which fields they are.
fn guess<'a>(fields: &'a [(String, &'static str)]) -> Option<(&'a String, &'a String)> {
    let named = |wanted: &str| {
        fields
            .iter()
            .map(|(name, _)| name)
            .find(|name| *name == wanted)
    };
    let only = |wanted: &str| {
        let mut of_kind = fields.iter().filter(|(_, kind)| *kind == wanted);
        let first = of_kind.next().map(|(name, _)| name);
        first.filter(|_| of_kind.next().is_none())
    };
    let by_name = named("label").zip(named("text"));
    by_name.or_else(|| only("whole number").zip(only("text")))
}

fn to_be_said(fields: &[(String, &'static str)]) -> String {
    let texts = fields.iter().filter(|(_, kind)| *kind == "text");
    let texts: Vec<_> = texts.map(|(name, _)| name.as_str()).collect();
    format!(
        "# Which of the fields are to be learned from, nobody can tell; texts are: {}\n\
         # Say it, with --overwrite, and the files and this section follow:\n\
         #   --text FIELD --label FIELD      texts and their classes\n\
         #   --source FIELD --target FIELD   texts and their translations\n\
         #   --text FIELD                    running text\n",
        texts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
        let owned = |(name, kind): &(&str, _)| ((*name).to_owned(), *kind);
        list.iter().map(owned).collect()
    }

    #[test]
    fn fields_are_guessed_only_where_it_is_plain() {
        let guessed = |list: &[(&str, &'static str)]| {
            let fields = fields(list);
            guess(&fields).map(|(label, text)| format!("{label} {text}"))
        };
        let named = [("title", "text"), ("text", "text"), ("label", "text")];
        assert_eq!(guessed(&named).unwrap(), "label text");
        let kinds = [
            ("stars", "whole number"),
            ("review", "text"),
            ("p", "number"),
        ];
        assert_eq!(guessed(&kinds).unwrap(), "stars review");
        assert_eq!(guessed(&[("de", "text"), ("en", "text")]), None);
        let two = [("id", "whole number"), ("y", "whole number"), ("x", "text")];
        assert_eq!(guessed(&two), None);
        let said = to_be_said(&fields(&[("de", "text"), ("n", "number"), ("en", "text")]));
        assert!(said.contains("texts are: de, en\n"), "{said}");
    }
}
