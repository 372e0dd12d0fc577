//! What docs/theory claims, each program shows, on the device `ZOO_BACKEND` names.

mod common;

use std::ops::Range;

fn theory(topic: &str) -> String {
    common::run(env!("CARGO_BIN_EXE_theory"), &[topic])
}

/// The line that begins so.
fn line<'a>(said: &'a str, start: &str) -> &'a str {
    let mut lines = said.lines().map(str::trim_start);
    let found = lines.find(|it| it.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start:?} in\n{said}"))
}

/// The numbers at the end of the line that begins so.
fn numbers<const N: usize>(said: &str, start: &str) -> [f64; N] {
    let line = line(said, start);
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words.len() > N, "no {N} numbers in {line:?}");
    let last = &words[words.len() - N..];
    std::array::from_fn(|at| {
        let number = last[at].parse();
        number.unwrap_or_else(|_| panic!("no number: {:?} in {line:?}", last[at]))
    })
}

/// Two results that differ by rounding, and two that differ.
const SAME: Range<f64> = 0.0..1e-5;
const DIFFERENT: Range<f64> = 1e-2..f64::INFINITY;

/// The number at the end of each line is within its range.
fn check<const N: usize>(said: &str, lines: [(&str, Range<f64>); N]) {
    for (line, range) in lines {
        let [number] = numbers(said, line);
        assert!(range.contains(&number), "{line}: {said}");
    }
}

#[test]
fn scores_grow_with_d_head_unless_they_are_scaled() {
    let said = theory("scaling");
    let mut before = 0.0;
    for d_head in [4, 16, 64, 256] {
        let row: [f64; 4] = numbers(&said, &format!("{d_head} "));
        let [plain, scaled, sharp, soft] = row;
        // The mean over 256 queries and 256 keys: a deviation of 0.065 at d_head 4, and less
        // above.
        assert!((scaled - 1.0).abs() < 0.3, "{said}");
        assert!((plain / f64::from(d_head) - 1.0).abs() < 0.3, "{said}");
        // Without scaling, attention comes down to one key; with it, it stays spread out.
        assert!(sharp > before && soft < 0.1, "{said}");
        before = sharp;
    }
    assert!(before > 0.8, "{said}");
}

