//! The other side of `--vs pytorch`, on the device that `ZOO_BACKEND` names: only
//! LibTorch's brings a PyTorch with it, so elsewhere there is nothing to run.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use zoo_bench_core::case::Case;
use zoo_bench_core::model::{Model, ModelName, Size};
use zoo_bench_core::plan::{Sampling, Selection};
use zoo_bench_core::pool::pool;
use zoo_bench_core::pytorch::PyTorch;
use zoo_bench_core::record::{CaseLine, FILE, Measured, Outcome, RunInfo, Writer};
use zoo_bench_core::run::{Comparison, Program};
use zoo_bench_core::table::{Against, sections, terminal};
use zoo_spec::{Dtype, Mechanism};

fn main() {
    let arguments = Arguments::from_args();
    let backend = std::env::var("ZOO_BACKEND").unwrap_or_default();
    let trials = if backend.starts_with("tch-cpu") {
        vec![
            Trial::test("pytorch_computes_the_same_problems", same_problems),
            Trial::test("pytorch_builds_the_same_models", same_models),
        ]
    } else {
        vec![]
    };
    libtest_mimic::run(&arguments, trials).exit();
}

fn pytorch() -> Result<PyTorch, Failed> {
    let libtorch = PathBuf::from(std::env::var("LIBTORCH")?);
    let packages = libtorch.parent().ok_or("LIBTORCH has no parent")?;
    let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pytorch");
    let environment = vec![("PYTHONPATH".to_owned(), packages.into())];
    Ok(PyTorch::new("python3".into(), scripts, environment, "cpu")?)
}

/// Both sides of the cases.
fn lines(name: &str, cases: Vec<Case>) -> Result<Vec<CaseLine>, Failed> {
    let comparison = Comparison {
        programs: vec![Program {
            backend: "tch-cpu".to_owned(),
            executable: env!("CARGO_BIN_EXE_zoo-bench").into(),
            environment: Vec::new(),
        }],
        pytorch: Some(pytorch()?),
        cases,
        dtype: Dtype::F32,
        threads: 1,
        rounds: 1,
        sampling: Sampling {
            warm_up: Duration::ZERO,
            budget: Duration::from_millis(1),
            patience: Duration::from_millis(500),
            timeout: Duration::from_secs(60),
        },
        memory_limit: None,
        faults: Vec::new(),
    };
    let path = std::env::temp_dir().join(format!("zoo-{name}-{}-{FILE}", std::process::id()));
    let run = RunInfo::here("now".to_owned(), 1);
    let mut writer = Writer::create(&path, &run)?;
    let lines = comparison.run(&mut writer, &mut (), &AtomicBool::new(false))?;
    std::fs::remove_file(&path)?;
    Ok(lines)
}

fn measured(line: &CaseLine) -> Result<&Measured, Failed> {
    match &line.outcome {
        Outcome::Measured(measured) => Ok(measured),
        other => Err(format!("{:?}: {other:?}", line.id).into()),
    }
}

/// Causal, grouped heads, a mask of its own, a sample of queries: PyTorch
/// gets the same inputs and comes to the same result, forward and backward.
fn same_problems() -> Result<(), Failed> {
    let mut cases = Vec::new();
    for (problem, lengths) in [("several-tiles", vec![]), ("layer-causal", vec![512])] {
        let selection = Selection {
            mechanisms: vec![Mechanism::Standard],
            problems: vec![problem.to_owned()],
            lengths,
            ..Selection::default()
        };
        cases.extend(selection.cases()?);
    }
    let lines = lines("problems", cases)?;
    let theirs: Vec<&CaseLine> = lines
        .iter()
        .filter(|line| line.id.backend == "pytorch")
        .collect();
    // Two problems, two passes, two ways.
    if theirs.len() != 8 {
        return Err(format!("{} cases instead of 8", theirs.len()).into());
    }
    for line in theirs {
        match measured(line)?.error {
            Some(error) if error < 1e-5 => {}
            error => return Err(format!("{:?}: an error of {error:?}", line.id).into()),
        }
    }
    let table = terminal(&sections(&pool(&lines), Against::default()), None);
    if !table.contains("vs PyTorch") {
        return Err(table.into());
    }
    Ok(())
}

/// As many parameters as ours, and the same is asked of what they compute: a loss that falls,
/// texts that a forward pass agrees with.
fn same_models() -> Result<(), Failed> {
    let tiny = |model| ModelName {
        model,
        size: Some(Size::Tiny),
    };
    let selection = Selection {
        models: Model::ALL.map(tiny).to_vec(),
        ..Selection::default()
    };
    let lines = lines("models", selection.cases()?)?;
    let is_theirs = |line: &&CaseLine| line.id.backend == "pytorch";
    // Five models, two passes each.
    let count = lines.iter().filter(is_theirs).count();
    if count != 10 {
        return Err(format!("{count} cases instead of 10").into());
    }
    for theirs in lines.iter().filter(is_theirs) {
        let of = |line: &CaseLine| (line.id.problem.clone(), line.id.pass);
        let is_ours = |line: &&CaseLine| !is_theirs(line) && of(line) == of(theirs);
        let ours = lines.iter().find(is_ours).ok_or("ours is not there")?;
        let came_to = |line: &CaseLine| (line.parameters, line.work, line.tokens);
        if came_to(ours) != came_to(theirs) || theirs.parameters.is_none() {
            return Err(format!("{ours:?}\n{theirs:?}").into());
        }
        // Word for word, but for the numbers of a loss.
        let words = |line: &CaseLine| -> Result<String, Failed> {
            let checked = measured(line)?.checked.clone();
            let checked = checked.ok_or("nothing was checked")?;
            Ok(checked
                .split(|c: char| c == '.' || c.is_ascii_digit())
                .collect())
        };
        let (ours, theirs) = (words(ours)?, words(theirs)?);
        if ours != theirs {
            return Err(format!("{ours} is not {theirs}").into());
        }
    }
    Ok(())
}
