//! A mechanism as a file says it: its word, or a table with sizes.

use std::fmt;
use std::num::NonZeroUsize;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{LinearFeatures, Mechanism, MechanismConfig};

/// Everything a table may say besides its kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: String,
    kv_heads: Option<usize>,
    window: Option<usize>,
    size: Option<usize>,
    stride: Option<usize>,
    summary: Option<usize>,
    global: Option<usize>,
    block: Option<usize>,
    neighbours: Option<usize>,
    random: Option<usize>,
    bucket: Option<usize>,
    rounds: Option<usize>,
    redraw: Option<usize>,
    features: Option<Features>,
    seed: Option<u64>,
    temperature: Option<f64>,
    group_norm: Option<bool>,
}

/// A number or a word.
#[derive(Deserialize)]
#[serde(untagged)]
enum Features {
    Count(usize),
    Word(String),
}

impl Table {
    /// The usual sizes of its kind, and those it says; what its kind does not have is
    /// an error.
    fn read<E: Error>(self) -> Result<MechanismConfig, E> {
        let mechanism: Mechanism = self.kind.parse().map_err(E::custom)?;
        let mut config = MechanismConfig::from(mechanism);
        let mut sizes = [
            ("kv_heads", self.kv_heads),
            ("window", self.window),
            ("size", self.size),
            ("stride", self.stride),
            ("summary", self.summary),
            ("global", self.global),
            ("block", self.block),
            ("neighbours", self.neighbours),
            ("random", self.random),
            ("bucket", self.bucket),
            ("rounds", self.rounds),
            ("redraw", self.redraw),
        ];
        let (mut features, mut seed) = (self.features, self.seed);
        let (mut temperature, mut group_norm) = (self.temperature, self.group_norm);
        let mut take = |name: &str| {
            let size = sizes.iter_mut().find(|(other, _)| *other == name);
            size.and_then(|(_, size)| size.take())
        };
        match &mut config {
            MechanismConfig::Standard
            | MechanismConfig::Flash
            | MechanismConfig::MultiQuery
            | MechanismConfig::Dot
            | MechanismConfig::Multiplicative
            | MechanismConfig::Additive => {}
            MechanismConfig::Retention { group_norm: own } => {
                *own = group_norm.take().unwrap_or(*own);
            }
            MechanismConfig::GroupedQuery { kv_heads } => *kv_heads = take("kv_heads"),
            MechanismConfig::Hard {
                temperature: own,
                seed: of_it,
            } => {
                *own = temperature.take().unwrap_or(*own);
                *of_it = seed.take().unwrap_or(*of_it);
            }
            MechanismConfig::SlidingWindow { window }
            | MechanismConfig::LocalM { window }
            | MechanismConfig::LocalP { window } => *window = take("window").unwrap_or(*window),
            MechanismConfig::Block { size } => *size = take("size").unwrap_or(*size),
            MechanismConfig::Strided { stride } => *stride = take("stride"),
            MechanismConfig::Fixed { block, summary } => {
                *block = take("block");
                *summary = take("summary").unwrap_or(*summary);
            }
            MechanismConfig::Longformer { window, global } => {
                *window = take("window").unwrap_or(*window);
                *global = take("global").unwrap_or(*global);
            }
            MechanismConfig::BigBird {
                block,
                neighbours,
                global,
                random,
                seed: own,
            } => {
                *block = take("block").unwrap_or(*block);
                *neighbours = take("neighbours").unwrap_or(*neighbours);
                *global = take("global").unwrap_or(*global);
                *random = take("random").unwrap_or(*random);
                *own = seed.take().unwrap_or(*own);
            }
            MechanismConfig::Lsh {
                bucket,
                rounds,
                seed: own,
            } => {
                *bucket = take("bucket").unwrap_or(*bucket);
                *rounds = take("rounds").unwrap_or(*rounds);
                *own = seed.take().unwrap_or(*own);
            }
            MechanismConfig::Linear { features: own } => match features.take() {
                None => {}
                Some(Features::Word(word)) if word == "elu1" => *own = LinearFeatures::Elu1,
                Some(Features::Word(word)) if word == "relu" => *own = LinearFeatures::Relu,
                Some(other) => {
                    let got = match other {
                        Features::Count(count) => count.to_string(),
                        Features::Word(word) => format!("\"{word}\""),
                    };
                    return Err(E::custom(format!(
                        "linear has features = \"elu1\" or \"relu\", got {got}"
                    )));
                }
            },
            MechanismConfig::Performer {
                features: own,
                seed: of_it,
                redraw,
            } => {
                match features.take() {
                    None => {}
                    Some(Features::Count(count)) => *own = count,
                    Some(Features::Word(word)) => {
                        return Err(E::custom(format!(
                            "performer has a number of features, got \"{word}\""
                        )));
                    }
                }
                *of_it = seed.take().unwrap_or(*of_it);
                *redraw = take("redraw").and_then(NonZeroUsize::new);
            }
        }
        let left = sizes
            .iter()
            .find(|(_, size)| size.is_some())
            .map(|(name, _)| *name);
        let left = left
            .or(features.is_some().then_some("features"))
            .or(seed.is_some().then_some("seed"))
            .or(temperature.is_some().then_some("temperature"))
            .or(group_norm.is_some().then_some("group_norm"));
        match left {
            Some(name) => Err(E::custom(format!("{mechanism} has no {name}"))),
            None => Ok(config),
        }
    }
}

