//! What a config file may say: every key with its values, its default and one sentence.
//!
//! Sections are written once, with the macros below. A struct to read into, the check of a file,
//! `docs/config.md` and the templates of `zoo new` all come from there.

mod mechanisms;
mod range;
#[cfg(test)]
mod tests;

pub(crate) use self::mechanisms::MECHANISMS;
pub(crate) use self::range::Range;

/// A key of a section, or of a table within one.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// One sentence, as it stands in the source.
    pub(crate) about: &'static str,
    pub(crate) values: Values,
    pub(crate) presence: Presence,
    /// What it is when it is left out, if that is always the same.
    pub(crate) default: fn() -> Option<toml::Value>,
}

/// What happens when a key is left out.
#[derive(Clone, Copy)]
pub(crate) enum Presence {
    /// It has its default.
    Usual,
    /// It has none, or one that depends on other keys: which one, in words.
    Optional(&'static str),
    /// A mistake.
    Required,
}

/// What a key may be.
pub(crate) enum Values {
    /// A whole number between two bounds, both allowed.
    Count { least: i64, most: i64 },
    /// A number.
    Number(Range),
    /// `true` or `false`.
    Flag,
    /// Any text.
    Text,
    /// A path, from where the program is started.
    Path,
    /// A path, or a list of two.
    Paths,
    /// One word of several.
    Words(&'static [Variant]),
    /// One word of several, or a table with it as `kind` and what else belongs to it.
    Choice(&'static Choice),
    /// A backend's word, with a device's number or without.
    Backend,
    /// A list of whole numbers.
    Devices,
}

/// Several words, of which some have keys of their own.
pub(crate) struct Choice {
    /// What they are called together.
    pub(crate) name: &'static str,
    pub(crate) variants: &'static [Variant],
}

/// One of several words.
pub(crate) struct Variant {
    pub(crate) word: &'static str,
    /// What else may be written for it.
    pub(crate) others: &'static [&'static str],
    pub(crate) about: &'static str,
    /// What may stand beside it.
    pub(crate) keys: &'static [Key],
}

/// A section of a file.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) body: Body,
}

/// What a section holds.
pub(crate) enum Body {
    Keys(&'static [Key]),
    /// A `kind`, and the keys of that kind.
    Kinds(&'static [Variant], UsualKind),
}

/// What a `kind` is when it is left out.
pub(crate) enum UsualKind {
    /// A mistake.
    Required,
    /// This one.
    Word(&'static str),
    /// One that fits the kind of data.
    OfData(fn(&str) -> &'static str),
}

impl Variant {
    /// The variant that is written so.
    pub(crate) fn named(variants: &'static [Self], word: &str) -> Option<&'static Self> {
        let is_it = |variant: &&Self| variant.word == word || variant.others.contains(&word);
        variants.iter().find(is_it)
    }

    /// All words that may be written.
    pub(crate) fn words(variants: &'static [Self]) -> impl Iterator<Item = &'static str> {
        let words = variants.iter().map(|variant| variant.word);
        words.chain(variants.iter().flat_map(|variant| variant.others).copied())
    }
}

impl Section {
    /// Keys by the kinds that have them; one nameless kind where there are none.
    pub(crate) fn tables(&self) -> Vec<(Option<&'static Variant>, &'static [Key])> {
        match self.body {
            Body::Keys(keys) => vec![(None, keys)],
            Body::Kinds(kinds, _) => kinds.iter().map(|kind| (Some(kind), kind.keys)).collect(),
        }
    }
}

/// A whole number from `least` to `most`.
pub(crate) const fn count(least: i64, most: i64) -> Values {
    Values::Count { least, most }
}

// Upper bounds are far above what anybody trains with, and low enough for products of two sizes to
// be counted. What is too large for one machine is for `estimate` to tell.

/// Numbers of a vector.
pub(crate) const WIDTH: Values = count(1, 1 << 20);
/// Layers of a model.
pub(crate) const LAYERS: Values = count(1, 4096);
/// Heads of an attention.
pub(crate) const HEADS: Values = count(1, 1 << 16);
/// Positions of a sequence: lengths, blocks, strides.
pub(crate) const LENGTH: Values = count(1, 1 << 30);
/// The same, or none.
pub(crate) const LENGTH_OR_NONE: Values = count(0, 1 << 30);
/// Tokens that are generated one after the other, and what is compared among them.
pub(crate) const GENERATED: Values = count(1, 1 << 20);
/// Examples of a batch, or tokens.
pub(crate) const BATCH: Values = count(1, 1 << 30);
/// Examples that are generated.
pub(crate) const EXAMPLES: Values = count(1, MOST_EXAMPLES);
/// The same, or none.
pub(crate) const EXAMPLES_OR_NONE: Values = count(0, MOST_EXAMPLES);
const MOST_EXAMPLES: i64 = 1_000_000_000;
/// Steps of training, and what is counted in them.
pub(crate) const STEPS: Values = count(1, MOST_STEPS);
/// The same, or none.
pub(crate) const STEPS_OR_NONE: Values = count(0, MOST_STEPS);
const MOST_STEPS: i64 = 1_000_000_000_000;
/// How many of what there is are used at most: any number.
pub(crate) const LIMIT: Values = count(1, MOST_STEPS);
/// Any seed that TOML can hold.
pub(crate) const SEED: Values = count(0, i64::MAX);
/// Tokens of a vocabulary: the special ones and four more.
pub(crate) const TOKENS: Values = count(8, 1 << 21);
/// At least 0 and below 1.
pub(crate) const SHARE: Values = Values::Number(Range::SHARE);
/// Above 0.
pub(crate) const POSITIVE: Values = Values::Number(Range::POSITIVE);
/// At least 0.
pub(crate) const NOT_NEGATIVE: Values = Values::Number(Range::NOT_NEGATIVE);

/// A struct of keys, each as `name: type = default, values, presence;`.
macro_rules! keys {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $type:ty = $default:expr, $values:expr $(, $presence:expr)?;
            )*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
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
            pub(crate) const KEYS: &'static [crate::keys::Key] = &[
                $( crate::keys::Key {
                    name: stringify!($key),
                    about: concat!($($doc),+),
                    values: $values,
                    presence: crate::keys::usual_or!($($presence)?),
                    default: || toml::Value::try_from::<$type>($default).ok(),
                }, )*
            ];
        }
    };
}

macro_rules! usual_or {
    () => {
        crate::keys::Presence::Usual
    };
    ($presence:expr) => {
        $presence
    };
}

/// An enum of words, each as `Name = "word"`.
macro_rules! words {
    (
        $(#[doc = $about:literal])+
        pub enum $name:ident {
            $( $(#[doc = $doc:literal])+ $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $( $(#[doc = $doc])+ #[serde(rename = $word)] $variant, )+
        }

        impl $name {
            pub(crate) const WORDS: &'static [crate::keys::Variant] = &[
                $( crate::keys::Variant {
                    word: $word,
                    others: &[],
                    about: concat!($($doc),+),
                    keys: &[],
                }, )+
            ];

            /// The word for it.
            pub fn word(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }
    };
}

/// An enum of kinds, each as `Name(Keys) = "word"`, or without keys of its own.
macro_rules! kinds {
    (
        $(#[doc = $about:literal])+
        pub enum $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $variant:ident $(($keys:ident))? = $word:literal $(| $other:literal)*,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "kind")]
        pub enum $name {
            $( $(#[doc = $doc])+ #[serde(rename = $word)] $variant $(($keys))?, )+
        }

        impl $name {
            pub(crate) const KINDS: &'static [crate::keys::Variant] = &[
                $( crate::keys::Variant {
                    word: $word,
                    others: &[$($other),*],
                    about: concat!($($doc),+),
                    keys: crate::keys::keys_of!($($keys)?),
                }, )+
            ];

            /// The word for it.
            pub fn word(&self) -> &'static str {
                match self { $( Self::$variant { .. } => $word, )+ }
            }
        }
    };
}

macro_rules! keys_of {
    () => {
        &[]
    };
    ($keys:ident) => {
        $keys::KEYS
    };
}

pub(crate) use {keys, keys_of, kinds, usual_or, words};
