//! The description of a mechanism for a terminal.

use std::fmt::Write;

use zoo_spec::{Exactness, KvHeads, MECHANISMS, Mechanism, MechanismConfig, Padding, Support};

use crate::docs::{default, values};
use crate::keys::{Key, Variant};
use crate::write::with_defaults;

/// What a mechanism computes, its keys with their defaults, and where it can be used.
pub fn describe(mechanism: Mechanism) -> String {
    let about = mechanism.about();
    let mut text = format!("{mechanism}");
    if !mechanism.aliases().is_empty() {
        let _ = write!(text, " (alias {})", mechanism.aliases().join(", "));
    }
    let summary = mechanism.summary().replace('`', "");
    let _ = writeln!(
        text,
        ": {summary}.\n\n  {}\n",
        about.formula.replace('`', "")
    );
    let (paper, url) = about.paper;
    let result = match about.exactness {
        Exactness::Exact => "softmax attention over the visible keys, exactly",
        Exactness::Approximate => "an approximation of softmax attention",
        Exactness::Different => "a different function than softmax attention",
    };
    for (name, value) in [
        ("result", result.to_owned()),
        ("time", complexity(about.time)),
        ("memory", complexity(about.memory)),
        ("paper", format!("{paper}, {url}")),
        ("chapter", format!("docs/mechanisms/{}", about.chapter)),
    ] {
        row(&mut text, name, &value);
    }
    text.push_str("\nConfig:\n");
    let variant = Variant::named(MECHANISMS.variants, mechanism.name());
    let example = variant.map(with_defaults).unwrap_or_default();
    let _ = writeln!(text, "  attention = {example}");
    for key in mechanism.keys() {
        let _ = writeln!(text, "  {}", describe_key(key));
    }
    text.push_str("\nUse, with these defaults:\n");
    for (name, value) in uses(mechanism) {
        row(&mut text, name, &value);
    }
    text
}

/// In O notation, without the remark after a semicolon.
fn complexity(growth: &str) -> String {
    match growth.split_once(';') {
        Some((growth, remark)) => format!("O({growth});{remark}"),
        None => format!("O({growth})"),
    }
}

fn row(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:<17} {value}");
}

fn describe_key(key: &Key) -> String {
    let about = key.about.trim().trim_end_matches('.');
    let (values, default) = (values(&key.values), default(key));
    format!("{}: {about} ({values}; default {default})", key.name).replace('`', "")
}

fn uses(mechanism: Mechanism) -> Vec<(&'static str, String)> {
    let capabilities = MechanismConfig::from(mechanism).capabilities();
    let options = capabilities.options;
    let kv_heads = match capabilities.kv_heads {
        KvHeads::Any => "any divisor of n_heads".to_owned(),
        KvHeads::Exactly(count) => count.to_string(),
        KvHeads::Quarter => "n_heads / 4, or n_heads_kv".to_owned(),
        KvHeads::FromQueries => "n_heads; the keys are the normalised queries".to_owned(),
    };
    let padding = match capabilities.padding {
        Padding::Masked => "masked by a causal mask or key lengths".to_owned(),
        Padding::NeedsKeyLengths => "masked by key lengths".to_owned(),
        Padding::ChangesResult(reason) => format!("changes the result: {reason}"),
    };
    let weights = if capabilities.returns_weights {
        "returned"
    } else {
        "not materialised; zoo attend computes those of a few queries"
    };
    vec![
        ("causal", support(capabilities.causal)),
        ("bidirectional", support(capabilities.bidirectional)),
        ("cross-attention", support(capabilities.cross_attention)),
        ("cached decoding", support(capabilities.decoding)),
        ("KV heads", kv_heads),
        ("padding", padding),
        ("weights", weights.to_owned()),
        ("dense mask", support(options.dense_mask)),
        ("bias", support(options.bias)),
        ("ALiBi", support(options.alibi)),
        ("dropout", support(options.dropout)),
        ("softcap", support(options.softcap)),
        ("temperature", support(options.temperature)),
        ("entropy penalty", support(options.entropy)),
    ]
}

fn support(support: Support) -> String {
    match support {
        Ok(()) => "yes".to_owned(),
        Err(reason) => format!("no: {reason}").replace('`', ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_formula_keys_and_uses() {
        let text = describe(Mechanism::SlidingWindow);
        for part in [
            "sliding-window (alias local): Softmax over ±w keys.\n",
            "over |i - j| <= window",
            "  time              O(n·w)\n",
            "  paper             Beltagy 2020, https://arxiv.org/abs/2004.05150\n",
            "  attention = { kind = \"sliding-window\", window = 256 }\n",
            "  window: Visible keys on either side (an integer, at least 0; default 256)\n",
            "  cross-attention   no: its pattern is defined on a single sequence",
            "  KV heads          any divisor of n_heads\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let strided = describe(Mechanism::Strided);
        assert!(strided.contains(" O(n·sqrt(n)); GPU: n² with"), "{strided}");
        for mechanism in Mechanism::ALL {
            let text = describe(mechanism);
            assert!(text.contains("  o_i = "), "{text}");
            for key in mechanism.keys() {
                assert!(text.contains(&format!("  {}: ", key.name)), "{text}");
            }
            assert!(!text.contains('`'), "{text}");
        }
    }
}
