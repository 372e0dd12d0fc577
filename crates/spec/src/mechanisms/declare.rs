//! The declaration of a mechanism.

/// Complexity, exactness, formula and source of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// How its time grows with the sequence length n.
    pub time: &'static str,
    /// How its memory grows, beyond its inputs and outputs.
    pub memory: &'static str,
    /// How it relates to softmax attention over the visible keys.
    pub exactness: Exactness,
    /// Output o_i of query q_i, from keys k_j and values v_j of d elements.
    pub formula: &'static str,
    /// First author and year, and the paper's address.
    pub paper: (&'static str, &'static str),
    /// Its chapter, a file of `docs/mechanisms`.
    pub chapter: &'static str,
}

crate::names! {
    /// How a mechanism relates to softmax attention over the visible keys.
    pub enum Exactness: "exactness" {
        /// It computes the same function, up to rounding.
        Exact = "exact",
        /// It approximates it.
        Approximate = "approximate",
        /// It is a different function.
        Different = "different function",
    }
}

/// Declares the struct of a mechanism: name and aliases, complexity, formula and source, each key as
/// `name: type = default, small value, values, presence;`, and its capabilities.
///
/// The `small` values are for tests: with nine positions and four heads the mechanism must differ
/// from full attention, and they must not depend on the sequence length.
macro_rules! mechanism {
    (
        $(#[doc = $doc:literal])+
        #[about(time = $time:literal, memory = $memory:literal, $exactness:ident, $chapter:literal)]
        #[formula($formula:literal)]
        #[paper($authors:literal, $url:literal)]
        pub struct $type:ident = $name:literal $(| $alias:literal)* $({
            $(
                $(#[doc = $about:literal])+
                $(#[serde($($serde:tt)+)])?
                $key:ident: $kind:ty = $default:expr, small $small:expr,
                $values:expr $(, $presence:expr)?;
            )+
        })?

        capabilities: |$config:pat_param| $capabilities:expr
    ) => {
        $crate::keys! {
            $(#[doc = $doc])+
            #[derive(Copy)]
            pub struct $type {
                $($(
                    $(#[doc = $about])+
                    $(#[serde($($serde)+)])?
                    $key: $kind = $default, $values $(, $presence)?;
                )+)?
            }
        }

        impl $type {
            pub(super) const VARIANT: $crate::keys::Variant = $crate::keys::Variant {
                name: $name,
                aliases: &[$($alias),*],
                about: concat!($($doc),+),
                keys: Self::KEYS,
            };

            pub(super) const ABOUT: super::About = super::About {
                time: $time,
                memory: $memory,
                exactness: super::Exactness::$exactness,
                formula: $formula,
                paper: ($authors, $url),
                chapter: $chapter,
            };

            pub(super) fn small_for_tests() -> Self {
                Self { $($( $key: $small, )+)? }
            }

            pub(super) fn capabilities(&self) -> super::Capabilities {
                let $config = self;
                $capabilities
            }
        }
    };
}
