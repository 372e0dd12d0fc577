//! Runs every example on the backend in `ZOO_BACKEND`, and checks its output.

use std::process::Command;

fn backend() -> String {
    std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned())
}

/// Runs a program on the backend; returns its stdout.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .arg(backend())
        .args(arguments)
        .output()
        .expect("cargo built it");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}\n{stdout}{stderr}"
    );
    stdout
}

/// Runs a program with invalid arguments; returns its stderr.
fn run_invalid(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.expect("cargo built it");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The topics assert the claims of docs/theory.
#[test]
fn theory_holds() {
    let program = env!("CARGO_BIN_EXE_theory");
    let error = run_invalid(program, &["flex", "none"]);
    let (_, topics) = error.split_once("must be one of ").expect(&error);
    let topics: Vec<&str> = topics.trim().split(", ").collect();
    assert_eq!(topics.len(), 14, "{error}");
    run(program, &topics);
}

#[test]
fn pronoun_attends_to_the_noun() {
    let output = run(env!("CARGO_BIN_EXE_attention_weights"), &[]);
    // The last case is masked.
    for (word, column, shade) in [("it", 1, "████"), ("outside", 4, "████"), ("it", 7, "")]
    {
        let mut rows = output.lines();
        let row = rows.find(|line| line.trim_start().starts_with(word));
        let cell = row.expect(&output).chars().skip(9 + 8 * column).take(8);
        assert_eq!(cell.collect::<String>().trim(), shade, "{output}");
    }
}

#[test]
fn invalid_arguments_are_reported() {
    let many = "argument 2, \"many\": invalid digit";
    for (program, arguments, expected) in [
        (
            env!("CARGO_BIN_EXE_attention_weights"),
            &["wpgu"][..],
            "did you mean wgpu?",
        ),
        (env!("CARGO_BIN_EXE_long_context"), &["flex", "many"], many),
    ] {
        let error = run_invalid(program, arguments);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn every_pattern_is_written_as_svg() {
    let folder = std::env::temp_dir().join(format!("zoo-viz-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_plot_patterns"))
        .arg(&folder)
        .output()
        .expect("cargo built it");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(
        stdout.contains("full                 100.0% computed"),
        "{stdout}"
    );
    let pictures: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder exists")
        .map(|entry| entry.expect("readable").path())
        .collect();
    assert_eq!(pictures.len(), 10, "{pictures:?}");
    for picture in pictures {
        let svg = std::fs::read_to_string(&picture).expect("readable");
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
            "{picture:?}"
        );
    }
    std::fs::remove_dir_all(&folder).expect("removable");
}

/// The number after `label`.
fn number(output: &str, label: &str) -> f64 {
    let (_, rest) = output.split_once(label).expect(output);
    let number = rest.split_whitespace().next().expect(output);
    number.trim_end_matches(',').parse().expect(output)
}

#[test]
fn mechanisms_share_weights() {
    let output = run(env!("CARGO_BIN_EXE_swap_mechanism"), &[]);
    assert!(number(&output, "\nflash") < 1e-5, "{output}");
    assert!(number(&output, "\nlinear") > 1e-4, "{output}");
}

#[test]
fn long_context_memory_is_linear() {
    // A software adapter is slow, and its compiled shaders take more memory than a short sequence,
    // so only the loss is checked there.
    let backend = backend();
    let is_software = backend.starts_with("wgpu");
    // The full length only on the fastest backend.
    let length = match backend.as_str() {
        "flex" => "16384",
        // Several tiles of the kernel.
        _ if is_software => "256",
        _ => "4096",
    };
    let output = run(env!("CARGO_BIN_EXE_long_context"), &[length]);
    let losses = ["step 1: loss", "step 3: loss"].map(|step| number(&output, step));
    assert!(losses[1] < losses[0], "{output}");
    if !is_software {
        let materialized = number(&output, "weights would take:");
        let peak = number(&output, "peak memory:");
        assert!(materialized > 1.0 && peak < materialized / 3.0, "{output}");
        let is_full_length = length == "16384";
        assert!(
            !is_full_length || materialized > 17.0 && peak < 1.0,
            "{output}"
        );
    }
}

#[test]
fn burn_nn_has_the_same_loss_and_uses_more_memory() {
    let is_software = backend().starts_with("wgpu");
    let longest = if is_software { "128" } else { "1024" };
    let output = run(env!("CARGO_BIN_EXE_compare_burn_nn"), &[longest]);
    let rows: Vec<Vec<f64>> = output
        .lines()
        .filter_map(|line| {
            let words = line.split_whitespace();
            words.map(|word| word.parse().ok()).collect()
        })
        .filter(|row: &Vec<f64>| row.len() == 6)
        .collect();
    assert_eq!(rows.len(), 3, "{output}");
    assert!(rows.iter().all(|row| row[5] < 1e-5), "{output}");
    // On a software adapter, only newly allocated memory is measured.
    if !is_software {
        let [burn, ours] = [rows[2][2], rows[2][4]];
        assert!(ours < burn / 2.0, "{output}");
    }
}

#[test]
fn custom_pattern_matches_standard() {
    let output = run(env!("CARGO_BIN_EXE_custom_pattern"), &[]);
    assert!(output.contains("log-sparse: 9.4% of"), "{output}");
    assert!(output.contains("█ · · · █ · █ █ █ · "), "{output}");
    assert!(number(&output, "flash and standard:") < 1e-5, "{output}");
}

#[test]
fn output_contains_the_expected_text() {
    let phrases = [
        "lange nicht gesehen",
        "guten morgen",
        "bis morgen früh",
        "nein",
    ];
    let continuation = "[1, 2, 3] continues with [1, 6, 6, 6, 6, 6]";
    let softsign = "softsign  [-0.75, -0.5, 0.0, 0.3333333";
    let gradient = "gradient  [0.0625, 0.25, 1.0, 0.4444444";
    let cached = (
        env!("CARGO_BIN_EXE_decode_with_cache"),
        &["12"][..],
        &["identical tokens: ["][..],
    );
    // Elements per position: keys and values of 8, 2 and 1 heads, a latent vector with 32 elements.
    let caches = (
        env!("CARGO_BIN_EXE_compare_caches"),
        &["40"][..],
        &[
            "flash                              1024     0.16 MiB",
            "grouped-query                       256     0.04 MiB",
            "multi-query                         128     0.02 MiB",
            "mla                                 160     0.02 MiB",
        ][..],
    );
    for (program, arguments, expected) in [
        cached,
        caches,
        (
            env!("CARGO_BIN_EXE_import_pytorch"),
            &[],
            &["parameters", continuation],
        ),
        (env!("CARGO_BIN_EXE_custom_op"), &[], &[softsign, gradient]),
        (env!("CARGO_BIN_EXE_translate"), &[], &phrases),
    ] {
        let output = run(program, arguments);
        for text in expected {
            assert!(output.contains(text), "{program}, {text:?}: {output}");
        }
    }
}

#[test]
fn document_is_classified_by_its_key_sentence() {
    let output = run(env!("CARGO_BIN_EXE_classify_document"), &[]);
    let labels = output.lines().find_map(|line| line.strip_prefix("true: "));
    let labels = labels.and_then(|line| line.split_once(", predicted: "));
    let (label, predicted) = labels.expect(&output);
    assert_eq!(label, predicted, "{output}");
    assert!(output.contains("\x1b[38;2;0;0;0;48;2;255;"), "{output}");
    // About 14 by chance. The trained weights depend on the backend's random numbers.
    assert!(number(&output, "the largest weight in") >= 30.0, "{output}");
}
