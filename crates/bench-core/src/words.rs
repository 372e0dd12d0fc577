//! Enums whose variants people write as words.

/// Declares an enum with a word for each variant, by which it is read, shown and recorded:
/// `enum Name: "what it names" { Variant = "word", }`.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $name:ident: $what:literal {
            $( $(#[$doc:meta])* $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $( $(#[$doc])* #[serde(rename = $word)] $variant, )+
        }

        impl $name {
            /// All, in the order they are shown.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word people write.
            pub fn word(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = zoo_spec::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|known| known.word() == word);
                found.ok_or_else(|| Self::Err::new($what, word, Self::ALL.map(Self::word)))
            }
        }
    };
}

pub(crate) use words;
