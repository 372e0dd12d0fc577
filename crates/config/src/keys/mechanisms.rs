//! The mechanisms of attention with their sizes, as [`zoo_spec::MechanismConfig`] has them.

use zoo_spec::{Mechanism, MechanismConfig};

use super::{
    Choice, HEADS, Key, LENGTH, LENGTH_OR_NONE, Presence, Range, SEED, STEPS_OR_NONE, Values,
    Variant, WIDTH, count,
};

/// A size, with the default that `zoo-spec` has for it.
macro_rules! key {
    ($mechanism:ident, $name:literal, $values:expr, $about:literal) => {
        Key {
            name: $name,
            about: $about,
            values: $values,
            presence: Presence::Usual,
            default: || usual(Mechanism::$mechanism, $name),
        }
    };
}

/// Every mechanism, by the words of `zoo-spec`.
pub(crate) const MECHANISMS: Choice = Choice {
    name: "attention",
    variants: VARIANTS,
};

const VARIANTS: &[Variant] = &[
    plain("standard", "Softmax attention with every weight held."),
    Variant {
        others: &["scaled-dot", "global"],
        ..plain("flash", "The same, tile by tile.")
    },
    plain(
        "multi-query",
        "The same, all query heads over one head of keys and values.",
    ),
    Variant {
        keys: &[Key {
            presence: Presence::Optional("a fourth of the query heads"),
            ..key!(GroupedQuery, "kv_heads", HEADS, "Heads of keys and values.")
        }],
        ..plain("grouped-query", "The same over a few of them.")
    },
    plain("dot", "Softmax of products as they are."),
    Variant {
        others: &["general"],
        ..plain("multiplicative", "Products through a learned matrix.")
    },
    Variant {
        others: &["concat"],
        ..plain("additive", "The score of a learned network.")
    },
    Variant {
        keys: &[
            key!(
                Hard,
                "temperature",
                Values::Number(Range::TEMPERATURE),
                "What scores and noise are divided by for the gradient."
            ),
            key!(Hard, "seed", SEED, "Which noise."),
        ],
        ..plain("hard", "One key alone.")
    },
    Variant {
        others: &["local"],
        keys: &[key!(
            SlidingWindow,
            "window",
            LENGTH_OR_NONE,
            "Keys seen on either side."
        )],
        ..plain("sliding-window", "Neighbours alone.")
    },
    Variant {
        keys: &[key!(
            LocalM,
            "window",
            LENGTH_OR_NONE,
            "Keys seen on either side."
        )],
        ..plain("local-m", "The same from the first query and key on.")
    },
    Variant {
        keys: &[key!(
            LocalP,
            "window",
            LENGTH,
            "Keys seen on either side; twice the deviation of their weights."
        )],
        ..plain("local-p", "Keys around a place that is predicted.")
    },
    Variant {
        keys: &[key!(Block, "size", LENGTH, "Places in a block.")],
        ..plain("block", "The own block alone.")
    },
    Variant {
        keys: &[Key {
            presence: Presence::Optional("the root of the number of keys"),
            ..key!(Strided, "stride", LENGTH, "How many places apart.")
        }],
        ..plain(
            "strided",
            "Neighbours, and every so many places one further away.",
        )
    },
    Variant {
        keys: &[
            Key {
                presence: Presence::Optional("the root of the number of keys"),
                ..key!(Fixed, "block", LENGTH, "Places in a block.")
            },
            key!(
                Fixed,
                "summary",
                LENGTH_OR_NONE,
                "Places of each that are for everyone."
            ),
        ],
        ..plain(
            "fixed",
            "The own block, and the last places of every block.",
        )
    },
    Variant {
        keys: &[
            key!(
                Longformer,
                "window",
                LENGTH_OR_NONE,
                "Keys seen on either side."
            ),
            key!(
                Longformer,
                "global",
                LENGTH_OR_NONE,
                "Places at the beginning that see all and are seen by all."
            ),
        ],
        ..plain("longformer", "Neighbours, and places for everyone.")
    },
    Variant {
        keys: &[
            key!(BigBird, "block", LENGTH, "Places in a block."),
            key!(
                BigBird,
                "neighbours",
                LENGTH_OR_NONE,
                "Blocks seen on either side."
            ),
            key!(
                BigBird,
                "global",
                LENGTH_OR_NONE,
                "Blocks at the beginning, and as many at the end, for everyone."
            ),
            key!(BigBird, "random", LENGTH_OR_NONE, "Blocks at random."),
            key!(BigBird, "seed", SEED, "Which ones."),
        ],
        ..plain(
            "bigbird",
            "Neighbours, places for everyone, and some at random, by blocks.",
        )
    },
    Variant {
        keys: &[
            key!(Lsh, "bucket", LENGTH, "Places that are sorted together."),
            key!(
                Lsh,
                "rounds",
                count(1, 1 << 10),
                "How often they are sorted."
            ),
            key!(Lsh, "seed", SEED, "By which hashes."),
        ],
        ..plain("lsh", "Keys that hash as the query does.")
    },
    Variant {
        keys: &[key!(
            Linear,
            "features",
            Values::Words(FEATURES),
            "Which features."
        )],
        ..plain("linear", "Products of features.")
    },
    Variant {
        keys: &[
            key!(Performer, "features", WIDTH, "How many."),
            key!(Performer, "seed", SEED, "Which ones, to begin with."),
            Key {
                presence: Presence::Optional("never"),
                ..key!(
                    Performer,
                    "redraw",
                    STEPS_OR_NONE,
                    "Training passes until others are drawn; 0 is never."
                )
            },
        ],
        ..plain("performer", "Products of random features.")
    },
    Variant {
        keys: &[key!(
            Retention,
            "group_norm",
            Values::Flag,
            "Whether a layer normalises the result of each head, as the paper's does."
        )],
        ..plain("retention", "Products that fade with the distance.")
    },
];

const FEATURES: &[Variant] = &[
    plain("elu1", "`elu(x) + 1`."),
    plain("relu", "`max(x, 0)` and a thousandth."),
];

const fn plain(word: &'static str, about: &'static str) -> Variant {
    Variant {
        word,
        others: &[],
        about,
        keys: &[],
    }
}

fn usual(mechanism: Mechanism, key: &str) -> Option<toml::Value> {
    let table = toml::Table::try_from(MechanismConfig::from(mechanism)).ok()?;
    table.get(key).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_zoo_spec() {
        let words: Vec<_> = VARIANTS.iter().map(|variant| variant.word).collect();
        assert_eq!(words, Mechanism::ALL.map(Mechanism::word));
        for (variant, mechanism) in VARIANTS.iter().zip(Mechanism::ALL) {
            assert_eq!(variant.others, mechanism.other_names(), "{mechanism}");
            let table = toml::Table::try_from(MechanismConfig::from(mechanism)).expect("plain");
            for name in table.keys().filter(|name| *name != "kind") {
                let key = variant.keys.iter().find(|key| key.name == name);
                assert!(key.is_some(), "{mechanism} has {name}");
            }
        }
    }

    #[test]
    fn their_keys_are_read() {
        for variant in VARIANTS {
            for key in variant.keys {
                let value = (key.default)().unwrap_or(toml::Value::Integer(2));
                let text = format!("kind = \"{}\"\n{} = {value}", variant.word, key.name);
                let read = toml::from_str::<MechanismConfig>(&text);
                assert!(read.is_ok(), "{text}: {read:?}");
            }
        }
    }
}
