//! The registry of attention mechanisms.
//!
//! Each mechanism is a struct in a file of its own: its keys with their defaults, its
//! [description](About), its [capabilities](Capabilities) and a small instance for tests. The
//! list in [`for_each_mechanism!`](crate::for_each_mechanism) is the only one in the workspace:
//! the enums below, the keys of a config file, the README's table and the dispatch of
//! `zoo-attention` are generated from it. The oracle matches on every mechanism.

mod capabilities;
#[macro_use]
mod declare;

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::capabilities::{
    Capabilities, Difference, KvHeads, Padding, Support, SupportedOptions,
};
pub use self::declare::{About, Exactness};
pub use self::linear::LinearFeatures;
use crate::UnknownName;
use crate::keys::{Choice, InvalidValue, Key, Variant, check_keys};

/// Calls the macro `$callback` with every mechanism as `module::Type`, in the order in which they
/// are shown. `zoo-attention` has a file `mechanisms/<module>.rs` for each.
#[macro_export]
macro_rules! for_each_mechanism {
    ($callback:ident) => {
        $callback! {
            standard::Standard,
            flash::Flash,
            multi_query::MultiQuery,
            grouped_query::GroupedQuery,
            mla::Mla,
            dot::Dot,
            multiplicative::Multiplicative,
            additive::Additive,
            hard::Hard,
            sink::Sink,
            sigmoid::Sigmoid,
            differential::Differential,
            relative::Relative,
            forgetting::Forgetting,
            sliding_window::SlidingWindow,
            local_m::LocalM,
            local_p::LocalP,
            block::Block,
            strided::Strided,
            fixed::Fixed,
            longformer::Longformer,
            big_bird::BigBird,
            lsh::Lsh,
            moba::Moba,
            native_sparse::NativeSparse,
            nystrom::Nystrom,
            linformer::Linformer,
            linear::Linear,
            performer::Performer,
            cosformer::Cosformer,
            based::Based,
            retention::Retention,
            lightning::Lightning,
            mamba2::Mamba2,
            gla::Gla,
            delta::Delta,
            gated_delta::GatedDelta,
            kda::Kda,
        }
    };
}

macro_rules! registry {
    ($($module:ident::$type:ident),+ $(,)?) => {
        $(
            mod $module;
            pub use self::$module::$type;
        )+

        /// A mechanism, without its keys.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Mechanism {
            $(
                #[doc = concat!("See [`", stringify!($type), "`](struct@", stringify!($type), ").")]
                $type,
            )+
        }

        /// A mechanism with its keys. In a file, either a name, `"flash"`, for the defaults,
        /// or a table, `{ kind = "longformer", window = 256, global = 1 }`.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub enum MechanismConfig {
            $(
                #[doc = concat!("See [`", stringify!($type), "`](struct@", stringify!($type), ").")]
                $type($type),
            )+
        }

        $(
            impl From<$type> for MechanismConfig {
                fn from(config: $type) -> Self {
                    Self::$type(config)
                }
            }

            impl From<$type> for crate::LayerMechanisms {
                fn from(config: $type) -> Self {
                    MechanismConfig::from(config).into()
                }
            }
        )+

        impl From<Mechanism> for MechanismConfig {
            /// With default keys.
            fn from(mechanism: Mechanism) -> Self {
                match mechanism {
                    $( Mechanism::$type => Self::$type($type::default()), )+
                }
            }
        }

        impl Mechanism {
            /// Every mechanism, in the order in which they are shown.
            pub const ALL: [Self; Self::COUNT] = [$( Self::$type, )+];
            const COUNT: usize = [$( stringify!($type) ),+].len();

            /// Complexity, exactness and source of the mechanism.
            pub fn about(self) -> About {
                match self {
                    $( Self::$type => $type::ABOUT, )+
                }
            }

            /// A configuration that differs from full attention with nine positions and four
            /// heads.
            pub fn small_for_tests(self) -> MechanismConfig {
                match self {
                    $( Self::$type => $type::small_for_tests().into(), )+
                }
            }

            /// The mechanism with the keys of a table.
            fn with_keys(self, table: Table) -> Result<MechanismConfig, serde_json::Error> {
                Ok(match self {
                    $( Self::$type => serde_json::from_value::<$type>(table.into())?.into(), )+
                })
            }
        }

        impl MechanismConfig {
            /// Which mechanism it is.
            pub fn mechanism(&self) -> Mechanism {
                match self {
                    $( Self::$type(_) => Mechanism::$type, )+
                }
            }

            /// What it can be used for.
            pub fn capabilities(&self) -> Capabilities {
                match self {
                    $( Self::$type(config) => config.capabilities(), )+
                }
            }
        }

        impl Serialize for MechanismConfig {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let kind = self.mechanism().name();
                match self {
                    $( Self::$type(keys) => WithKind { kind, keys }.serialize(serializer), )+
                }
            }
        }

        const VARIANTS: [Variant; Mechanism::COUNT] = [$( $type::VARIANT, )+];
    };
}

