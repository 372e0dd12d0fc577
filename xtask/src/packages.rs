//! Which packages cargo is told of, always together.
//!
//! Cargo settles on features for all packages of one call. Tests, benches and training
//! therefore name the same packages, whichever programs they want of them: Burn gets the
//! same features each time, and is compiled once.

/// Packages that link Burn and have a feature for each backend.
const WITH_FEATURES: [&str; 5] = [
    "zoo-conformance",
    "zoo-backend",
    "zoo-bench",
    "zoo-examples",
    "zoo-train",
];

/// Those that are built and tested beside them.
const WITHOUT_FEATURES: [&str; 4] = ["zoo-attention", "zoo-kernels", "zoo-models", "zoo-oracle"];

/// Packages without Burn, which are tested in the profile that built this very program.
const LIGHT: [&str; 6] = [
    "xtask",
    "zoo-spec",
    "zoo-bench-core",
    "zoo-config",
    "zoo-data",
    "zoo-viz",
];

/// The data sets of the hub: no Burn but `burn-dataset`, whose SQL engine takes minutes to
/// compile and would be compiled into Burn if cargo were told of both at once.
pub(crate) const HUB: &str = "zoo-hub";

/// The features of every package that has them, as cargo wants them.
pub(crate) fn features(features: &[&str]) -> String {
    WITH_FEATURES
        .iter()
        .flat_map(|package| {
            features
                .iter()
                .map(move |feature| format!("{package}/{feature}"))
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// `cargo COMMAND` over the packages that link Burn, with what [`features`] made.
pub(crate) fn with_burn<'a>(command: &'a str, features: &'a str) -> Vec<&'a str> {
    let mut arguments = vec![command, "--release", "--features", features];
    for package in WITH_FEATURES.iter().chain(&WITHOUT_FEATURES) {
        arguments.extend(["--package", package]);
    }
    arguments
}

/// `cargo build` of one program of theirs.
pub(crate) fn program<'a>(name: &'a str, features: &'a str) -> Vec<&'a str> {
    let mut arguments = with_burn("build", features);
    arguments.extend(["--bin", name]);
    arguments
}

/// `cargo test` over the packages without Burn, to be built and not run.
pub(crate) fn light_tests() -> Vec<&'static str> {
    let mut arguments = vec!["test", "--no-run", "--quiet"];
    for package in LIGHT {
        arguments.extend(["--package", package]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::*;
    use crate::places;

    #[test]
    fn a_program_is_built_as_the_tests_are() {
        let features = features(&["autotune", "wgpu"]);
        assert!(features.starts_with("zoo-conformance/autotune,zoo-conformance/wgpu,"));
        assert!(features.ends_with("zoo-train/autotune,zoo-train/wgpu"));
        let tests = with_burn("test", &features);
        for name in ["zoo", "zoo-bench", "zoo-backend"] {
            let program = program(name, &features);
            assert_eq!((tests[0], program[0]), ("test", "build"));
            assert_eq!(program[1..tests.len()], tests[1..]);
            assert_eq!(program[tests.len()..], ["--bin", name]);
        }
    }

    #[test]
    fn every_package_is_tested_somewhere() {
        let all = WITH_FEATURES.iter().chain(&WITHOUT_FEATURES).chain(&LIGHT);
        let listed: BTreeSet<String> = all.chain(&[HUB]).map(ToString::to_string).collect();
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--format-version=1", "--locked"])
            .current_dir(places::workspace())
            .output()
            .expect("cargo starts");
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let packages = metadata["packages"].as_array().expect("a list");
        let name = |package: &serde_json::Value| package["name"].as_str().map(str::to_owned);
        assert_eq!(
            packages.iter().filter_map(name).collect::<BTreeSet<_>>(),
            listed
        );
    }

    /// What cargo would compile, with the features of each: crates for this machine, and
    /// those of build scripts and macros.
    fn compiled(backends: &[&str], edges: &str) -> BTreeSet<String> {
        let features = features(backends);
        let mut arguments = with_burn("tree", &features);
        // It compiles nothing, so it knows no profile.
        arguments.retain(|argument| *argument != "--release");
        arguments.extend(["--edges", edges, "--prefix", "none"]);
        arguments.extend(["--format", "{p} [{f}]", "--locked"]);
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .current_dir(places::workspace())
            .output()
            .expect("cargo starts");
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complained}");
        let lines = String::from_utf8_lossy(&output.stdout);
        // What was shown before has a star behind it.
        let once = |line: &str| line.trim_end_matches(" (*)").to_owned();
        lines.lines().map(once).collect()
    }

    /// `cargo test` also counts what only tests depend on. Were one of these to switch on a
    /// feature of something below Burn, tests and programs would each compile their own.
    #[test]
    fn what_tests_depend_on_changes_nothing_below_burn() {
        for backends in [
            vec!["flex"],
            vec!["tch"],
            vec!["flex", "ndarray", "tch", "wgpu"],
            vec!["autotune", "vulkan"],
        ] {
            let programs = compiled(&backends, "normal,build");
            let tests = compiled(&backends, "normal,build,dev");
            assert!(programs.iter().any(|line| line.starts_with("burn v0.22.1")));
            let name = |line: &str| line.split(" [").next().unwrap_or_default().to_owned();
            let known: BTreeSet<_> = programs.iter().map(|line| name(line)).collect();
            let differ: Vec<_> = tests
                .symmetric_difference(&programs)
                .filter(|line| known.contains(&name(line)))
                .collect();
            assert!(differ.is_empty(), "{backends:?}: {differ:#?}");
        }
    }
}
