//! What the tests of all examples need.

use std::process::Command;

/// What a program says on the device `ZOO_BACKEND` names (default: flex).
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let backend = std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned());
    let output = Command::new(program)
        .arg(&backend)
        .args(arguments)
        .output()
        .expect("cargo built it");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{status}\n{said}{complained}");
    said
}
