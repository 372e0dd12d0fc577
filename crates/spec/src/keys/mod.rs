//! Keys of a config file: each with its allowed values, its default and a description.
//!
//! Mechanisms, models and the sections of a config file are declared once, with the macros below.
//! The struct to deserialize into, the check of a file, `docs/config.md` and the templates of
//! `zoo new` are derived from that declaration.

mod range;

pub use self::range::Range;

/// A key of a section, or of a table within one.
pub struct Key {
    /// Its name in a file.
    pub name: &'static str,
    /// Its description: one sentence, the doc comment of the field.
    pub about: &'static str,
    /// The values it accepts.
    pub values: Values,
    /// Whether it may be omitted.
    pub presence: Presence,
    /// Its default, if that does not depend on other keys.
    pub default: fn() -> Option<toml::Value>,
}

/// Whether a key may be omitted.
#[derive(Clone, Copy)]
pub enum Presence {
    /// Yes: it has a default.
    Usual,
    /// Yes: its default depends on other keys, as described here.
    Optional(&'static str),
    /// No.
    Required,
}

/// The values that a key accepts.
pub enum Values {
    /// An integer from `least` to `most`, inclusive.
    Count {
        /// The smallest value.
        least: i64,
        /// The largest value.
        most: i64,
    },
    /// A number.
    Number(Range),
    /// `true` or `false`.
    Flag,
    /// Any text.
    Text,
    /// A path, relative to the working directory.
    Path,
    /// A path, or a list of two.
    Paths,
    /// One of several names.
    Words(&'static [Variant]),
    /// One of several names, or a table with the name as `kind` and the keys of that kind.
    Choice(&'static Choice),
    /// A backend's name, optionally with a device index.
    Backend,
    /// A list of device indices.
    Devices,
}

/// Several names, some of which have keys of their own.
pub struct Choice {
    /// What is chosen, for messages.
    pub name: &'static str,
    /// The alternatives.
    pub variants: &'static [Variant],
}

/// One of several names.
pub struct Variant {
    /// The name.
    pub word: &'static str,
    /// Aliases.
    pub others: &'static [&'static str],
    /// Its description: the doc comment of the variant.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

impl Variant {
    /// The variant of this name or alias.
    pub fn named(variants: &'static [Self], word: &str) -> Option<&'static Self> {
        let is_it = |variant: &&Self| variant.word == word || variant.others.contains(&word);
        variants.iter().find(is_it)
    }

    /// All names and aliases.
    pub fn words(variants: &'static [Self]) -> impl Iterator<Item = &'static str> {
        let words = variants.iter().map(|variant| variant.word);
        words.chain(variants.iter().flat_map(|variant| variant.others).copied())
    }
}

/// A whole number from `least` to `most`.
pub const fn count(least: i64, most: i64) -> Values {
    Values::Count { least, most }
}

// Upper bounds are far above what anybody trains with, and low enough for products of two sizes to
// be counted. What is too large for one machine is for `estimate` to tell.

/// Numbers of a vector.
pub const WIDTH: Values = count(1, 1 << 20);
/// Layers of a model.
pub const LAYERS: Values = count(1, 4096);
/// Heads of an attention.
pub const HEADS: Values = count(1, 1 << 16);
/// Positions of a sequence: lengths, blocks, strides.
pub const LENGTH: Values = count(1, 1 << 30);
/// The same, or none.
pub const LENGTH_OR_NONE: Values = count(0, 1 << 30);
/// Tokens that are generated one after the other, and what is compared among them.
pub const GENERATED: Values = count(1, 1 << 20);
/// Examples of a batch, or tokens.
pub const BATCH: Values = count(1, 1 << 30);
/// Examples that are generated.
pub const EXAMPLES: Values = count(1, MOST_EXAMPLES);
/// The same, or none.
pub const EXAMPLES_OR_NONE: Values = count(0, MOST_EXAMPLES);
const MOST_EXAMPLES: i64 = 1_000_000_000;
/// Steps of training, and what is counted in them.
pub const STEPS: Values = count(1, MOST_STEPS);
/// The same, or none.
pub const STEPS_OR_NONE: Values = count(0, MOST_STEPS);
const MOST_STEPS: i64 = 1_000_000_000_000;
/// How many of what there is are used at most: any number.
pub const LIMIT: Values = count(1, MOST_STEPS);
/// Any seed that TOML can hold.
pub const SEED: Values = count(0, i64::MAX);
/// Tokens of a vocabulary: the special ones and four more.
pub const TOKENS: Values = count(8, 1 << 21);
/// At least 0 and below 1.
pub const SHARE: Values = Values::Number(Range::SHARE);
/// Above 0.
pub const POSITIVE: Values = Values::Number(Range::POSITIVE);
/// A temperature of attention scores.
pub const TEMPERATURE: Values = Values::Number(Range::TEMPERATURE);
/// A coefficient of a loss term.
pub const COEFFICIENT: Values = Values::Number(Range::COEFFICIENT);
/// A cap of attention scores.
pub const SOFTCAP: Values = Values::Number(Range::SOFTCAP);
/// At least 0.
pub const NOT_NEGATIVE: Values = Values::Number(Range::NOT_NEGATIVE);

/// A struct of keys, each as `name: type = default, values, presence;`.
///
/// `pub struct Name => fields` also declares a macro `fields!(callback Config)`, which calls
/// `callback! { Config { /// description  name: type, … } }`: `zoo-models` derives its builders
/// from it.
#[macro_export]
macro_rules! keys {
    (@presence) => {
        $crate::keys::Presence::Usual
    };
    (@presence $presence:expr) => {
        $presence
    };
    (@fields { $($keys:tt)* }) => {};
    (@fields $fields:ident { $($keys:tt)* }) => {
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $fields {
            ($callback:ident $config:ident) => {
                $callback! { $config { $($keys)* } }
            };
        }
    };
    (
        $(#[doc = $about:literal])+
        $(#[derive($derive:ident)])?
        pub struct $name:ident $(=> $fields:ident)? {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $type:ty = $default:expr, $values:expr $(, $presence:expr)?;
            )*
        }
    ) => {
        $crate::keys! {
            @fields $($fields)? { $( $(#[doc = $doc])+ $key: $type, )* }
        }

        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        $(#[derive($derive)])?
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $key: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: $default, )* }
            }
        }

        impl $name {
            /// Its keys.
            pub const KEYS: &'static [$crate::keys::Key] = &[
                $( $crate::keys::Key {
                    name: stringify!($key),
                    about: concat!($($doc),+),
                    values: $values,
                    presence: $crate::keys!(@presence $($presence)?),
                    default: || toml::Value::try_from::<$type>($default).ok(),
                }, )*
            ];
        }
    };
}

/// An enum of words, each as `Name = "word"`. `: "what"` is what its words are called in errors;
/// `= Name` after it makes that variant the default.
#[macro_export]
macro_rules! words {
    (
        $(#[doc = $about:literal])*
        $(#[derive($($derive:path),+)])?
        pub enum $name:ident: $what:literal $(= $default:ident)? {
            $( $(#[doc = $doc:literal])* $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        $(#[derive($($derive),+)])?
        pub enum $name {
            $( $(#[doc = $doc])* #[serde(rename = $word)] $variant, )+
        }

        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Every name with its description.
            pub const WORDS: &'static [$crate::keys::Variant] = &[
                $( $crate::keys::Variant {
                    word: $word,
                    others: &[],
                    about: concat!($($doc),*),
                    keys: &[],
                }, )+
            ];

            /// Its name.
            pub fn word(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        $( impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        } )?

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|known| known.word() == word);
                found.ok_or_else(|| Self::Err::new($what, word, Self::ALL.map(Self::word)))
            }
        }
    };
}

/// An enum of kinds, each as `Name(Keys) = "word"`, or without keys of its own.
#[macro_export]
macro_rules! kinds {
    (@keys) => {
        &[]
    };
    (@keys $keys:ident) => {
        $keys::KEYS
    };
    (
        $(#[doc = $about:literal])+
        $(#[derive($derive:ident)])?
        pub enum $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $variant:ident $(($keys:ident))? = $word:literal $(| $other:literal)*,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        $(#[derive($derive)])?
        #[serde(tag = "kind")]
        pub enum $name {
            $(
                $(#[doc = $doc])+
                #[serde(rename = $word $(, alias = $other)*)]
                $variant $(($keys))?,
            )+
        }

        impl $name {
            /// Every kind with its description and keys.
            pub const KINDS: &'static [$crate::keys::Variant] = &[
                $( $crate::keys::Variant {
                    word: $word,
                    others: &[$($other),*],
                    about: concat!($($doc),+),
                    keys: $crate::kinds!(@keys $($keys)?),
                }, )+
            ];

            /// The word for it.
            pub fn word(&self) -> &'static str {
                match self { $( Self::$variant { .. } => $word, )+ }
            }
        }
    };
}

/// A value that a key does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue {
    /// The key, `positions.longest` for that of a table.
    pub key: String,
    /// What it accepts.
    pub allowed: String,
    /// The value.
    pub got: String,
}

impl Key {
    /// Checks integers and numbers against their bounds; other values are checked by their types.
    fn check(&self, value: &toml::Value) -> Result<(), InvalidValue> {
        let allowed = match (&self.values, value) {
            (Values::Choice(choice), toml::Value::Table(table)) => {
                let kind = table.get("kind").and_then(toml::Value::as_str);
                let variant = kind.and_then(|kind| Variant::named(choice.variants, kind));
                let keys = variant.map_or(&[][..], |variant| variant.keys);
                return check_table(table, keys).map_err(|wrong| InvalidValue {
                    key: format!("{}.{}", self.name, wrong.key),
                    ..wrong
                });
            }
            (Values::Count { least, .. }, toml::Value::Integer(value)) if value < least => {
                format!("at least {least}")
            }
            (Values::Count { most, .. }, toml::Value::Integer(value)) if value > most => {
                format!("at most {most}")
            }
            (Values::Number(range), toml::Value::Float(value)) if !range.contains(*value) => {
                range.to_string()
            }
            _ => return Ok(()),
        };
        Err(InvalidValue {
            key: self.name.to_owned(),
            allowed,
            got: value.to_string(),
        })
    }
}

/// Checks every integer and number of a struct of keys against the bounds of its key.
///
/// # Errors
///
/// [`InvalidValue`] for the first that is out of range.
pub fn check_keys(of: &impl serde::Serialize, keys: &[Key]) -> Result<(), InvalidValue> {
    match toml::Table::try_from(of) {
        Ok(table) => check_table(&table, keys),
        // Only an integer beyond what TOML can represent, a seed, cannot be converted.
        Err(_) => Ok(()),
    }
}

fn check_table(table: &toml::Table, keys: &[Key]) -> Result<(), InvalidValue> {
    let given = |key: &&Key| table.contains_key(key.name);
    let mut given = keys.iter().filter(given);
    given.try_for_each(|key| key.check(&table[key.name]))
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro declares what is public")]
mod tests {
    crate::words! {
        /// What is done with a list.
        pub enum Operation: "operation" = Min {
            /// The largest.
            Max = "max",
            /// The least.
            Min = "min",
        }
    }

    #[test]
    fn every_word_reads_back() {
        for one in Operation::ALL {
            assert_eq!(one.word().parse(), Ok(one));
            assert_eq!(one.to_string(), one.word());
            let json = serde_json::to_string(&one).unwrap();
            assert_eq!(json, format!("\"{one}\""));
            assert_eq!(serde_json::from_str::<Operation>(&json).unwrap(), one);
        }
        let error = "mxa".parse::<Operation>().unwrap_err();
        assert_eq!(error.nearest(), Some("max"));
        assert_eq!(error.known, Operation::ALL.map(Operation::word));
        assert_eq!(Operation::default(), Operation::Min);
        let described = Operation::WORDS.iter().map(|variant| variant.word);
        assert!(described.eq(Operation::ALL.map(Operation::word)));
    }
}
