//! What docs/theory claims, each program shows, on the device `ZOO_BACKEND` names.

mod common;

fn theory(topic: &str) -> String {
    common::run(env!("CARGO_BIN_EXE_theory"), &[topic])
}

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
    for (line, is_blind) in [
        ("self, no positions  ", true),
        ("self, rotary", false),
        ("self, ALiBi", false),
        ("self, causal", false),
        ("self, a window", false),
        ("self, blocks", false),
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
    for (line, is_same) in [
        ("two parts", true),
        ("a key in both", false),
        ("a part that sees nothing", true),
        ("gradient by keys", true),
    ] {
        let [differs] = numbers::<1>(&said, line);
        assert!(
            if is_same {
                differs < 1e-5
            } else {
                differs > 1e-2
            },
            "{said}"
        );
    }
    assert!(
        numbers::<1>(&said, "log-sum-exp of a part")[0] < -9e29,
        "{said}"
    );
}

#[test]
fn a_query_that_sees_nothing_gets_zeros() {
    let said = theory("masks");
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
    for line in ["change by a hidden key", "change by a hidden value"] {
        assert_eq!(numbers::<2>(&said, line), [0.0, 0.0], "{said}");
    }
}

#[test]
fn one_nan_is_every_weight_a_step_later() {
    let said = theory("one-nan");
    assert_eq!(numbers(&said, "minus infinity"), [64.0], "{said}");
    assert_eq!(numbers(&said, "a pattern"), [0.0], "{said}");
}

#[test]
fn hidden_is_as_if_not_there() {
    let said = theory("visibility");
    assert!(numbers::<1>(&said, "8 keys")[0] < 1e-6, "{said}");
    assert!(
        said.contains("where a mask is true sum up to 0 of 1\n"),
        "{said}"
    );
    // The last query is level with the last key, but for one.
    for seen in [
        "causal                 █ █ █ █ ·    █ █ █ █ █",
        "a window of 1          · · █ █ █    · · · █ █",
        "local-m, 1             █ █ · · ·    █ █ █ · ·",
    ] {
        assert!(said.contains(seen), "{seen}, not\n{said}");
    }
    let (_, tiles) = said.split_once("tiles computed").unwrap();
    let share = |line: &str| {
        let line = tiles.lines().find(|it| it.starts_with(line)).unwrap();
        let percent = line.split_whitespace().last().unwrap();
        percent.trim_end_matches('%').parse::<f64>().unwrap()
    };
    assert!(share("full") == 100.0 && share("causal") < 51.0, "{said}");
    assert!(share("a window") < 5.0, "{said}");
}

#[test]
fn a_memory_may_have_any_length_and_is_read_once() {
    let said = theory("crossing");
    for memory in ["7 ", "31 "] {
        let line = said.lines().find(|it| it.starts_with(memory)).unwrap();
        assert!(line.contains("[1, 24, 32]"), "{said}");
        assert!(numbers::<1>(&said, memory)[0] < 1e-5, "{said}");
    }
    let (_, answers) = said.split_once("decoder\n").unwrap();
    let refusing = answers.lines().filter(|line| !line.ends_with(" can"));
    let refusing: Vec<&str> = refusing.filter_map(|it| it.split(' ').next()).collect();
    let by_places = [
        "sliding-window",
        "block",
        "strided",
        "fixed",
        "longformer",
        "bigbird",
    ];
    assert_eq!(
        refusing,
        [&by_places[..], &["lsh", "retention"]].concat(),
        "{said}"
    );
    assert_eq!(answers.lines().count(), 20, "{said}");
}

#[test]
fn places_are_told_in_five_ways() {
    let said = theory("encodings");
    assert!(numbers::<1>(&said, "nothing")[0] < 1e-5, "{said}");
    for way in ["waves", "learned places", "turned queries", "ALiBi  "] {
        assert!(numbers::<1>(&said, way)[0] > 1e-3, "{said}");
    }
    assert_eq!(said.matches("refuses a longer text").count(), 1, "{said}");
    assert!(numbers::<1>(&said, "ALiBi and -m")[0] < 1e-6, "{said}");
    assert!(said.contains("rotary is refused by []"), "{said}");
    assert!(
        said.contains(r#"ALiBi is refused by ["lsh", "linear", "performer", "retention"]"#),
        "{said}"
    );
}

#[test]
fn caches_keep_what_the_page_says() {
    let said = theory("caches");
    let both = 2 * 8; // a key and a value of 8 numbers
    for (name, heads) in [
        ("standard", 4),
        ("flash", 4),
        ("dot", 4),
        ("multiplicative", 4),
        ("additive", 4),
        ("hard", 4),
        ("multi-query", 1),
        ("grouped-query", 1),
        ("block", 4),
        ("longformer", 4),
        ("strided, stride 8", 4),
        ("fixed, block 8", 4),
    ] {
        let want = [32, 64, 128].map(|places| f64::from(heads * both * places));
        assert_eq!(numbers::<3>(&said, name), want, "{name}: {said}");
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
    for name in [
        "bigbird",
        "lsh",
        "local-p",
        "strided, stride sqrt",
        "fixed, block sqrt",
    ] {
        let line = said.lines().find(|it| it.starts_with(name)).unwrap();
        assert!(line.contains("cannot decode"), "{name}: {said}");
    }
    // All of them: twenty, and two with other sizes.
    let rows = said
        .lines()
        .skip_while(|line| !line.starts_with("mechanism "));
    assert_eq!(rows.skip(1).count(), 22, "{said}");
}

#[test]
fn drawing_is_for_training_alone() {
    let said = theory("training");
    for (name, is_drawn) in [
        ("no dropout", false),
        ("dropout", true),
        ("hard", true),
        ("performer", true),
    ] {
        let [learning, plain] = numbers::<2>(&said, name);
        assert_eq!(learning > 1e-3, is_drawn, "{name}: {said}");
        assert!(plain < 1e-6, "{name}: {said}");
    }
}

#[test]
fn a_running_softmax_does_not_overflow() {
    let said = theory("running");
    let rows: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with(|it: char| it.is_ascii_digit()))
        .collect();
    assert_eq!(rows.len(), 4, "{said}");
    for row in &rows {
        let words: Vec<&str> = row.split_whitespace().collect();
        let [_, _, largest, differs] = words[..] else {
            panic!("four numbers, not {row}");
        };
        assert_eq!(largest, "1", "{said}");
        // A share of the largest score.
        assert!(differs.parse::<f64>().unwrap() < 1e-5, "{said}");
    }
    assert!(rows[3].contains(" inf "), "{said}");
    let again = said.lines().filter(|line| line.contains("made again"));
    for line in again {
        let differ = line.split_whitespace().last().unwrap();
        // A score of 1,000 has a last digit of 6e-5, and so has its weight.
        assert!(differ.parse::<f64>().unwrap() < 1e-3, "{said}");
    }
}
