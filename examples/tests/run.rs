//! Every example runs and says what it promises, on the device `ZOO_BACKEND` names.

mod common;

use std::process::Command;

use common::run;

#[test]
fn the_pronoun_looks_at_the_cat() {
    let said = run(env!("CARGO_BIN_EXE_where_it_looks"), &[]);
    // The future is hidden.
    for (word, column, shade) in [("it", 1, "████"), ("outside", 4, "████"), ("it", 7, "")]
    {
        let mut rows = said.lines();
        let row = rows.find(|line| line.trim_start().starts_with(word));
        let cell = row.expect(&said).chars().skip(9 + 8 * column).take(8);
        assert_eq!(cell.collect::<String>().trim(), shade, "{said}");
    }
}

#[test]
fn a_wrong_argument_is_explained() {
    let many = "argument 2, \"many\": invalid digit";
    for (program, arguments, says) in [
        (
            env!("CARGO_BIN_EXE_where_it_looks"),
            &["wpgu"][..],
            "did you mean wgpu?",
        ),
        (env!("CARGO_BIN_EXE_long_context"), &["flex", "many"], many),
    ] {
        let output = Command::new(program).args(arguments).output();
        let output = output.expect("cargo built it");
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn every_pattern_has_a_picture() {
    let folder = std::env::temp_dir().join(format!("zoo-viz-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_patterns_as_pictures"))
        .arg(&folder)
        .output()
        .expect("cargo built it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("full                 100.0% computed"),
        "{said}"
    );
    let pictures: Vec<_> = std::fs::read_dir(&folder)
        .expect("it made the folder")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    assert_eq!(pictures.len(), 10, "{pictures:?}");
    for picture in pictures {
        let svg = std::fs::read_to_string(&picture).expect("it can be read");
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
            "{picture:?}"
        );
    }
    std::fs::remove_dir_all(&folder).expect("the test's own folder");
}

/// The number that follows these words.
fn number(said: &str, words: &str) -> f64 {
    let (_, rest) = said.split_once(words).expect(said);
    let number = rest.split_whitespace().next().expect(said);
    number.trim_end_matches(',').parse().expect(said)
}

#[test]
fn a_swapped_mechanism_has_the_same_weights() {
    let said = run(env!("CARGO_BIN_EXE_swap_mechanism"), &[]);
    assert!(number(&said, "\nflash") < 1e-5, "{said}");
    assert!(number(&said, "\nlinear") > 1e-4, "{said}");
}

#[test]
fn a_long_sequence_takes_little_memory() {
    // A software adapter is slow, and what it compiles takes more memory than a short sequence:
    // there it is only seen to learn.
    let word = std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned());
    let is_software = word.starts_with("wgpu");
    // All of it once, where it is quickest.
    let length = match word.as_str() {
        "flex" => "16384",
        _ if is_software => "1024",
        _ => "4096",
    };
    let said = run(env!("CARGO_BIN_EXE_long_context"), &[length]);
    let losses = ["step 1: loss", "step 3: loss"].map(|step| number(&said, step));
    assert!(losses[1] < losses[0], "{said}");
    if !is_software {
        let held = number(&said, "with its weights held:");
        let taken = number(&said, "taken here:");
        assert!(held > 1.0 && taken < held / 3.0, "{said}");
        assert!(length != "16384" || held > 17.0 && taken < 1.0, "{said}");
    }
}

#[test]
fn burns_own_layer_has_the_same_loss_and_holds_more() {
    let is_software = std::env::var("ZOO_BACKEND").is_ok_and(|word| word.starts_with("wgpu"));
    let longest = if is_software { "128" } else { "1024" };
    let said = run(env!("CARGO_BIN_EXE_against_burn"), &[longest]);
    let rows: Vec<Vec<f64>> = said
        .lines()
        .filter_map(|line| {
            let words = line.split_whitespace();
            words.map(|word| word.parse().ok()).collect()
        })
        .filter(|row: &Vec<f64>| row.len() == 6)
        .collect();
    assert_eq!(rows.len(), 3, "{said}");
    assert!(rows.iter().all(|row| row[5] < 1e-5), "{said}");
    // Of a software adapter's memory, only what is new shows.
    if !is_software {
        let [burn, here] = [rows[2][2], rows[2][4]];
        assert!(here < burn / 2.0, "{said}");
    }
}

#[test]
fn an_own_pattern_is_as_exact_as_any() {
    let said = run(env!("CARGO_BIN_EXE_custom_pattern"), &[]);
    assert!(said.contains("log-sparse: 9.4% of"), "{said}");
    assert!(said.contains("█ · · · █ · █ █ █ · "), "{said}");
    assert!(number(&said, "differ by") < 1e-5, "{said}");
}

#[test]
fn a_cache_changes_no_text() {
    let said = run(env!("CARGO_BIN_EXE_decode_with_cache"), &["12"]);
    assert!(said.contains("the same text: ["), "{said}");
}

#[test]
fn what_pytorch_saved_is_read() {
    let said = run(env!("CARGO_BIN_EXE_import_pytorch"), &[]);
    assert!(said.contains("parameters"), "{said}");
    assert!(
        said.contains("[1, 2, 3] goes on with [1, 6, 6, 6, 6, 6]"),
        "{said}"
    );
}

#[test]
fn an_own_operation_has_its_gradient() {
    let said = run(env!("CARGO_BIN_EXE_own_backend_extension"), &[]);
    assert!(
        said.contains("softsign  [-0.75, -0.5, 0.0, 0.3333333"),
        "{said}"
    );
    assert!(
        said.contains("slope     [0.0625, 0.25, 1.0, 0.4444444"),
        "{said}"
    );
}

#[test]
fn phrases_are_translated() {
    let said = run(env!("CARGO_BIN_EXE_translate"), &[]);
    for target in [
        "lange nicht gesehen",
        "guten morgen",
        "bis morgen früh",
        "nein",
    ] {
        assert!(said.contains(target), "{said}");
    }
}

#[test]
fn a_document_is_shaded_by_what_tells_its_class() {
    let said = run(env!("CARGO_BIN_EXE_classify_document"), &[]);
    let verdict = said
        .lines()
        .find_map(|line| line.strip_prefix("one is about "));
    let verdict = verdict.and_then(|line| line.strip_suffix(':')?.split_once(", and it says "));
    let (is, says) = verdict.expect(&said);
    assert_eq!(is, says, "{said}");
    assert!(said.contains("\x1b[38;2;0;0;0;48;2;255;"), "{said}");
    // By chance it would be about 14. What is learned differs with what a backend draws.
    assert!(number(&said, "tells the class in") >= 30.0, "{said}");
}
