//! Benchmarks of tiny models on the backend `ZOO_BACKEND`.

mod common;

use common::{comparison, compiles_kernels, measured, run, tiny_models, zoo_bench};
use zoo_bench_core::case::{Case, Fault, Pass};
use zoo_bench_core::model::{Model, Setup, Size};
use zoo_bench_core::record::{CaseLine, Outcome};
use zoo_spec::{Dtype, Mechanism};

#[test]
fn every_model_is_measured_and_its_checks_are_recorded() {
    let mut cases = tiny_models();
    if compiles_kernels() {
        // One pass of each model; train only the GPT.
        let trains = |case: &Case| case.name().starts_with("gpt");
        cases.retain(|case| (case.pass == Pass::Train) == trains(case));
    }
    let (lines, table) = run(&comparison(cases.clone()));
    assert_eq!(lines.len(), cases.len());
    for (line, case) in lines.iter().zip(&cases) {
        let measured = measured(&line.id, &line.report);
        let checked = measured.checked.as_deref().unwrap_or_default();
        let argmax = " tokens, each the argmax of a forward pass";
        let expected = match case.pass {
            Pass::Train => ["loss ", "; loss, gradients, loss after a step within "],
            Pass::Generate => [argmax, "; logits within "],
            Pass::Forward | Pass::Decode => [" finite logits", "; logits within "],
        };
        for text in expected {
            assert!(checked.contains(text), "{:?}: {checked}", line.id);
        }
        // Equal up to rounding.
        let error = measured.error.expect("compared");
        assert!((0.0..1e-3).contains(&error), "{:?}: {error}", line.id);
        assert!(measured.seconds.iter().all(|seconds| *seconds > 0.0));
        assert_eq!(line.tokens, case.tokens());
        assert!(line.report.work > Some(0.0), "{:?}", line.id);
        let parameters = line.report.parameters.expect("counted");
        assert!((1000..10_000).contains(&parameters), "{:?}", line.id);
        let minimum_bytes = case.minimum_bytes(Dtype::F32, Some(parameters));
        assert_eq!(line.minimum_bytes, minimum_bytes);
    }
    for text in ["models, ", "han-tiny", "seq2seq-tiny", "tokens/s"] {
        assert!(table.contains(text), "{table}");
    }
}

/// Errors and table of a forward pass, a training step and a generation with a fault.
fn check_wrong(fault: Fault, details: [&str; 3]) -> (Vec<Option<f64>>, String) {
    let mut cases = vec![
        (Model::Classifier, Pass::Forward),
        (Model::Gpt, Pass::Train),
        (Model::Gpt, Pass::Generate),
    ];
    if compiles_kernels() {
        cases.truncate(1);
    }
    let case = |(model, pass)| Case {
        fault: Some(fault),
        ..Case::model(Setup::new(model, Size::Tiny), Mechanism::Flash, pass)
    };
    let (lines, table) = run(&comparison(cases.into_iter().map(case).collect()));
    let error = |(line, expected): (&CaseLine, &str)| {
        let Outcome::Wrong { detail, error } = &line.report.outcome else {
            panic!("{:?}: {:?}", line.id, line.report.outcome)
        };
        assert!(detail.contains(expected), "{detail}");
        *error
    };
    (lines.iter().zip(details).map(error).collect(), table)
}

/// Non-finite logits, an increasing loss, a truncated generation.
#[test]
fn wrong_results_have_no_time() {
    let details = ["is not finite", "loss ", "generated [3, 4] tokens"];
    check_wrong(Fault::Wrong, details);
}

/// Results with a relative error of 1%, and a loss that still decreases.
#[test]
fn inexact_results_are_wrong() {
    let logits = "logits: error 1.0e-2";
    let details = [logits, "error 1.0e-2 against the reference", logits];
    let (errors, table) = check_wrong(Fault::Inexact, details);
    for error in errors {
        let is_one_percent = error.is_some_and(|error| (error - 0.01).abs() < 1e-3);
        assert!(is_one_percent, "{error:?}");
    }
    assert!(table.contains("WRONG"), "{table}");
}

#[test]
fn invalid_arguments_are_rejected_before_a_device_is_opened() {
    for (arguments, expected) in [
        ("--model gtp --pass train", "did you mean gpt?"),
        ("--model han --pass generate", "does not generate text"),
        ("--model gpt --mechanism matmul", "cannot be used with"),
        ("--model han --seq 9", "a multiple of 8"),
        (
            "--subject flash",
            "--subject has been renamed to --mechanism",
        ),
        ("--n=9", "--n has been renamed to --seq"),
        ("--budget 1", "--budget has been renamed to --min-time"),
        ("--patience 1", "--patience has been renamed to --max-time"),
    ] {
        let output = zoo_bench(arguments);
        assert!(!output.status.success());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(expected), "{message}");
    }
}
