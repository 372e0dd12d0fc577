//! The benchmark program on the backend `ZOO_BACKEND`.

mod common;

use std::time::Duration;

use common::{cases, comparison, compiles_kernels, measured, report, run};
use zoo_bench_core::case::Fault;
use zoo_bench_core::child::Limits;
use zoo_bench_core::record::Outcome;
use zoo_bench_core::run::Comparison;

#[test]
fn time_memory_and_error_are_reported() {
    for pass in ["forward", "train"] {
        let report = report(&format!("--problem gpt2 --pass {pass}"));
        let device = report.device.as_ref().expect("a device");
        assert!(device.contains(" on "), "{device}");
        let measured = measured(&pass, &report);
        assert!(measured.seconds.len() >= 10 && measured.seconds.iter().all(|&s| s > 0.0));
        let error = measured.error.expect("checked");
        assert!(error > 0.0 && error < 1e-4, "{error}");
        if cfg!(target_os = "linux") {
            let peak = measured.peak.as_ref().expect("measured on Linux");
            // At least the attention weights of 12 heads, 256 x 256.
            assert!(peak.bytes > 12 * 256 * 256 * 4, "{peak:?}");
            assert!(!peak.how.is_empty());
        }
    }
}

#[test]
fn matmul_is_measured_without_a_check() {
    let report = report("--mechanism matmul");
    let measured = measured(&"matmul", &report);
    assert!(!measured.seconds.is_empty() && measured.error.is_none());
}

/// Large enough that only a sample of the queries is checked.
#[test]
fn large_case_is_checked_on_a_sample() {
    let large = "--problem layer --seq 512 --max-time 0.1";
    let error = measured(&large, &report(large)).error.expect("checked");
    assert!(error > 0.0 && error < 1e-4, "{error}");
    let outcome = report(&format!("{large} --fault wrong --pass train")).outcome;
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
            // On a busy machine, a software adapter takes ten seconds to start, and 3 GiB as long to
            // fill.
            time: Duration::from_secs(if compiles_kernels() { 35 } else { 25 }),
            // Above the start-up memory of any backend.
            memory: Some(3 << 30),
        },
        ..comparison(cases)
    });
    for (name, fault, outcome_name) in expected {
        let line = lines.iter().find(|line| line.id.problem == name);
        let outcome = &line.expect(name).report.outcome;
        assert_eq!(outcome.name(), outcome_name, "{outcome:?}");
        if let Outcome::Failed { message } = outcome {
            assert!(message.contains("injected crash"), "{message}");
        }
        assert!(fault.is_none() || table.contains(outcome_name), "{table}");
    }
}