for_each_mechanism!(registry);

/// A table of a file, without its `kind`.
type Table = serde_json::Map<String, serde_json::Value>;

/// Every mechanism as a choice of a config file.
pub const MECHANISMS: Choice = Choice {
    name: "attention",
    variants: &VARIANTS,
};

impl Mechanism {
    fn variant(self) -> &'static Variant {
        &MECHANISMS.variants[self as usize]
    }

    /// Name of the mechanism.
    pub fn name(self) -> &'static str {
        self.variant().name
    }

    /// Other names of the mechanism.
    pub fn aliases(self) -> &'static [&'static str] {
        self.variant().aliases
    }

    /// What it computes, in one sentence without a full stop.
    pub fn summary(self) -> &'static str {
        self.variant().about.trim().trim_end_matches('.')
    }

    /// Config keys of the mechanism.
    pub fn keys(self) -> &'static [Key] {
        self.variant().keys
    }

    /// Whether the mechanism computes its weights as a matrix and can return them.
    pub fn returns_weights(self) -> bool {
        MechanismConfig::from(self).capabilities().returns_weights
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|one| one.name() == name || one.aliases().contains(&name));
        let known = Variant::names(MECHANISMS.variants);
        found.ok_or_else(|| UnknownName::new("mechanism", name, known))
    }
}

impl MechanismConfig {
    /// Key and value heads for `heads` query heads, if the mechanism determines them.
    pub fn kv_heads(&self, heads: usize) -> Option<usize> {
        self.capabilities().kv_heads.count(heads)
    }

    /// Elements of a query that rotary positions apply to, or a fraction of which they apply to, in
    /// heads of this size.
    pub fn rotary_width(&self, d_head: usize) -> usize {
        match self {
            Self::Mla(mla) => mla.rope_of(d_head),
            _ => d_head,
        }
    }

    /// Checks the value of every key.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] naming the key, the allowed values and the value.
    pub fn check(&self) -> Result<(), InvalidValue> {
        check_keys(self, self.mechanism().keys())
    }
}

/// A table of a file.
#[derive(Serialize)]
struct WithKind<'a, T> {
    kind: &'static str,
    #[serde(flatten)]
    keys: &'a T,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "the name of a mechanism, or a table with its kind and keys"
)]
enum NameOrTable {
    Name(String),
    Table(Table),
}

impl<'de> Deserialize<'de> for MechanismConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = match NameOrTable::deserialize(deserializer)? {
            NameOrTable::Name(name) => {
                let mechanism: Mechanism = name.parse().map_err(D::Error::custom)?;
                return Ok(mechanism.into());
            }
            NameOrTable::Table(table) => table,
        };
        let kind = table.remove("kind");
        let kind = kind.ok_or_else(|| D::Error::missing_field("kind"))?;
        let kind = kind.as_str().unwrap_or_default();
        let mechanism: Mechanism = kind.parse().map_err(D::Error::custom)?;
        let is_known = |name: &str| mechanism.keys().iter().any(|key| key.name == name);
        if let Some(name) = table.keys().find(|name| !is_known(name)) {
            return Err(D::Error::custom(format!("{mechanism} has no {name}")));
        }
        let config = mechanism.with_keys(table);
        config.map_err(|error| D::Error::custom(format!("{mechanism}: {error}")))
    }
}

#[cfg(test)]
mod tests;
