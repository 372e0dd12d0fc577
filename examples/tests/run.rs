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

#[test]
fn every_pattern_has_a_picture() {
    let folder = std::env::temp_dir().join(format!("zoo-pictures-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_patterns_as_pictures"))
        .arg(&folder)
        .output()
        .expect("cargo built it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("full                 100.0% computed"),
        "{said}"
    );
    let pictures: Vec<_> = std::fs::read_dir(&folder)
        .expect("it made the folder")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    assert_eq!(pictures.len(), 10, "{pictures:?}");
    for picture in pictures {
        let svg = std::fs::read_to_string(&picture).expect("it can be read");
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
            "{picture:?}"
        );
    }
    std::fs::remove_dir_all(&folder).expect("the test's own folder");
}
