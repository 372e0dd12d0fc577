//! Which split of a data set becomes which file.

use std::str::FromStr;

use zoo_spec::UnknownWord;

use crate::HubError;

/// What a split is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// To learn from.
    Train,
    /// To validate with.
    Valid,
    /// To test with in the end.
    Test,
}

impl Part {
    /// Every part, in the order of a config.
    pub const ALL: [Self; 3] = [Self::Train, Self::Valid, Self::Test];

    /// Its key in a config, and the name of its file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }

    /// What the hub calls it, most often first.
    fn usual(self) -> &'static [&'static str] {
        match self {
            Self::Train => &["train"],
            Self::Valid => &["validation", "valid", "val", "dev"],
            Self::Test => &["test"],
        }
    }
}

/// `valid=dev`: what a person says of a split; with nothing after the `=`, the part is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What it is used for.
    pub part: Part,
    /// Its name, if there is to be one.
    pub split: Option<String>,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, split) = text
            .split_once('=')
            .ok_or("write for example valid=validation")?;
        let words = Part::ALL.map(Part::word);
        let part = Part::ALL.into_iter().find(|part| part.word() == word);
        Ok(Self {
            part: part.ok_or_else(|| UnknownWord::new("part", word, words).to_string())?,
            split: (!split.is_empty()).then(|| split.to_owned()),
        })
    }
}

/// The split for each part: the one that was chosen, or else the one with the usual name.
///
/// # Errors
///
/// [`HubError::UnknownSplit`] if none is called as was chosen, or there is none to learn from.
pub fn choose(choices: &[Choice], splits: &[String]) -> Result<Vec<(Part, String)>, HubError> {
    let mut chosen = vec![];
    for part in Part::ALL {
        // The last word counts, as for flags.
        let choice = choices.iter().rfind(|choice| choice.part == part);
        let name = match choice {
            Some(Choice { split: None, .. }) => continue,
            Some(Choice {
                split: Some(name), ..
            }) => name.as_str(),
            None => {
                let usual = part.usual().iter();
                let known = usual.copied().find(|name| splits.iter().any(|s| s == name));
                match (known, part) {
                    (Some(name), _) => name,
                    (None, Part::Train) => "train",
                    (None, _) => continue,
                }
            }
        };
        if !splits.iter().any(|split| split == name) {
            return Err(HubError::UnknownSplit {
                part: part.word(),
                unknown: UnknownWord::new("split", name, splits),
            });
        }
        chosen.push((part, name.to_owned()));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(choices: &[&str], splits: &[&str]) -> Result<Vec<(Part, String)>, String> {
        let choices: Vec<_> = choices.iter().map(|text| text.parse().unwrap()).collect();
        let splits: Vec<_> = splits.iter().map(ToString::to_string).collect();
        choose(&choices, &splits).map_err(|error| error.to_string())
    }

    #[test]
    fn the_usual_names_are_known_and_others_can_be_said() {
        let named = |part, split: &str| (part, split.to_owned());
        let usual = chosen(&[], &["unsupervised", "test", "train", "dev"]).unwrap();
        let expected = [
            named(Part::Train, "train"),
            named(Part::Valid, "dev"),
            named(Part::Test, "test"),
        ];
        assert_eq!(usual, expected);
        let own = chosen(&["train=full", "test="], &["full", "test"]).unwrap();
        assert_eq!(own, [named(Part::Train, "full")]);
    }

    #[test]
    fn what_is_not_there_is_told() {
        let said = chosen(&[], &["test"]).unwrap_err();
        assert!(said.starts_with("unknown split \"train\""), "{said}");
        assert!(said.ends_with("known: test\n  do: say which is which: --split train=NAME"));
        let said = chosen(&["valid=valdiation"], &["train", "validation"]).unwrap_err();
        assert!(said.contains("did you mean validation?"), "{said}");
        let said = "tset=test".parse::<Choice>().unwrap_err();
        assert!(said.contains("did you mean test?"), "{said}");
        assert!("test".parse::<Choice>().unwrap_err().contains("valid="));
    }
}
