//! Helpers of the example tests.

use std::process::Command;

/// Runs a program on the backend in `ZOO_BACKEND` (default: flex); returns its stdout.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let backend = std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned());
    let output = Command::new(program)
        .arg(&backend)
        .args(arguments)
        .output()
        .expect("cargo built it");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{status}\n{stdout}{stderr}");
    stdout
}
