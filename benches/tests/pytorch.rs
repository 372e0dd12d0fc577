//! The PyTorch side of `--vs pytorch`. Only the LibTorch backend has a PyTorch installation.

mod common;

use std::path::PathBuf;

use common::{backend, cases, comparison, measured, run, tiny_models};
use libtest_mimic::{Arguments, Failed, Trial};
use zoo_bench_core::case::Case;
use zoo_bench_core::library::Rival;
use zoo_bench_core::pytorch::PyTorch;
use zoo_bench_core::record::CaseLine;
use zoo_bench_core::run::Comparison;
use zoo_spec::Mechanism;

fn main() {
    let arguments = Arguments::from_args();
    let trials = if backend().starts_with("tch-cpu") {
        vec![
            Trial::test("pytorch_computes_the_same_problems", same_problems),
            Trial::test("pytorch_computes_the_same_mechanisms", same_mechanisms),
            Trial::test("pytorch_builds_the_same_models", same_models),
        ]
    } else {
        vec![]
    };
    libtest_mimic::run(&arguments, trials).exit();
}

/// The results of both sides, and the tables.
fn lines(cases: Vec<Case>) -> Result<(Vec<CaseLine>, String), Failed> {
    let libtorch = PathBuf::from(std::env::var("LIBTORCH")?);
    let packages = libtorch.parent().ok_or("LIBTORCH has no parent")?;
    let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pytorch");
    let environment = vec![("PYTHONPATH", packages.into())];
    let pytorch = PyTorch::new("python3".into(), scripts, environment, "cpu")?;
    Ok(run(&Comparison {
        rivals: vec![Rival::PyTorch(pytorch)],
        ..comparison(cases)
    }))
}

fn is_theirs(line: &&CaseLine) -> bool {
    !line.id.is_ours()
}

/// PyTorch gets the same inputs and computes the same results, forward and backward: causal,
/// grouped heads, a dense mask, a sample of queries.
fn same_problems() -> Result<(), Failed> {
    let several_tiles = cases("--mechanism standard --problem several-tiles");
    let causal = cases("--mechanism standard --problem layer-causal --seq 512");
    let (lines, table) = lines([several_tiles, causal].concat())?;
    let theirs: Vec<&CaseLine> = lines.iter().filter(is_theirs).collect();
    let count = theirs.len();
    assert_eq!(count, 8, "two problems, passes and implementations each");
    for line in theirs {
        let error = measured(&line.id, &line.report).error.expect("checked");
        assert!(error < 1e-5, "{:?}: error {error}", line.id);
    }
    assert!(table.contains("vs PyTorch"), "{table}");
    Ok(())
}

/// Every mechanism in PyTorch equals the oracle, at a length where its pattern differs from causal
/// attention and that is no multiple of a chunk.
fn same_mechanisms() -> Result<(), Failed> {
    let causal = cases("--problem layer-causal --seq 600 --pass train");
    let never_causal =
        cases("--mechanism nystrom,linformer --problem layer --seq 600 --pass train");
    let all = [causal, never_causal].concat();
    let steps =
        cases("--mechanism sliding-window,linear,retention --problem decode-step --seq 600");
    let (lines, _) = lines([all, steps].concat())?;
    let theirs: Vec<&CaseLine> = lines.iter().filter(is_theirs).collect();
    for line in &theirs {
        let measured = measured(&line.id, &line.report);
        let error = measured.error.expect("checked");
        assert!(error < 1e-3, "{:?}: error {error}", line.id);
        assert!(measured.checked.is_some(), "{:?}", line.id);
    }
    let ours: Vec<&CaseLine> = lines.iter().filter(|line| !is_theirs(line)).collect();
    assert_eq!(ours.len(), Mechanism::ALL.len() + 3);
    // SDPA beside the decoding steps and beside the layer that is not causal; the causal layer has
    // it as the PyTorch side of `flash`.
    assert_eq!(theirs.len(), ours.len() + 2);
    Ok(())
}

/// PyTorch models have the same parameters and pass the same checks as ours.
fn same_models() -> Result<(), Failed> {
    let (lines, _) = lines(tiny_models())?;
    let count = lines.iter().filter(is_theirs).count();
    assert_eq!(count, 10, "five models, two passes each");
    for theirs in lines.iter().filter(is_theirs) {
        let key = |line: &CaseLine| (line.id.problem.clone(), line.id.pass);
        let is_ours = |line: &&CaseLine| !is_theirs(line) && key(line) == key(theirs);
        let ours = lines.iter().find(is_ours).ok_or("our case is missing")?;
        assert!(theirs.report.parameters.is_some(), "{theirs:?}");
        let counts = |line: &CaseLine| (line.report.parameters, line.report.work, line.tokens);
        assert_eq!(counts(ours), counts(theirs), "{:?}", theirs.id);
        // Equal texts except for the digits.
        let text = |line: &CaseLine| -> String {
            let measured = measured(&line.id, &line.report);
            let checked = measured.checked.as_deref().expect("checked");
            let is_digit = |c: char| c == '.' || c.is_ascii_digit();
            checked.split(is_digit).collect()
        };
        assert_eq!(text(ours), text(theirs));
    }
    Ok(())
}
