use super::*;

fn read(text: &str) -> Result<MechanismConfig, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn every_name_and_alias_is_parsed() {
    let mut names = std::collections::BTreeSet::new();
    for mechanism in Mechanism::ALL {
        for name in [mechanism.name()].iter().chain(mechanism.aliases()) {
            assert_eq!(name.parse(), Ok(mechanism));
            assert_eq!(read(&format!("\"{name}\"")), Ok(mechanism.into()));
            assert!(names.insert(*name), "{name} is the name of two mechanisms");
        }
    }
    for alias in ["scaled-dot", "global", "local", "general", "concat"] {
        assert!(names.contains(alias), "{alias}");
    }
}

#[test]
fn valid_configs_round_trip() {
    for mechanism in Mechanism::ALL {
        for config in [mechanism.into(), mechanism.small_for_tests()] {
            let text = serde_json::to_string(&config).expect("plain data");
            assert_eq!(read(&text), Ok(config), "{text}");
            let text = toml::to_string(&config).expect("plain data");
            assert_eq!(toml::from_str(&text), Ok(config), "{text}");
            assert_eq!(config.check(), Ok(()), "{text}");
        }
    }
}

#[test]
fn omitted_keys_have_defaults() {
    for (some, all) in [
        (
            r#"{"kind":"longformer","window":32}"#,
            r#"{"kind":"longformer","window":32,"global":1}"#,
        ),
        (r#"{"kind":"linear","feature_map":"relu"}"#, ""),
        // Unset keys are not written.
        (r#"{"kind":"fixed","summary":2}"#, ""),
        (
            r#"{"kind":"hard","temperature":0.5,"seed":18446744073709551615}"#,
            "",
        ),
        (
            r#"{"kind":"local","window":3}"#,
            r#"{"kind":"sliding-window","window":3}"#,
        ),
        (
            r#"{"kind":"retention"}"#,
            r#"{"kind":"retention","group_norm":false}"#,
        ),
    ] {
        let config = read(some).expect(some);
        let written = serde_json::to_string(&config).expect("plain data");
        assert_eq!(written, if all.is_empty() { some } else { all });
        assert_eq!(read(&written), Ok(config), "{written}");
    }
    for (resample, interval) in [(0, None), (1000, std::num::NonZeroUsize::new(1000))] {
        let text = format!(r#"{{"kind": "performer", "resample": {resample}}}"#);
        let Ok(MechanismConfig::Performer(performer)) = read(&text) else {
            panic!("{text}");
        };
        assert_eq!(performer.resample_interval(), interval);
    }
}

#[test]
fn parse_errors() {
    for (text, part) in [
        (r#""flush""#, "did you mean flash"),
        (r#""globl""#, "did you mean global"),
        (r#"{"kind": "bigbrid"}"#, "did you mean bigbird"),
        (r#"{"window": 3}"#, "missing field `kind`"),
        (r#"{"kind": "flash", "window": 3}"#, "flash has no window"),
        (r#"{"kind": "lsh", "block": 3}"#, "lsh has no block"),
        (r#"{"kind": "block", "sise": 3}"#, "block has no sise"),
        (
            r#"{"kind": "block", "block_size": -3}"#,
            "block: invalid value",
        ),
        (
            r#"{"kind": "linear", "feature_map": 3}"#,
            "linear: invalid type",
        ),
        (
            r#"{"kind": "linear", "feature_map": "elu2"}"#,
            "linear: unknown variant `elu2`, expected `elu1` or `relu`",
        ),
        ("3", "the name of a mechanism, or a table"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn values_are_checked() {
    let hard = |temperature| Hard {
        temperature,
        seed: 0,
    };
    let temperatures = "at least 1e-6 and at most 1e6";
    for (config, key, allowed) in [
        (Block { block_size: 0 }.into(), "block_size", "at least 1"),
        (hard(0.0).into(), "temperature", temperatures),
        (hard(f64::NAN).into(), "temperature", temperatures),
        (hard(1e7).into(), "temperature", temperatures),
    ] {
        let error = MechanismConfig::check(&config).expect_err(key);
        assert_eq!((&*error.key, &*error.allowed), (key, allowed));
    }
}

#[test]
fn grouped_query_heads_divide_the_query_heads() {
    let grouped = MechanismConfig::from(Mechanism::GroupedQuery);
    let kv_heads = [8, 12, 6, 3, 1].map(|heads| grouped.kv_heads(heads));
    assert_eq!(kv_heads, [Some(2), Some(3), Some(1), Some(1), Some(1)]);
    let given = MechanismConfig::from(GroupedQuery {
        n_heads_kv: Some(4),
    });
    assert_eq!(given.kv_heads(8), Some(4));
    assert_eq!(MechanismConfig::from(Mechanism::Flash).kv_heads(8), None);
}
