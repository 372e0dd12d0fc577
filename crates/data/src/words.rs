//! Enums that people write as words, on a command line or in a config file.

/// An enum of words, each as `Name = "word"`; `of` is what the words are called in errors.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident of $what:literal {
            $( $(#[$about:meta])+ $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $( $(#[$about])+ #[serde(rename = $word)] $variant, )+
        }

        impl $name {
            /// All of them, in the order they are shown.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word people write.
            pub fn word(self) -> &'static str {
                match self {
                    $( Self::$variant => $word, )+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = zoo_spec::UnknownWord;

            fn from_str(word: &str) -> Result<Self, zoo_spec::UnknownWord> {
                let known = Self::ALL.into_iter().find(|known| known.word() == word);
                known.ok_or_else(|| {
                    zoo_spec::UnknownWord::new($what, word, Self::ALL.map(Self::word))
                })
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::tasks::{Operation, Task};
    use crate::{LengthRule, SentenceRule, TokenizerKind, WordRule, metrics};

    #[test]
    fn every_word_reads_back() {
        macro_rules! read_back {
            ($($name:ty, $wrong:literal, $nearest:expr;)+) => {$(
                for one in <$name>::ALL {
                    assert_eq!(one.word().parse(), Ok(one));
                    assert_eq!(one.to_string(), one.word());
                    let json = serde_json::to_string(&one).unwrap();
                    assert_eq!(json, format!("\"{one}\""));
                    assert_eq!(serde_json::from_str::<$name>(&json).unwrap(), one);
                }
                let error = $wrong.parse::<$name>().unwrap_err();
                assert_eq!(error.nearest(), $nearest);
                assert_eq!(error.known, <$name>::ALL.map(<$name>::word));
            )+};
        }
        read_back! {
            LengthRule, "short", None;
            SentenceRule, "mark", Some("marks");
            TokenizerKind, "chars", Some("char");
            WordRule, "space", Some("spaces");
            Task, "revers", Some("reverse");
            Operation, "AVG", None;
            metrics::Case, "lowre", Some("lower");
            metrics::Tokenizer, "13b", Some("13a");
        }
    }
}