impl<'de> Deserialize<'de> for MechanismConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrTable;
        impl<'de> Visitor<'de> for WordOrTable {
            type Value = MechanismConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mechanism's word, or a table with its kind and sizes")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<MechanismConfig, E> {
                let mechanism: Mechanism = word.parse().map_err(E::custom)?;
                Ok(mechanism.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<MechanismConfig, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(map))?.read()
            }
        }
        deserializer.deserialize_any(WordOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<MechanismConfig, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_word_takes_the_usual_sizes() {
        for mechanism in Mechanism::ALL {
            let config = read(&format!("\"{mechanism}\"")).expect("a word");
            assert_eq!(config, mechanism.into());
            assert_eq!(config.mechanism(), mechanism);
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for mechanism in Mechanism::ALL {
            let config = MechanismConfig::from(mechanism);
            let text = serde_json::to_string(&config).expect("plain data");
            assert_eq!(read(&text).as_ref(), Ok(&config), "{text}");
        }
    }

    #[test]
    fn a_table_says_some_or_all() {
        assert_eq!(
            read(r#"{"kind": "longformer", "window": 32}"#),
            Ok(MechanismConfig::Longformer {
                window: 32,
                global: 1
            })
        );
        assert_eq!(
            read(r#"{"kind": "linear", "features": "relu"}"#),
            Ok(MechanismConfig::Linear {
                features: LinearFeatures::Relu
            })
        );
        assert_eq!(
            read(r#"{"kind": "lsh", "bucket": 32, "rounds": 2, "seed": 9}"#),
            Ok(MechanismConfig::Lsh {
                bucket: 32,
                rounds: 2,
                seed: 9
            })
        );
        assert_eq!(
            read(r#"{"kind": "fixed", "block": 128}"#),
            Ok(MechanismConfig::Fixed {
                block: Some(128),
                summary: 8
            })
        );
        assert_eq!(
            read(r#"{"kind": "fixed", "summary": 2}"#),
            Ok(MechanismConfig::Fixed {
                block: None,
                summary: 2
            })
        );
        assert_eq!(
            read(r#"{"kind": "hard", "temperature": 0.5}"#),
            Ok(MechanismConfig::Hard {
                temperature: 0.5,
                seed: 0
            })
        );
        assert_eq!(
            read(r#"{"kind": "local-p", "window": 3}"#),
            Ok(MechanismConfig::LocalP { window: 3 })
        );
        assert_eq!(
            read(r#"{"kind": "local", "window": 3}"#),
            Ok(MechanismConfig::SlidingWindow { window: 3 })
        );
        assert_eq!(
            read(r#"{"kind": "grouped-query", "kv_heads": 4}"#),
            Ok(MechanismConfig::GroupedQuery { kv_heads: Some(4) })
        );
        // A file of before the key was there means what it meant.
        for (text, group_norm) in [
            (r#""retention""#, false),
            (r#"{"kind": "retention"}"#, false),
            (r#"{"kind": "retention", "group_norm": true}"#, true),
        ] {
            assert_eq!(read(text), Ok(MechanismConfig::Retention { group_norm }));
        }
        let performer = |redraw: usize| MechanismConfig::Performer {
            features: 64,
            seed: 2,
            redraw: NonZeroUsize::new(redraw),
        };
        for redraw in [0, 1000] {
            let text = format!(
                r#"{{"kind": "performer", "features": 64, "seed": 2, "redraw": {redraw}}}"#
            );
            assert_eq!(read(&text), Ok(performer(redraw)));
            let written = serde_json::to_string(&performer(redraw)).expect("plain data");
            assert_eq!(read(&written), Ok(performer(redraw)), "{written}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            (r#""flush""#, "did you mean flash"),
            (r#"{"kind": "bigbrid"}"#, "did you mean bigbird"),
            (r#"{"kind": "flash", "window": 3}"#, "flash has no window"),
            (r#"{"kind": "dot", "seed": 3}"#, "dot has no seed"),
            (r#"{"kind": "lsh", "block": 3}"#, "lsh has no block"),
            (r#"{"kind": "block", "rounds": 3}"#, "block has no rounds"),
            (
                r#"{"kind": "local-m", "temperature": 3}"#,
                "local-m has no temperature",
            ),
            (
                r#"{"kind": "strided", "summary": 3}"#,
                "strided has no summary",
            ),
            (r#"{"kind": "linear", "redraw": 3}"#, "linear has no redraw"),
            (
                r#"{"kind": "linear", "group_norm": true}"#,
                "linear has no group_norm",
            ),
            (r#"{"kind": "block", "sise": 3}"#, "unknown field `sise`"),
            (
                r#"{"kind": "linear", "features": 3}"#,
                r#"linear has features = "elu1" or "relu", got 3"#,
            ),
            (
                r#"{"kind": "linear", "features": "elu2"}"#,
                r#"linear has features = "elu1" or "relu", got "elu2""#,
            ),
            ("3", "a mechanism's word, or a table"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
