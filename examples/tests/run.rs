//! Every example runs and says what it promises, on the device `ZOO_BACKEND` names.

use std::process::Command;

fn run(program: &str) -> String {
    let backend = std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned());
    let output = Command::new(program)
        .arg(&backend)
        .output()
        .expect("cargo built it");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    said
}

#[test]
fn the_pronoun_looks_at_the_cat() {
    let said = run(env!("CARGO_BIN_EXE_where_it_looks"));
    let column = |line: &str, n: usize| line.chars().skip(9 + 8 * n).take(8).collect::<String>();
    let row = |word: &str| {
        said.lines()
            .find(|line| line.trim_start().starts_with(word))
            .unwrap_or_else(|| panic!("no row for {word} in\n{said}"))
    };
    assert_eq!(column(row("it"), 1).trim(), "████", "{said}");
    assert_eq!(column(row("outside"), 4).trim(), "████", "{said}");
    // The future is hidden.
    assert_eq!(column(row("it"), 7).trim(), "", "{said}");
}

#[test]
fn a_misspelt_backend_is_explained() {
    let output = Command::new(env!("CARGO_BIN_EXE_where_it_looks"))
        .arg("wpgu")
        .output()
        .expect("cargo built it");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("did you mean wgpu?"), "{said}");
}
