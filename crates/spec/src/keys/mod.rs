//! Keys of a config file: each with its allowed values, its default and a description.
//!
//! Mechanisms, models and the sections of a config file are declared once, with the macros below.
//! The struct to deserialize into, the check of a file, `docs/config.md` and the templates of
//! `zoo new` are derived from that declaration.

mod range;

pub use self::range::Range;

/// A key of a section, or of a table within one.
pub struct Key {
    /// Name in a file.
    pub name: &'static str,
    /// Description: one sentence, the doc comment of the field.
    pub about: &'static str,
    /// Accepted values.
    pub values: Values,
    /// Whether the key may be omitted.
    pub presence: Presence,
    /// Default value, if it does not depend on other keys.
    pub default: fn() -> Option<toml::Value>,
}

/// Whether a key may be omitted.
#[derive(Clone, Copy)]
pub enum Presence {
    /// Yes: it has a fixed default.
    Default,
    /// Yes: its default depends on other keys, as described here.
    Optional(&'static str),
    /// No.
    Required,
}

/// The values that a key accepts.
pub enum Values {
    /// An integer from `min` to `max`, inclusive.
    Count {
        /// The smallest value.
        min: i64,
        /// The largest value.
        max: i64,
    },
    /// A floating-point number.
    Number(Range),
    /// `true` or `false`.
    Bool,
    /// A string.
    Text,
    /// A path, relative to the working directory.
    Path,
    /// A path, or a list of two.
    Paths,
    /// One of several names.
    Names(&'static [Variant]),
    /// One of several names, or a table with the name as `kind` and the keys of that kind.
    Choice(Choice),
    /// The same, or a list of them.
    Choices(Choice),
    /// A backend's name, optionally with a device index.
    Backend,
    /// A list of device indices.
    Devices,
}

impl Values {
    /// The choice, also of each element of a list.
    pub fn choice(&self) -> Option<Choice> {
        match self {
            Self::Choice(choice) | Self::Choices(choice) => Some(*choice),
            Self::Count { .. }
            | Self::Number(_)
            | Self::Bool
            | Self::Text
            | Self::Path
            | Self::Paths
            | Self::Names(_)
            | Self::Backend
            | Self::Devices => None,
        }
    }
}

/// A choice among names, some of which have keys of their own.
#[derive(Clone, Copy)]
pub struct Choice {
    /// What is chosen, for messages and headings.
    pub name: &'static str,
    /// The alternatives.
    pub variants: &'static [Variant],
}

/// One of several names.
pub struct Variant {
    /// The name.
    pub name: &'static str,
    /// Aliases.
    pub aliases: &'static [&'static str],
    /// Description of the variant: its doc comment.
    pub about: &'static str,
    /// Keys of its own.
    pub keys: &'static [Key],
}

impl Variant {
    /// The variant of this name or alias.
    pub fn named(variants: &'static [Self], name: &str) -> Option<&'static Self> {
        let matches = |variant: &&Self| variant.name == name || variant.aliases.contains(&name);
        variants.iter().find(matches)
    }

    /// All names and aliases.
    pub fn names(variants: &'static [Self]) -> impl Iterator<Item = &'static str> {
        let names = variants.iter().map(|variant| variant.name);
        names.chain(variants.iter().flat_map(|variant| variant.aliases).copied())
    }
}

/// An integer from `min` to `max`, inclusive.
pub const fn count(min: i64, max: i64) -> Values {
    Values::Count { min, max }
}

/// One of several names, or a table with the name as `kind` and the keys of that kind.
pub const fn choice(name: &'static str, variants: &'static [Variant]) -> Values {
    Values::Choice(Choice { name, variants })
}

// Upper bounds are far above practical sizes, and low enough that products of two sizes do not
// overflow. `zoo-config` estimates whether a model fits into memory.

/// Size of a vector.
pub const WIDTH: Values = count(1, 1 << 20);
/// Positions of a short convolution.
pub const KERNEL: Values = count(2, 16);
/// Number of layers.
pub const LAYERS: Values = count(1, 4096);
/// Number of attention heads.
pub const HEADS: Values = count(1, 1 << 16);
/// Positions of a sequence: lengths, blocks, strides.
pub const LENGTH: Values = count(1, 1 << 30);
/// The same, or 0.
pub const LENGTH_OR_NONE: Values = count(0, 1 << 30);
/// Number of generated tokens, or n-gram length.
pub const GENERATED: Values = count(1, 1 << 20);
/// Examples or tokens per batch.
pub const BATCH: Values = count(1, 1 << 30);
/// Number of synthetic examples.
pub const EXAMPLES: Values = count(1, MAX_EXAMPLES);
/// The same, or 0.
pub const EXAMPLES_OR_NONE: Values = count(0, MAX_EXAMPLES);
const MAX_EXAMPLES: i64 = 1_000_000_000;
/// Number of training steps.
pub const STEPS: Values = count(1, MAX_STEPS);
/// The same, or 0.
pub const STEPS_OR_NONE: Values = count(0, MAX_STEPS);
/// The largest number of steps.
pub const MAX_STEPS: i64 = 1_000_000_000_000;
/// A maximum number of examples, tokens or beams.
pub const LIMIT: Values = count(1, MAX_STEPS);
/// Any seed that TOML can hold.
pub const SEED: Values = count(0, i64::MAX);
/// Vocabulary size: the special tokens and at least four more.
pub const TOKENS: Values = count(8, 1 << 21);
/// At least 0 and below 1.
pub const PROBABILITY: Values = Values::Number(Range::PROBABILITY);
/// Above 0.
pub const POSITIVE: Values = Values::Number(Range::POSITIVE);
/// Temperature of attention scores.
pub const TEMPERATURE: Values = Values::Number(Range::TEMPERATURE);
/// Coefficient of a loss term.
pub const COEFFICIENT: Values = Values::Number(Range::COEFFICIENT);
/// Softcap of attention scores.
pub const SOFTCAP: Values = Values::Number(Range::SOFTCAP);
/// At least 1.
pub const FACTOR: Values = Values::Number(Range::FACTOR);
/// At least 0.
pub const NOT_NEGATIVE: Values = Values::Number(Range::NOT_NEGATIVE);

/// Structs of keys, each as `name: type = default, values, presence;`.
///
/// `pub struct Name => fields` also declares a macro `fields!(callback Config)`, which calls
/// `callback! { Config { /// description  name: type, … } }`: `zoo-models` derives its builders
/// from it.
#[macro_export]
macro_rules! keys {
    (@presence) => {
        $crate::keys::Presence::Default
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
    ($(
        $(#[doc = $about:literal])+
        $(#[derive($derive:ident)])?
        pub struct $name:ident $(=> $fields:ident)? {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)+)])?
                $key:ident: $type:ty = $default:expr, $values:expr $(, $presence:expr)?;
            )*
        }
    )+) => { $(
        $crate::keys! {
            @fields $($fields)? { $( $(#[doc = $doc])+ $key: $type, )* }
        }

        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        $(#[derive($derive)])?
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $( $(#[doc = $doc])+ $(#[serde($($serde)+)])? pub $key: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: $default, )* }
            }
        }

        impl $name {
            /// The keys of the struct.
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
    )+ };
}

/// Enums of names, each as `Variant = "name"`. `: "what"` is what errors call such a name; an
/// optional `= Variant` after it is the default.
#[macro_export]
macro_rules! names {
    ($(
        $(#[doc = $about:literal])*
        $(#[derive($($derive:path),+)])?
        pub enum $type:ident: $what:literal $(= $default:ident)? {
            $( $(#[doc = $doc:literal])* $variant:ident = $name:literal, )+
        }
    )+) => { $(
        $(#[doc = $about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        $(#[derive($($derive),+)])?
        pub enum $type {
            $( $(#[doc = $doc])* #[serde(rename = $name)] $variant, )+
        }

        impl $type {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Every name with its description.
            pub const NAMES: &'static [$crate::keys::Variant] = &[
                $( $crate::keys::Variant {
                    name: $name,
                    aliases: &[],
                    about: concat!($($doc),*),
                    keys: &[],
                }, )+
            ];

            /// Name of the variant.
            pub fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }
        }

        $( impl Default for $type {
            fn default() -> Self {
                Self::$default
            }
        } )?

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|known| known.name() == name);
                found.ok_or_else(|| Self::Err::new($what, name, Self::ALL.map(Self::name)))
            }
        }
    )+ };
}

/// Enums of kinds, each as `Variant(Keys) = "name" | "alias"`, or without keys.
#[macro_export]
macro_rules! kinds {
    (@keys) => {
        &[]
    };
    (@keys $keys:ident) => {
        $keys::KEYS
    };
    ($(
        $(#[doc = $about:literal])+
        $(#[derive($derive:ident)])?
        pub enum $type:ident {
            $(
                $(#[doc = $doc:literal])+
                $variant:ident $(($keys:ident))? = $name:literal $(| $alias:literal)*,
            )+
        }
    )+) => { $(
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        $(#[derive($derive)])?
        #[serde(tag = "kind")]
        pub enum $type {
            $(
                $(#[doc = $doc])+
                #[serde(rename = $name $(, alias = $alias)*)]
                $variant $(($keys))?,
            )+
        }

        impl $type {
            /// Every kind with its description and keys.
            pub const KINDS: &'static [$crate::keys::Variant] = &[
                $( $crate::keys::Variant {
                    name: $name,
                    aliases: &[$($alias),*],
                    about: concat!($($doc),+),
                    keys: $crate::kinds!(@keys $($keys)?),
                }, )+
            ];

            /// Name of the variant.
            pub fn name(&self) -> &'static str {
                match self { $( Self::$variant { .. } => $name, )+ }
            }
        }
    )+ };
}

/// A value that a key does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue {
    /// The key; `positions.max_positions` for a key of a table.
    pub key: String,
    /// Accepted values.
    pub allowed: String,
    /// The value.
    pub got: String,
}

impl Key {
    /// Checks integers and numbers against their bounds; other values are checked by their types.
    fn check(&self, value: &toml::Value) -> Result<(), InvalidValue> {
        let allowed = match (&self.values, value) {
            (Values::Choice(choice) | Values::Choices(choice), toml::Value::Table(table)) => {
                return self.check_choice(choice, table);
            }
            (Values::Choices(choice), toml::Value::Array(list)) => {
                let mut tables = list.iter().filter_map(toml::Value::as_table);
                return tables.try_for_each(|table| self.check_choice(choice, table));
            }
            (Values::Count { min, .. }, toml::Value::Integer(value)) if value < min => {
                format!("at least {min}")
            }
            (Values::Count { max, .. }, toml::Value::Integer(value)) if value > max => {
                format!("at most {max}")
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

    /// Checks the keys of a table with a kind.
    fn check_choice(&self, choice: &Choice, table: &toml::Table) -> Result<(), InvalidValue> {
        let kind = table.get("kind").and_then(toml::Value::as_str);
        let variant = kind.and_then(|kind| Variant::named(choice.variants, kind));
        let keys = variant.map_or(&[][..], |variant| variant.keys);
        check_table(table, keys).map_err(|wrong| InvalidValue {
            key: format!("{}.{}", self.name, wrong.key),
            ..wrong
        })
    }
}

/// Checks every integer and number of a struct of keys against the bounds of its key.
///
/// # Errors
///
/// [`InvalidValue`] for the first value out of range.
pub fn check_keys(config: &impl serde::Serialize, keys: &[Key]) -> Result<(), InvalidValue> {
    match toml::Table::try_from(config) {
        Ok(table) => check_table(&table, keys),
        // Only an integer beyond what TOML can represent, a seed, cannot be converted.
        Err(_) => Ok(()),
    }
}

fn check_table(table: &toml::Table, keys: &[Key]) -> Result<(), InvalidValue> {
    let mut present = keys.iter().filter(|key| table.contains_key(key.name));
    present.try_for_each(|key| key.check(&table[key.name]))
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro declares public items")]
mod tests {
    crate::names! {
        /// An operation on a list.
        pub enum Operation: "operation" = Min {
            /// The largest.
            Max = "max",
            /// The smallest.
            Min = "min",
        }
    }

    #[test]
    fn names_round_trip() {
        for one in Operation::ALL {
            assert_eq!(one.name().parse(), Ok(one));
            assert_eq!(one.to_string(), one.name());
            let json = serde_json::to_string(&one).unwrap();
            assert_eq!(json, format!("\"{one}\""));
            assert_eq!(serde_json::from_str::<Operation>(&json).unwrap(), one);
        }
        let error = "mxa".parse::<Operation>().unwrap_err();
        assert_eq!(error.nearest(), Some("max"));
        assert_eq!(error.known, Operation::ALL.map(Operation::name));
        assert_eq!(Operation::default(), Operation::Min);
        let described = Operation::NAMES.iter().map(|variant| variant.name);
        assert!(described.eq(Operation::ALL.map(Operation::name)));
    }
}
