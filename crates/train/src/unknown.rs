//! Notes about words or characters of an input that are not in the vocabulary.

use std::collections::HashSet;

use zoo_data::Tokenizer;
use zoo_spec::Printable;

use crate::Result;
use crate::task::Note;

const MAX_COLUMNS: usize = 100;
const MAX_NAME: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct UnknownNotes {
    reported: HashSet<String>,
}

impl UnknownNotes {
    /// Reports the unknown words or characters of texts that have not been reported before.
    /// Returns those of each text.
    pub(crate) fn report(
        &mut self,
        tokenizer: &Tokenizer,
        texts: &[&str],
        note: Note<'_>,
    ) -> Result<Vec<Vec<String>>> {
        let unknown = texts.iter().map(|text| tokenizer.unknown(text));
        let unknown: Vec<Vec<String>> = unknown.collect::<Result<_, _>>()?;
        let is_new = |part: &&String| self.reported.insert((*part).clone());
        let new: Vec<&String> = unknown.iter().flatten().filter(is_new).collect();
        if !new.is_empty() {
            note(&one_line(tokenizer.unknown_unit(), &new));
        }
        Ok(unknown)
    }

    /// Reports words again that have been reported before.
    pub(crate) fn reset(&mut self) {
        self.reported.clear();
    }
}

fn one_line(unit: &str, parts: &[&String]) -> String {
    let mut line = match parts.len() {
        1 => format!("note: 1 {unit} is not in the vocabulary and becomes <unk>: "),
        count => format!("note: {count} {unit}s are not in the vocabulary and become <unk>: "),
    };
    for (i, part) in parts.iter().enumerate() {
        let start: String = part.chars().take(MAX_NAME).collect();
        let cut = if start.len() < part.len() { "…" } else { "" };
        let name = format!("\"{}{cut}\"", Printable(&start));
        let rest = format!(" and {} more", parts.len() - i);
        let columns = [&line, ", ", &name, &rest].map(|it| it.chars().count());
        if i > 0 && columns.iter().sum::<usize>() > MAX_COLUMNS {
            return line + &rest;
        }
        line += if i > 0 { ", " } else { "" };
        line += &name;
    }
    line
}

#[cfg(test)]
mod tests {
    use zoo_data::TokenizerConfig;

    use super::*;

    #[test]
    fn notes_name_new_words_in_one_line() {
        let tokenizer = TokenizerConfig::words().train(["a b"]).unwrap();
        let mut notes = UnknownNotes::default();
        let mut report = |texts: &[&str]| {
            let mut lines = vec![];
            let note = &mut |line: &str| lines.push(line.to_owned());
            let unknown = notes.report(&tokenizer, texts, note).unwrap();
            assert_eq!(unknown.len(), texts.len());
            (lines.concat(), unknown.concat())
        };
        let (line, unknown) = report(&["a b", "Zug a flerb", "b Zug"]);
        let expected =
            "note: 2 words are not in the vocabulary and become <unk>: \"Zug\", \"flerb\"";
        assert_eq!((line.as_str(), unknown.len()), (expected, 3));
        let (line, unknown) = report(&["flerb a"]);
        assert_eq!((line, unknown), (String::new(), vec!["flerb".to_owned()]));
        let (line, _) = report(&[&"x".repeat(21)]);
        let expected = format!(
            "note: 1 word is not in the vocabulary and becomes <unk>: \"{}…\"",
            "x".repeat(20)
        );
        assert_eq!(line, expected);
        let many: Vec<String> = (0..1000).map(|i| format!("word{i}")).collect();
        let (line, _) = report(&[&many.join(" ")]);
        assert!(line.chars().count() <= MAX_COLUMNS, "{line}");
        assert!(
            line.ends_with("\"word1\", \"word2\" and 997 more"),
            "{line}"
        );
        notes.reset();
        let texts = &["Zug"];
        let mut count = 0;
        notes
            .report(&tokenizer, texts, &mut |_| count += 1)
            .unwrap();
        assert_eq!(count, 1);
    }
}
