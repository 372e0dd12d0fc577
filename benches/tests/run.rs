//! The benchmark program on the backend `ZOO_BACKEND`.

mod common;

use std::process::Command;
use std::time::Duration;

use common::{backend, cases, comparison, run};
use zoo_bench_core::case::Fault;
use zoo_bench_core::child::Limits;
use zoo_bench_core::record::{Measured, Outcome, Report};
use zoo_bench_core::run::Comparison;

fn zoo_bench(arguments: &[&str]) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_zoo-bench"))
        .args(["--backend", &backend()])
        .args(["--warm-up", "0", "--budget", "0.01"])
        .args(arguments)
        .output()
        .expect("started");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(text.trim_end()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn measured(report: Report) -> Measured {
    match report.outcome {
        Outcome::Measured(measured) => measured,
        other => panic!("{other:?}"),
    }
}

#[test]
fn time_memory_and_error_are_reported() {
    for pass in ["forward", "train"] {
        let report = zoo_bench(&["--problem", "gpt2", "--pass", pass]);
        let device = report.device.clone().expect("a device");
        assert!(device.contains(" on "), "{device}");
        let measured = measured(report);
        assert!(measured.seconds.len() >= 10 && measured.seconds.iter().all(|&s| s > 0.0));
        let error = measured.error.expect("checked");
        assert!(error > 0.0 && error < 1e-4, "{error}");
        if cfg!(target_os = "linux") {
            let peak = measured.peak.expect("measured on Linux");
            // At least the attention weights of 12 heads, 256 x 256.
            assert!(peak.bytes > 12 * 256 * 256 * 4, "{peak:?}");
            assert!(!peak.how.is_empty());
        }
    }
}

#[test]
fn matmul_is_measured_without_a_check() {
    let measured = measured(zoo_bench(&["--subject", "matmul"]));
    assert!(!measured.seconds.is_empty() && measured.error.is_none());
}

/// Large enough that only a sample of the queries is checked.
#[test]
fn large_case_is_checked_on_a_sample() {
    let large = ["--problem", "layer", "--n", "512", "--patience", "0.1"];
    let error = measured(zoo_bench(&large)).error.expect("checked");
    assert!(error > 0.0 && error < 1e-4, "{error}");
    let mut wrong = large.to_vec();
    wrong.extend(["--fault", "wrong", "--pass", "train"]);
    let outcome = zoo_bench(&wrong).outcome;
    assert!(matches!(outcome, Outcome::Wrong { .. }), "{outcome:?}");
}

#[test]
fn failures_are_rows_and_the_run_continues() {
    let flags = "--mechanism standard --problem tiny,odd,causal,unscaled,one-key --pass forward";
    let mut cases = cases(flags);
    let expected = [
        ("tiny", Some(Fault::Hang), "TIMED OUT"),
        ("odd", Some(Fault::Exhaust), "OUT OF MEMORY"),
        ("causal", Some(Fault::Wrong), "WRONG"),
        ("unscaled", Some(Fault::Crash), "FAILED"),
        ("one-key", None, "measured"),
    ];
    for case in &mut cases {
        let mut named = expected.iter().filter(|(name, ..)| case.name() == *name);
        case.fault = named.next().expect("selected").1;
    }
    let (lines, table) = run(&Comparison {
        limits: Limits {
            time: Duration::from_secs(10),
            // Above the start-up memory of any backend.
            memory: Some(3 << 30),
        },
        ..comparison(cases)
    });
    for (name, fault, outcome_name) in expected {
        let line = lines.iter().find(|line| line.id.problem == name);
        let outcome = &line
            .unwrap_or_else(|| panic!("no row {name}"))
            .report
            .outcome;
        assert_eq!(outcome.name(), outcome_name, "{outcome:?}");
        if let Outcome::Failed { message } = outcome {
            assert!(message.contains("injected crash"), "{message}");
        }
        assert!(fault.is_none() || table.contains(outcome_name), "{table}");
    }
}