#[test]
fn a_saturated_softmax_has_no_gradient() {
    let said = theory("saturation");
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
fn scores_can_be_kept_from_growing() {
    let said = theory("restraint");
    let tables: Vec<&str> = said.split("\n\n").collect();
    let [_device, layers, temperatures, capped] = tables[..] else {
        panic!("three tables, not\n{said}");
    };

    let [[first, normalised], .., [last, still]] =
        [1, 16, 256, 4096].map(|factor| numbers::<2>(layers, &format!("{factor} ")));
    assert!(first < 0.1 && last > 0.9, "{said}");
    // Nothing but the norm's own epsilon, and three digits.
    assert!((normalised - still).abs() < 0.0015, "{said}");

    let [sharp, usual, soft] = ["0.25 ", "1 ", "4 "].map(|it| numbers::<1>(temperatures, it)[0]);
    assert!(
        sharp > usual + 0.1 && usual > soft + 0.1 && soft > 1.0 / 64.0,
        "{said}"
    );

    // By hand: one score of s and 63 of 0, with s or 2·tanh(s/2).
    for score in [1.0, 4.0, 16.0, 64.0] {
        let row: [f64; 6] = numbers(capped, &format!("{score} "));
        let bent = 2.0 * (score / 2.0_f64).tanh();
        let bent_slope = 1.0 - (score / 2.0).tanh().powi(2);
        for (score, slope, at) in [(score, 1.0, 0), (bent, bent_slope, 1)] {
            let [weight, at_another, at_query] = [row[at], row[2 + at], row[4 + at]];
            let sum = score.exp() + 63.0;
            assert!((score.exp() / sum - weight).abs() < 1e-3, "{said}");
            // Two digits are printed.
            assert!((1.0 / sum - at_another).abs() < 0.06 / sum, "{said}");
            let by_hand = slope * 63.0 * score.exp() / sum / sum;
            // In f32 a sure weight is 1, and a flat slope 0, to about 1e-7.
            assert!((by_hand - at_query).abs() < 0.06 * by_hand + 1e-6, "{said}");
        }
    }
}

#[test]
fn order_is_seen_by_positions_and_masks_alone() {
    let said = theory("order");
    check(
        &said,
        [
            ("self, no positions  ", SAME),
            ("self, rotary", DIFFERENT),
            ("self, ALiBi", DIFFERENT),
            ("self, causal", DIFFERENT),
            ("self, a window", DIFFERENT),
            ("self, blocks", DIFFERENT),
            ("cross, its memory shuffled", SAME),
            // Products of 32 numbers, of which the largest are about 20: turned by other angles,
            // they are rounded otherwise.
            ("query and key", 0.0..1e-3),
            ("the key alone", 1.0..f64::INFINITY),
        ],
    );
}

#[test]
fn steps_with_a_cache_are_the_whole_at_once() {
    let said = theory("decoding");
    for mechanism in ["flash", "sliding-window", "linear", "performer"] {
        let [steps, causal, full] = numbers(&said, mechanism);
        // Products are summed in another order.
        assert!(steps < 1e-4 && causal < 1e-4, "{said}");
        assert!(full > 1e-3, "{said}");
    }
}

#[test]
fn parts_are_joined_exactly() {
    let said = theory("merging");
    for parts in ["2 ", "5 ", "24 "] {
        let [context, log_sum_exp, plain] = numbers(&said, parts);
        // A log-sum-exp is a few tens here: its last digit is about 1e-6.
        assert!(context < 1e-4 && log_sum_exp < 1e-4, "{said}");
        assert!(plain > 0.1, "{said}");
    }
    check(
        &said,
        [
            ("two parts", SAME),
            ("a key in both", DIFFERENT),
            ("a part that sees nothing", SAME),
            ("gradient by keys", SAME),
            ("log-sum-exp of a part", f64::NEG_INFINITY..-9e29),
        ],
    );
}

#[test]
fn a_query_that_sees_nothing_gets_zeros() {
    let said = theory("masks");
    for (start, weights) in [
        ("minus infinity", "[NaN, NaN, NaN, NaN]"),
        ("-10,000", "[0.25, 0.25, 0.25, 0.25]"),
        ("a pattern", "[0.0, 0.0, 0.0, 0.0]"),
    ] {
        assert!(line(&said, start).ends_with(weights), "{said}");
    }
    for of in ["context", "gradient by q", "gradient by k", "gradient by v"] {
        let [some, none]: [f64; 2] = numbers(&said, of);
        assert!(some > 1e-3 && none == 0.0, "{said}");
    }
    for line in ["change by a hidden key", "change by a hidden value"] {
        assert_eq!(numbers::<2>(&said, line), [0.0, 0.0], "{said}");
    }
}

#[test]
fn one_nan_is_every_weight_a_step_later() {
    let said = theory("one-nan");
    check(
        &said,
        [("minus infinity", 64.0..64.5), ("a pattern", 0.0..0.5)],
    );
}

#[test]
fn hidden_is_as_if_not_there() {
    let said = theory("visibility");
    check(&said, [("8 keys", 0.0..1e-6)]);
    // The last query is aligned with the last key, but for one.
    for seen in [
        "where a mask is true sum up to 0 of 1\n",
        "causal                 █ █ █ █ ·    █ █ █ █ █",
        "a window of 1          · · █ █ █    · · · █ █",
        "local-m, 1             █ █ · · ·    █ █ █ · ·",
    ] {
        assert!(said.contains(seen), "{seen}, not\n{said}");
    }
    let (_, tiles) = said.split_once("tiles computed").unwrap();
    let share = |start: &str| {
        let percent = line(tiles, start).split_whitespace().last().unwrap();
        percent.trim_end_matches('%').parse::<f64>().unwrap()
    };
    assert!(share("full") == 100.0 && share("causal") < 51.0, "{said}");
    assert!(share("a window") < 5.0, "{said}");
}

#[test]
fn a_memory_may_have_any_length_and_is_read_once() {
    let said = theory("crossing");
    for memory in ["7 ", "31 "] {
        assert!(line(&said, memory).contains("[1, 24, 32]"), "{said}");
    }
    check(&said, [("7 ", SAME), ("31 ", SAME)]);
    let (_, answers) = said.split_once("decoder\n").unwrap();
    let refusing = answers.lines().filter(|line| !line.ends_with(" can"));
    let refusing: Vec<&str> = refusing.filter_map(|it| it.split(' ').next()).collect();
    let expected = "sliding-window block strided fixed longformer bigbird lsh retention";
    assert_eq!(refusing.join(" "), expected, "{said}");
    assert_eq!(answers.lines().count(), 20, "{said}");
}

#[test]
fn places_are_told_in_five_ways() {
    let said = theory("encodings");
    let ways = ["waves", "learned places", "turned queries", "ALiBi  "];
    check(&said, ways.map(|way| (way, 1e-3..f64::INFINITY)));
    check(&said, [("nothing", SAME), ("ALiBi and -m", 0.0..1e-6)]);
    assert_eq!(said.matches("refuses a longer text").count(), 1, "{said}");
    assert!(said.contains("rotary is refused by []"), "{said}");
    let refusing = r#"ALiBi is refused by ["lsh", "linear", "performer", "retention"]"#;
    assert!(said.contains(refusing), "{said}");
}

#[test]
fn caches_keep_what_the_page_says() {
    let said = theory("caches");
    let both = 2 * 8; // a key and a value of 8 numbers
    let all_heads = "standard/flash/dot/multiplicative/additive/hard/block/longformer/\
                     strided, stride 8/fixed, block 8";
    for (names, heads) in [(all_heads, 4), ("multi-query/grouped-query", 1)] {
        let want = [32, 64, 128].map(|places| f64::from(heads * both * places));
        for name in names.split('/') {
            assert_eq!(numbers::<3>(&said, name), want, "{name}: {said}");
        }
    }
    for name in ["sliding-window", "local-m"] {
        let window = f64::from(4 * both * (8 + 1));
        assert_eq!(numbers::<3>(&said, name), [window; 3], "{name}: {said}");
    }
    // One matrix of features or numbers of a key by those of a value, and no more than a
    // column and a number besides.
    for (name, features) in [("linear", 8), ("performer", 256), ("retention", 8)] {
        let [first, second, third] = numbers::<3>(&said, name);
        let matrix = f64::from(4 * features * 8);
        assert!(first == second && second == third, "{name}: {said}");
        let most = f64::from(4 * (features * 9 + 1));
        assert!((matrix..=most).contains(&first), "{name}: {said}");
    }
    let cannot = "bigbird/lsh/local-p/strided, stride sqrt/fixed, block sqrt";
    for name in cannot.split('/') {
        assert!(
            line(&said, name).contains("cannot decode"),
            "{name}: {said}"
        );
    }
    // All of them: twenty, and two with other sizes.
    let (_, rows) = said.split_once("\nmechanism ").unwrap();
    assert_eq!(rows.lines().skip(1).count(), 22, "{said}");
}

#[test]
fn drawing_is_for_training_alone() {
    let said = theory("training");
    for name in ["no dropout", "dropout", "hard", "performer"] {
        let [learning, plain] = numbers::<2>(&said, name);
        assert_eq!(learning > 1e-3, name != "no dropout", "{name}: {said}");
        assert!(plain < 1e-6, "{name}: {said}");
    }
}

#[test]
fn a_running_softmax_does_not_overflow() {
    let said = theory("running");
    let (_, table) = said.split_once("scores up").unwrap();
    let rows = table.lines().skip(1).map(str::split_whitespace);
    let rows: Vec<Vec<&str>> = rows.map(Iterator::collect).collect();
    // A row, and the weights that are made of it again.
    assert_eq!(rows.len(), 2 * 4, "{said}");
    for pair in rows.chunks(2) {
        let ([_, _, largest, differs], Some(again)) = (&pair[0][..], pair[1].last()) else {
            panic!("four numbers, not {pair:?}");
        };
        assert_eq!(*largest, "1", "{said}");
        // A share of the largest score.
        assert!(differs.parse::<f64>().unwrap() < 1e-5, "{said}");
        // A score of 1,000 has a last digit of 6e-5, and so has its weight.
        assert!(again.parse::<f64>().unwrap() < 1e-3, "{said}");
    }
    assert_eq!(rows[6][1], "inf", "{said}");
}
