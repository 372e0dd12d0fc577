//! Models as they are measured, on the device that `ZOO_BACKEND` names. They are the tiny
//! ones: this is about the measuring.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use zoo_bench_core::case::{Case, Pass};
use zoo_bench_core::fault::Fault;
use zoo_bench_core::model::{Model, ModelName, Setup, Size};
use zoo_bench_core::plan::{Sampling, Selection};
use zoo_bench_core::pool::pool;
use zoo_bench_core::record::{CaseLine, FILE, Outcome, Results, RunInfo, Writer};
use zoo_bench_core::report;
use zoo_bench_core::run::{Comparison, Program};
use zoo_bench_core::table::{Against, sections, terminal};
use zoo_spec::{Dtype, Mechanism};

fn backend() -> String {
    std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned())
}

/// Whether a device compiles kernels when it first meets them: a software adapter takes ten
/// seconds and more for those of a training step.
fn compiles_kernels() -> bool {
    ["wgpu", "vulkan", "cuda"].contains(&backend().as_str())
}

/// The tiny models in their usual passes; where kernels are compiled, in one of them each.
fn cases() -> Vec<Case> {
    let tiny = |model| ModelName {
        model,
        size: Some(Size::Tiny),
    };
    let selection = Selection {
        models: Model::ALL.map(tiny).to_vec(),
        ..Selection::default()
    };
    let mut cases = selection.cases().expect("they can all be measured");
    if compiles_kernels() {
        // One that is trained; of the others, what is not training.
        let trains = |case: &Case| case.name().starts_with("gpt");
        cases.retain(|case| (case.pass == Pass::Train) == trains(case));
    }
    cases
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("zoo-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn measure(folder: &Folder, cases: Vec<Case>, faults: Vec<(usize, Fault)>) -> Vec<CaseLine> {
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
            patience: Duration::from_millis(1),
            timeout: Duration::from_secs(120),
        },
        memory_limit: None,
        faults,
    };
    let run = RunInfo::here("now".to_owned(), 1);
    let mut writer = Writer::create(&folder.0.join(FILE), &run).expect("a new file");
    let lines = comparison
        .run(&mut writer, &mut (), &AtomicBool::new(false))
        .expect("the disk takes it");
    report::write(&folder.0, &run, &lines, &[], Against::default()).expect("the disk takes it");
    // Without the matmul that comes first.
    lines[1..].to_vec()
}

#[test]
fn every_model_is_measured_and_what_was_checked_is_written_down() {
    let folder = Folder::new("models");
    let cases = cases();
    let lines = measure(&folder, cases.clone(), vec![]);
    assert_eq!(lines.len(), cases.len());
    for (line, case) in lines.iter().zip(&cases) {
        let Outcome::Measured(measured) = &line.outcome else {
            panic!("{:?}: {:?}", line.id, line.outcome)
        };
        let checked = measured.checked.as_deref().unwrap_or_default();
        let says = match case.pass {
            Pass::Train => ["loss ", "; loss, gradients, loss after a step within "],
            Pass::Generate => [
                " tokens, each the best of a forward pass",
                "; logits within ",
            ],
            Pass::Forward | Pass::Decode => [" finite results", "; logits within "],
        };
        for says in says {
            assert!(checked.contains(says), "{:?}: {checked}", line.id);
        }
        // Two computations that are not the same one agree but for rounding.
        let error = measured.error.expect("it was compared");
        assert!((0.0..1e-3).contains(&error), "{:?}: {error}", line.id);
        assert!(measured.seconds.iter().all(|seconds| *seconds > 0.0));
        assert_eq!(line.tokens, case.tokens());
        assert!(line.work > 0.0, "{:?}", line.id);
        // A tiny one, and its least memory is that of its parameters.
        let parameters = line.parameters.expect("it counts them");
        assert!((1000..10_000).contains(&parameters), "{:?}", line.id);
        assert_eq!(
            line.minimum_bytes,
            case.minimum_bytes(Dtype::F32, Some(parameters))
        );
    }
    let written = Results::read(&folder.0).expect("readable").cases;
    assert_eq!(written[1..], lines);
    let table = terminal(&sections(&pool(&written), Against::default()), None);
    for word in ["models, ", "han-tiny", "seq2seq-tiny", "tokens/s"] {
        assert!(table.contains(word), "{table}");
    }
}

/// A loss that rises, a text that is too short, numbers that are none.
#[test]
fn a_model_that_is_wrong_has_no_time() {
    let case = |model, pass| {
        let attention = Mechanism::Flash;
        Case::model(Setup::new(model, Size::Tiny), attention, pass)
    };
    let mut cases = vec![(case(Model::Classifier, Pass::Forward), "is not finite")];
    if !compiles_kernels() {
        cases.push((case(Model::Gpt, Pass::Train), "loss "));
        cases.push((case(Model::Gpt, Pass::Generate), "texts of [3, 4] tokens"));
    }
    let (cases, says): (Vec<Case>, Vec<&str>) = cases.into_iter().unzip();
    let faults = (0..cases.len()).map(|at| (at, Fault::Wrong)).collect();
    let lines = measure(&Folder::new("wrong-models"), cases, faults);
    for (line, says) in lines.iter().zip(says) {
        let Outcome::Wrong { detail, .. } = &line.outcome else {
            panic!("{:?}: {:?}", line.id, line.outcome)
        };
        assert!(detail.contains(says), "{detail}");
    }
}

/// Finite results that are one percent off, and a loss that falls all the same.
#[test]
fn a_model_that_is_slightly_off_is_wrong() {
    let case = |model, pass| {
        let attention = Mechanism::Flash;
        Case::model(Setup::new(model, Size::Tiny), attention, pass)
    };
    let mut cases = vec![(case(Model::Classifier, Pass::Forward), "logits 1.0e-2 away")];
    if !compiles_kernels() {
        cases.push((
            case(Model::Gpt, Pass::Train),
            "1.0e-2 away from the reference",
        ));
        cases.push((case(Model::Gpt, Pass::Generate), "logits 1.0e-2 away"));
    }
    let (cases, says): (Vec<Case>, Vec<&str>) = cases.into_iter().unzip();
    let faults = (0..cases.len()).map(|at| (at, Fault::Inexact)).collect();
    let lines = measure(&Folder::new("inexact-models"), cases, faults);
    for (line, says) in lines.iter().zip(says) {
        let Outcome::Wrong { detail, error } = &line.outcome else {
            panic!("{:?}: {:?}", line.id, line.outcome)
        };
        assert!(detail.contains(says), "{detail}");
        assert!(
            error.is_some_and(|error| (error - 0.01).abs() < 1e-3),
            "{error:?}"
        );
    }
    let table = terminal(&sections(&pool(&lines), Against::default()), None);
    assert!(table.contains("WRONG"), "{table}");
}

#[test]
fn what_a_model_cannot_do_is_refused_before_a_device_is_opened() {
    for (arguments, says) in [
        (["--model", "gtp", "--pass", "train"], "did you mean gpt?"),
        (
            ["--model", "han", "--pass", "generate"],
            "it generates nothing",
        ),
        (
            ["--model", "gpt", "--subject", "matmul"],
            "a model has an attention",
        ),
        (["--model", "han", "--n", "9"], "a multiple of 8 places"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_zoo-bench"))
            .args(["--backend", &backend()])
            .args(arguments)
            .output()
            .expect("it starts");
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(says), "{said}");
    }
}
