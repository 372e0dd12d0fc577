//! The measuring program on a real device, the one that `ZOO_BACKEND` names.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use zoo_bench_core::case::Case;
use zoo_bench_core::fault::Fault;
use zoo_bench_core::plan::{Sampling, Selection};
use zoo_bench_core::pool::pool;
use zoo_bench_core::record::{FILE, Measured, Outcome, Report, Results, RunInfo, Writer};
use zoo_bench_core::report;
use zoo_bench_core::run::{Comparison, Program};
use zoo_bench_core::table::{Against, sections, terminal};
use zoo_spec::Dtype;

fn backend() -> String {
    std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned())
}

fn zoo_bench(arguments: &[&str]) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_zoo-bench"))
        .args(["--backend", &backend()])
        .args(["--warm-up", "0", "--budget", "0.01"])
        .args(arguments)
        .output()
        .expect("it starts");
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
fn time_memory_and_error_of_a_case_are_reported() {
    for pass in ["forward", "train"] {
        let report = zoo_bench(&["--problem", "gpt2", "--pass", pass]);
        assert!(report.device.contains(" on "), "{}", report.device);
        let measured = measured(report);
        assert!(measured.seconds.len() >= 10 && measured.seconds.iter().all(|&s| s > 0.0));
        let error = measured.error.expect("it was checked");
        assert!(error > 0.0 && error < 1e-4, "{error}");
        if cfg!(target_os = "linux") {
            let peak = measured.peak.expect("Linux counts");
            // 12 heads of 256 x 256 weights, at least once.
            assert!(peak.bytes > 12 * 256 * 256 * 4, "{peak:?}");
            assert!(!peak.how.is_empty());
        }
    }
}

#[test]
fn a_matmul_has_a_time_and_nothing_to_check() {
    let measured = measured(zoo_bench(&["--subject", "matmul"]));
    assert!(!measured.seconds.is_empty() && measured.error.is_none());
}

/// Large enough that only a sample of the queries is solved.
#[test]
fn a_large_case_is_checked_by_a_sample() {
    let large = ["--problem", "layer", "--n", "512", "--patience", "0.1"];
    let error = measured(zoo_bench(&large)).error.expect("it was checked");
    assert!(error > 0.0 && error < 1e-4, "{error}");
    let mut wrong = large.to_vec();
    wrong.extend(["--fault", "wrong", "--pass", "train"]);
    let outcome = zoo_bench(&wrong).outcome;
    assert!(matches!(outcome, Outcome::Wrong { .. }), "{outcome:?}");
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_hang_a_crash_no_memory_and_a_wrong_result_are_rows_and_the_run_goes_on() {
    let folder = Folder(std::env::temp_dir().join(format!("zoo-faults-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a temporary folder");
    let names = ["tiny", "odd", "causal", "unscaled", "one-key"];
    let cases: Vec<Case> = Selection {
        mechanisms: vec![zoo_spec::Mechanism::Standard],
        problems: names.map(str::to_owned).to_vec(),
        passes: vec![zoo_bench_core::case::Pass::Forward],
        ..Selection::default()
    }
    .cases()
    .expect("they are in the catalogue");
    let place = |name: &str| {
        let found = cases.iter().position(|case| case.name() == name);
        found.expect("it was asked for")
    };
    let faults = vec![
        (place("tiny"), Fault::Hang),
        (place("odd"), Fault::Exhaust),
        (place("causal"), Fault::Wrong),
        (place("unscaled"), Fault::Crash),
    ];
    let comparison = Comparison {
        programs: vec![Program {
            backend: backend(),
            executable: env!("CARGO_BIN_EXE_zoo-bench").into(),
            environment: Vec::new(),
        }],
        pytorch: None,
        cases,
        dtype: Dtype::F32,
        threads: 1,
        rounds: 1,
        sampling: Sampling {
            warm_up: Duration::ZERO,
            budget: Duration::from_millis(1),
            patience: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
        },
        // Above what any backend takes to start, far below what a machine has.
        memory_limit: Some(3 << 30),
        faults,
    };
    let run = RunInfo::here("now".to_owned(), 1);
    let mut writer = Writer::create(&folder.0.join(FILE), &run).expect("a new file");
    let lines = comparison
        .run(&mut writer, &mut (), &AtomicBool::new(false))
        .expect("the disk takes it");

    let outcome = |name: &str| {
        let line = lines.iter().find(|line| line.id.problem == name);
        &line.unwrap_or_else(|| panic!("{name} is no row")).outcome
    };
    assert!(
        matches!(outcome("tiny"), Outcome::TimedOut { .. }),
        "{:?}",
        outcome("tiny")
    );
    assert!(
        matches!(outcome("odd"), Outcome::OutOfMemory { .. }),
        "{:?}",
        outcome("odd")
    );
    assert!(
        matches!(outcome("causal"), Outcome::Wrong { .. }),
        "{:?}",
        outcome("causal")
    );
    let Outcome::Failed { message } = outcome("unscaled") else {
        panic!("{:?}", outcome("unscaled"))
    };
    assert!(message.contains("made to crash"), "{message}");
    assert!(
        matches!(outcome("one-key"), Outcome::Measured(_)),
        "{:?}",
        outcome("one-key")
    );

    let written = Results::read(&folder.0).expect("readable");
    assert_eq!(written.cases, lines);
    let table = terminal(&sections(&pool(&lines), Against::default()), None);
    for word in ["TIMED OUT", "OUT OF MEMORY", "WRONG", "FAILED"] {
        assert!(table.contains(word), "{table}");
    }
    report::write(&folder.0, &run, &lines, &[], Against::default()).expect("the disk takes it");
}
