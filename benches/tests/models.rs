//! Models as they are measured, on the device that `ZOO_BACKEND` names. They are the tiny
//! ones: this is about the measuring.

mod common;

use std::process::Command;
use std::time::Duration;

use common::{backend, comparison, run, tiny_models};
use zoo_bench_core::case::{Case, Fault, Pass};
use zoo_bench_core::child::Limits;
use zoo_bench_core::model::{Model, Setup, Size};
use zoo_bench_core::record::{CaseLine, Outcome};
use zoo_bench_core::run::Comparison;
use zoo_spec::{Dtype, Mechanism};

/// Whether a device compiles kernels when it first meets them: a software adapter takes ten
/// seconds and more for those of a training step.
fn compiles_kernels() -> bool {
    ["wgpu", "vulkan", "cuda"].contains(&backend().as_str())
}

/// The tiny models in their usual passes; where kernels are compiled, in one of them each.
fn cases() -> Vec<Case> {
    let mut cases = tiny_models();
    if compiles_kernels() {
        // One that is trained; of the others, what is not training.
        let trains = |case: &Case| case.name().starts_with("gpt");
        cases.retain(|case| (case.pass == Pass::Train) == trains(case));
    }
    cases
}

/// Measures the cases, with a fault in each if there is one.
fn measure(mut cases: Vec<Case>, fault: Option<Fault>) -> (Vec<CaseLine>, String) {
    for case in &mut cases {
        case.fault = fault;
    }
    run(&Comparison {
        limits: Limits {
            time: Duration::from_secs(120),
            memory: None,
        },
        ..comparison(cases)
    })
}

#[test]
fn every_model_is_measured_and_what_was_checked_is_written_down() {
    let cases = cases();
    let (lines, table) = measure(cases.clone(), None);
    assert_eq!(lines.len(), cases.len());
    for (line, case) in lines.iter().zip(&cases) {
        let Outcome::Measured(measured) = &line.report.outcome else {
            panic!("{:?}: {:?}", line.id, line.report.outcome)
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
        assert!(line.report.work > Some(0.0), "{:?}", line.id);
        // A tiny one, and its least memory is that of its parameters.
        let parameters = line.report.parameters.expect("it counts them");
        assert!((1000..10_000).contains(&parameters), "{:?}", line.id);
        assert_eq!(
            line.minimum_bytes,
            case.minimum_bytes(Dtype::F32, Some(parameters))
        );
    }
    for word in ["models, ", "han-tiny", "seq2seq-tiny", "tokens/s"] {
        assert!(table.contains(word), "{table}");
    }
}

/// Measures a forward pass, a step of training and a generation with a fault in each. All must be
/// wrong and say so; their errors and tables are returned.
fn wrong(fault: Fault, says: [&str; 3]) -> (Vec<Option<f64>>, String) {
    let mut wrong = vec![
        (Model::Classifier, Pass::Forward),
        (Model::Gpt, Pass::Train),
        (Model::Gpt, Pass::Generate),
    ];
    if compiles_kernels() {
        wrong.truncate(1);
    }
    let case = |(model, pass)| Case::model(Setup::new(model, Size::Tiny), Mechanism::Flash, pass);
    let (lines, table) = measure(wrong.into_iter().map(case).collect(), Some(fault));
    let error = |(line, says): (&CaseLine, &str)| {
        let Outcome::Wrong { detail, error } = &line.report.outcome else {
            panic!("{:?}: {:?}", line.id, line.report.outcome)
        };
        assert!(detail.contains(says), "{detail}");
        *error
    };
    (lines.iter().zip(says).map(error).collect(), table)
}

/// A loss that rises, a text that is too short, numbers that are none.
#[test]
fn a_model_that_is_wrong_has_no_time() {
    let says = ["is not finite", "loss ", "texts of [3, 4] tokens"];
    wrong(Fault::Wrong, says);
}

/// Finite results that are one percent off, and a loss that falls all the same.
#[test]
fn a_model_that_is_slightly_off_is_wrong() {
    let logits = "logits 1.0e-2 away";
    let says = [logits, "1.0e-2 away from the reference", logits];
    let (errors, table) = wrong(Fault::Inexact, says);
    for error in errors {
        let is_a_percent = error.is_some_and(|error| (error - 0.01).abs() < 1e-3);
        assert!(is_a_percent, "{error:?}");
    }
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
        (["--model", "han", "--n", "9"], "a multiple of 8 positions"),
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
