//! The other side of `--vs pytorch`, on the device that `ZOO_BACKEND` names: only
//! LibTorch's brings a PyTorch with it, so elsewhere there is nothing to run.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use zoo_comparison::plan::{Sampling, Selection};
use zoo_comparison::pool::pool;
use zoo_comparison::pytorch::PyTorch;
use zoo_comparison::record::{CaseLine, FILE, Outcome, RunInfo, Writer};
use zoo_comparison::run::{Comparison, Program};
use zoo_comparison::table::{Against, sections, terminal};
use zoo_words::{Dtype, Mechanism};

fn main() {
    let arguments = Arguments::from_args();
    let backend = std::env::var("ZOO_BACKEND").unwrap_or_default();
    let trials = if backend.starts_with("tch-cpu") {
        vec![Trial::test(
            "pytorch_computes_the_same_problems",
            same_problems,
        )]
    } else {
        vec![]
    };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Causal, grouped heads, a mask of its own, a sample of queries: PyTorch
/// gets the same inputs and comes to the same result, forward and backward.
fn same_problems() -> Result<(), Failed> {
    let libtorch = PathBuf::from(std::env::var("LIBTORCH")?);
    let packages = libtorch.parent().ok_or("LIBTORCH has no parent")?;
    let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pytorch");
    let environment = vec![("PYTHONPATH".to_owned(), packages.into())];
    let pytorch = PyTorch::new("python3".into(), scripts, environment, "cpu")?;

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
    let comparison = Comparison {
        programs: vec![Program {
            backend: "tch-cpu".to_owned(),
            executable: env!("CARGO_BIN_EXE_zoo-bench").into(),
            environment: Vec::new(),
        }],
        pytorch: Some(pytorch),
        cases,
        dtype: Dtype::F32,
        threads: 1,
        rounds: 1,
        sampling: Sampling {
            warm_up: Duration::ZERO,
            budget: Duration::from_millis(1),
            patience: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
        },
        memory_limit: None,
        faults: Vec::new(),
    };
    let path = std::env::temp_dir().join(format!("zoo-pytorch-{}-{FILE}", std::process::id()));
    let run = RunInfo::here("now".to_owned(), 1);
    let mut writer = Writer::create(&path, &run)?;
    let lines = comparison.run(&mut writer, &mut (), &AtomicBool::new(false))?;
    std::fs::remove_file(&path)?;

    let theirs: Vec<&CaseLine> = lines
        .iter()
        .filter(|line| line.id.backend == "pytorch")
        .collect();
    // Two problems, two passes, two ways.
    if theirs.len() != 8 {
        return Err(format!("{} cases instead of 8", theirs.len()).into());
    }
    for line in theirs {
        let Outcome::Measured(measured) = &line.outcome else {
            return Err(format!("{:?}: {:?}", line.id, line.outcome).into());
        };
        match measured.error {
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
