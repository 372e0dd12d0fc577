//! Runs and cases for tests of several crates.

use serde_json::json;

use crate::case::Pass;
use crate::machine::Machine;
use crate::record::{CaseLine, Outcome, RunInfo, Skipped};

/// A run whose CPU name needs HTML escaping.
pub fn run_info() -> RunInfo {
    RunInfo {
        started: "2026-01-02T03:04:05Z".to_owned(),
        command: Vec::new(),
        commit: None,
        version: String::new(),
        burn: String::new(),
        machine: Machine {
            cpu: "CPU <model> & more".to_owned(),
            ..Machine::detect()
        },
        threads: 2,
    }
}

/// A case of the problem `layer` with the given samples in milliseconds.
pub fn line(subject: &str, n: usize, milliseconds: &[f64]) -> CaseLine {
    let seconds: Vec<f64> = milliseconds.iter().map(|ms| ms / 1e3).collect();
    let line = json!({
        "backend": "flex", "dtype": "f32", "problem": "layer", "n": n, "pass": "forward",
        "subject": subject, "round": 1, "work": 1e6 * n as f64, "minimum_bytes": 1 << 20,
        "device": "a \"<device>\" & more",
        "outcome": { "measured": {
            "seconds": seconds,
            "peak": { "bytes": n * n, "how": "resident" },
            "error": 1e-7,
        } },
    });
    serde_json::from_value(line).expect("a case")
}

/// A case of the problem `layer` with a spread of 2%.
pub fn steady(subject: &str, n: usize, milliseconds: f64) -> CaseLine {
    line(
        subject,
        n,
        &[1.0, 0.98, 1.02].map(|factor| factor * milliseconds),
    )
}

/// A case of the problem `layer` that was not measured.
pub fn failed_line(subject: &str, n: usize, outcome: Outcome) -> CaseLine {
    let mut line = line(subject, n, &[]);
    line.report.outcome = outcome;
    line
}

pub fn on_backend(backend: &str, mut line: CaseLine) -> CaseLine {
    line.id.backend = backend.to_owned();
    line
}

/// The case as one of a model, with batch size 4.
pub fn as_model(name: &str, mut line: CaseLine) -> CaseLine {
    line.id.problem = name.to_owned();
    line.tokens = Some(4 * line.id.n);
    line.report.parameters = Some(1 << 20);
    line
}

pub fn skipped(subject: &str, n: usize, reason: &str) -> Skipped {
    Skipped {
        problem: "layer".to_owned(),
        n,
        pass: Pass::Forward,
        subject: subject.to_owned(),
        reason: reason.to_owned(),
    }
}
