//! Benchmark runs with the tested program on the backend `ZOO_BACKEND`.

#![allow(dead_code, reason = "no test program uses all of it")]

use std::fmt::Debug;
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use zoo_bench_core::case::Case;
use zoo_bench_core::model::Model;
use zoo_bench_core::plan::Selection;
use zoo_bench_core::pool::pool;
use zoo_bench_core::record::{CaseLine, FILE, Measured, Report, Results, Writer};
use zoo_bench_core::report;
use zoo_bench_core::run::{Comparison, Program};
use zoo_bench_core::table::{sections, terminal};
use zoo_bench_core::test_utils::run_info;

pub(crate) fn backend() -> String {
    std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned())
}

/// Whether the backend compiles kernels at run time: with a software adapter, the kernels of a
/// training step take more than ten seconds.
pub(crate) fn compiles_kernels() -> bool {
    ["wgpu", "vulkan", "cuda"].contains(&backend().as_str())
}

pub(crate) fn zoo_bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zoo-bench"))
        .args(["--backend", &backend()])
        .args(arguments.split_whitespace())
        .output()
        .expect("started")
}

/// The report of a case with few samples.
pub(crate) fn report(arguments: &str) -> Report {
    let output = zoo_bench(&format!("--warm-up 0 --min-time 0.01 {arguments}"));
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

pub(crate) fn measured<'a>(case: &dyn Debug, report: &'a Report) -> &'a Measured {
    let outcome = &report.outcome;
    outcome
        .measured()
        .unwrap_or_else(|| panic!("{case:?}: {outcome:?}"))
}

/// The cases selected by flags of `cargo xtask bench`.
pub(crate) fn cases(flags: &str) -> Vec<Case> {
    let selection = Selection::parse(flags).expect("flags");
    selection.plan().expect("supported cases").cases
}

pub(crate) fn tiny_models() -> Vec<Case> {
    let names = Model::ALL.map(|model| format!("{model}-tiny"));
    cases(&format!("--model {}", names.join(",")))
}

pub(crate) fn comparison(cases: Vec<Case>) -> Comparison {
    let program = Program {
        backend: backend(),
        executable: env!("CARGO_BIN_EXE_zoo-bench").into(),
        environment: Vec::new(),
    };
    let mut comparison = Comparison::new(vec![program], cases);
    // A software adapter compiles the kernels of a training step slowly.
    comparison.limits.time = Duration::from_secs(120);
    comparison
}

/// Runs a comparison, checks that the results file round-trips and that a report can be written,
/// and returns the lines except the first (matmul), and the tables.
pub(crate) fn run(comparison: &Comparison) -> (Vec<CaseLine>, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut writer = Writer::create(&folder.path().join(FILE), &run_info()).expect("a new file");
    let mut lines = comparison
        .run(&mut writer, &mut |_| {}, &AtomicBool::new(false))
        .expect("writable");
    let results = Results::read(folder.path()).expect("readable");
    // JSON may change the last bit of a float, so both sides go through it.
    let through_json = |line: &CaseLine| {
        let text = serde_json::to_string(line).expect("plain data");
        serde_json::from_str(&text).expect("what was written")
    };
    let written: Vec<CaseLine> = lines.iter().map(through_json).collect();
    assert_eq!(results.cases, written);
    report::write(folder.path(), &results, None).expect("writable");
    let tables = terminal(&sections(&pool(&lines), None), None);
    lines.remove(0);
    (lines, tables)
}
