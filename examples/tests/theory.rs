//! What docs/theory claims, each program shows, on the device `ZOO_BACKEND` names.

mod common;

use common::run;

/// The numbers at the end of the line that begins so.
fn numbers<const N: usize>(said: &str, line: &str) -> [f64; N] {
    let line = said.lines().find(|it| it.trim_start().starts_with(line));
    let line = line.unwrap_or_else(|| panic!("no {line:?} in\n{said}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words.len() > N, "no {N} numbers in {line:?}");
    let last = &words[words.len() - N..];
    std::array::from_fn(|at| {
        let number = last[at].parse();
        number.unwrap_or_else(|_| panic!("no number: {:?} in {line:?}", last[at]))
    })
}

#[test]
fn scores_grow_with_d_head_unless_they_are_scaled() {
    let said = run(env!("CARGO_BIN_EXE_theory_scaling"), &[]);
    let mut before = 0.0;
    for d_head in [4, 16, 64, 256] {
        let row: [f64; 4] = numbers(&said, &format!("{d_head} "));
        let [plain, scaled, sharp, soft] = row;
        // The mean over 256 queries and 256 keys: a deviation of 0.065 at d_head 4, and less
        // above.
        assert!((scaled - 1.0).abs() < 0.3, "{said}");
        let ratio = plain / f64::from(d_head);
        assert!((ratio - scaled).abs() < 0.01, "{said}");
        // Without scaling, attention comes down to one key; with it, it stays spread out.
        assert!(sharp > before && soft < 0.1, "{said}");
        before = sharp;
    }
    assert!(before > 0.8, "{said}");
}

#[test]
fn a_saturated_softmax_has_no_gradient() {
    let said = run(env!("CARGO_BIN_EXE_theory_saturation"), &[]);
    let mut before = f64::INFINITY;
    for factor in [4, 16, 64] {
        let [weight, gradient] = numbers(&said, &format!("{factor} "));
        // The largest score is a quarter of the factor above the next.
        let next = (-f64::from(factor) / 4.0).exp();
        assert!((1.0 - weight) > 0.9 * next || next < 1e-6, "{said}");
        assert!(gradient > 0.0 && gradient < before, "{said}");
        before = gradient;
    }
    let [_, at_one]: [f64; 2] = numbers(&said, "1 ");
    assert!(at_one > 1e-2 && before < 1e-6, "{said}");
}

#[test]
fn order_is_seen_by_positions_and_masks_alone() {
    let said = run(env!("CARGO_BIN_EXE_theory_positions"), &[]);
    for (line, is_blind) in [
        ("self, no positions  ", true),
        ("self, rotary", false),
        ("self, ALiBi", false),
        ("self, no positions, causal", false),
        ("cross, its memory shuffled", true),
    ] {
        let [difference] = numbers(&said, line);
        let is_as_said = if is_blind {
            difference < 1e-5
        } else {
            difference > 1e-2
        };
        assert!(is_as_said, "{line}: {said}");
    }
    let [both] = numbers(&said, "query and key");
    let [one] = numbers(&said, "the key alone");
    // Products of 32 numbers, of which the largest are about 20: turned by other angles, they
    // are rounded otherwise.
    assert!(both < 1e-3 && one > 1.0, "{said}");
}

#[test]
fn steps_with_a_cache_are_the_whole_at_once() {
    let said = run(env!("CARGO_BIN_EXE_theory_decoding"), &[]);
    for mechanism in ["flash", "sliding-window", "linear", "performer"] {
        let [steps, causal, full] = numbers(&said, mechanism);
        // Products are summed in another order.
        assert!(steps < 1e-4 && causal < 1e-4, "{said}");
        assert!(full > 1e-3, "{said}");
    }
}

#[test]
fn parts_are_joined_exactly() {
    let said = run(env!("CARGO_BIN_EXE_theory_merging"), &[]);
    for parts in ["2 ", "5 ", "24 "] {
        let [context, log_sum_exp, plain] = numbers(&said, parts);
        // A log-sum-exp is a few tens here: its last digit is about 1e-6.
        assert!(context < 1e-4 && log_sum_exp < 1e-4, "{said}");
        assert!(plain > 0.1, "{said}");
    }
}

#[test]
fn a_query_that_sees_nothing_gets_zeros() {
    let said = run(env!("CARGO_BIN_EXE_theory_masks"), &[]);
    for (line, weights) in [
        ("minus infinity", "[NaN, NaN, NaN, NaN]"),
        ("-10,000", "[0.25, 0.25, 0.25, 0.25]"),
        ("a pattern", "[0.0, 0.0, 0.0, 0.0]"),
    ] {
        let line = said.lines().find(|it| it.starts_with(line));
        assert!(line.is_some_and(|it| it.ends_with(weights)), "{said}");
    }
    for line in [
        "context",
        "gradient by query",
        "gradient by key",
        "gradient by value",
    ] {
        let [some, none]: [f64; 2] = numbers(&said, line);
        assert!(some > 1e-3 && none == 0.0, "{said}");
    }
    assert_eq!(
        numbers::<2>(&said, "change by a hidden value"),
        [0.0, 0.0],
        "{said}"
    );
}
