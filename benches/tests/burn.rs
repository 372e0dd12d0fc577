//! Burn's own attention, as measured by `--vs burn`, on the backend `ZOO_BACKEND`.

mod common;

use common::{backend, cases, comparison, measured, report, run, zoo_bench};
use zoo_bench_core::burn::SUBJECT;
use zoo_bench_core::case::Fault;
use zoo_bench_core::library::{Library, Rival};
use zoo_bench_core::record::{CaseLine, Outcome, Report};
use zoo_bench_core::run::Comparison;

fn burn_attention(arguments: &str) -> Report {
    report(&format!("--mechanism {SUBJECT} {arguments}"))
}

/// Causal attention, with as many queries as keys and with one.
#[test]
fn time_memory_and_error_are_reported() {
    for arguments in [
        "--problem layer-causal --pass forward",
        "--problem layer-causal --pass train",
        "--problem decode-step --pass decode",
    ] {
        let report = burn_attention(arguments);
        let measured = measured(&arguments, &report);
        assert!(measured.seconds.iter().all(|&seconds| seconds > 0.0));
        let error = measured.error.expect("checked");
        assert!(error > 0.0 && error < 1e-4, "{arguments}: {error}");
        assert!(!cfg!(target_os = "linux") || measured.peak.is_some());
    }
}

/// Training has the same implementation on every backend. It materialises the attention weights and
/// supports masks, also of whole queries, biases and softcaps.
#[test]
fn options_are_the_same_as_ours() {
    for problem in [
        "key-lengths",
        "causal-more-queries",
        "softcap",
        "bias",
        "unscaled",
    ] {
        let report = burn_attention(&format!("--problem {problem} --pass train"));
        let error = measured(&problem, &report).error.expect("checked");
        assert!(error < 1e-4, "{problem}: {error}");
    }
}

/// LibTorch's mask says which keys are visible, Burn's which are masked, and burn-tch passes it on
/// unchanged.
#[test]
fn wrong_results_are_reported() {
    let outcome = burn_attention("--problem key-padding --pass forward").outcome;
    let is_wrong = matches!(outcome, Outcome::Wrong { .. });
    assert_eq!(is_wrong, backend().starts_with("tch"), "{outcome:?}");
    for pass in ["forward", "train"] {
        let injected = Fault::Wrong.name();
        let report = burn_attention(&format!("--problem odd --pass {pass} --fault {injected}"));
        let outcome = report.outcome;
        assert!(matches!(outcome, Outcome::Wrong { .. }), "{outcome:?}");
    }
}

#[test]
fn unsupported_problems_are_rejected() {
    for (arguments, reason) in [
        ("--problem dropout", "Burn's attention has no dropout"),
        ("--problem grouped-heads", "as many key and value heads"),
        ("--model gpt-tiny", "cannot be used with --model"),
    ] {
        let output = zoo_bench(&format!("--mechanism {SUBJECT} {arguments}"));
        assert!(!output.status.success());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(reason), "{message}");
    }
}

/// Beside two mechanisms, Burn's attention is one row; with dropout it is skipped.
#[test]
fn burn_is_a_row_of_the_tables() {
    let cases = cases("--mechanism flash,standard --problem causal,dropout --pass forward");
    let skipped = Library::Burn.skipped(&cases);
    let [skipped] = &skipped[..] else {
        panic!("{skipped:?}")
    };
    assert_eq!((&*skipped.problem, &*skipped.subject), ("dropout", SUBJECT));
    let (lines, table) = run(&Comparison {
        rivals: vec![Rival::Burn],
        ..comparison(cases)
    });
    assert_eq!(lines.len(), 5);
    let theirs: Vec<&CaseLine> = lines.iter().filter(|line| !line.id.is_ours()).collect();
    let [theirs] = &theirs[..] else {
        panic!("{theirs:?}")
    };
    assert_eq!(
        (&*theirs.id.backend, &*theirs.id.problem),
        (&*backend(), "causal")
    );
    let error = measured(&theirs.id, &theirs.report).error.expect("checked");
    assert!(error < 1e-5, "{error}");
    let is_same = |line: &&CaseLine| line.id.problem == "causal" && line.id.subject == "flash";
    let flash = lines.iter().find(is_same).expect("measured");
    assert_eq!(flash.report.work, theirs.report.work);
    assert_eq!(flash.minimum_bytes, theirs.minimum_bytes);
    for text in ["vs Burn", SUBJECT] {
        assert!(table.contains(text), "{table}");
    }
}
