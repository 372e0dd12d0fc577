//! Which packages cargo is told of.
//!
//! Cargo settles on features for all packages of one call. Tests, benches and training
//! therefore name the same packages, whichever programs they want of them: Burn gets the
//! same features each time, and is compiled once.
//!
//! The one exception is a bench without flex ([`program`]). It compiles no burn-flex, and shares
//! with training all but the crates that know every backend: burn-tensor, burn-dispatch, burn-core
//! and what is built on them. Features of other crates that burn-train turns on are pinned in
//! `crates/backend/Cargo.toml`.

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

/// The package that links burn-train, and its program.
const TRAINING: &str = "zoo-train";
const ZOO: &str = "zoo";

/// The arguments of `cargo COMMAND` over all packages that link Burn, with these backends.
pub(crate) fn with_burn(command: &str, backends: &[&str]) -> String {
    arguments(command, backends, |_| true)
}

/// The arguments of `cargo build` for one program of these packages.
///
/// burn-train turns on Burn's feature `flex`, whichever backend is asked for. A program that does
/// not train is therefore built without [`TRAINING`] among the packages, unless flex is wanted:
/// then the features are the same, and everything is shared with the tests.
pub(crate) fn program(name: &str, backends: &[&str]) -> String {
    let all = name == ZOO || backends.contains(&"flex");
    let build = arguments("build", backends, |package| all || package != TRAINING);
    format!("{build} --bin {name}")
}

fn arguments(command: &str, backends: &[&str], chosen: impl Fn(&str) -> bool) -> String {
    let mut chosen: Vec<_> = (WITH_FEATURES.into_iter())
        .filter(|package| chosen(package))
        .collect();
    let features = features_of(&chosen, backends);
    chosen.extend(WITHOUT_FEATURES);
    let packages = listed(&chosen);
    format!("{command} --release --features {features}{packages}")
}

fn listed(packages: &[&str]) -> String {
    let each = packages.iter().map(|name| format!(" --package {name}"));
    each.collect()
}

/// The features of every package that has them, as cargo wants them.
pub(crate) fn features(backends: &[&str]) -> String {
    features_of(&WITH_FEATURES, backends)
}

fn features_of(packages: &[&str], backends: &[&str]) -> String {
    let of = |package| (backends.iter()).map(move |backend| format!("{package}/{backend}"));
    let features: Vec<_> = packages.iter().flat_map(of).collect();
    features.join(",")
}

/// `cargo test` over the packages without Burn, to be built and not run.
pub(crate) fn light_tests() -> String {
    format!("test --no-run --quiet{}", listed(&LIGHT))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::build::said;

    #[test]
    fn a_program_is_built_as_the_tests_are() {
        for (name, backends, training) in [
            ("zoo", &["autotune", "wgpu"][..], true),
            ("zoo-bench", &["flex", "wgpu"], true),
            ("zoo-bench", &["autotune", "wgpu"], false),
            ("zoo-backend", &["tch"], false),
        ] {
            let mut expected = with_burn("build", backends);
            if !training {
                for backend in backends {
                    expected = expected.replace(&format!(",zoo-train/{backend}"), "");
                }
                expected = expected.replace(" --package zoo-train", "");
            }
            assert_eq!(program(name, backends), format!("{expected} --bin {name}"));
        }
    }

    /// What cargo prints.
    fn cargo(arguments: &str) -> String {
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        said(env!("CARGO"), &arguments).unwrap_or_else(|| panic!("cargo {arguments:?} fails"))
    }

    /// What cargo tells of the packages of the workspace.
    fn packages() -> Vec<Value> {
        let metadata = cargo("metadata --no-deps --format-version=1 --locked");
        let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
        metadata["packages"].as_array().expect("a list").clone()
    }

    #[test]
    fn every_package_is_tested_somewhere() {
        let all = WITH_FEATURES.iter().chain(&WITHOUT_FEATURES).chain(&LIGHT);
        let listed: BTreeSet<_> = all.copied().collect();
        let packages = packages();
        let names = packages
            .iter()
            .filter_map(|package| package["name"].as_str());
        assert_eq!(names.collect::<BTreeSet<_>>(), listed);
    }

    /// What crates.io and docs.rs want of packages, and cargo does not ask for.
    #[test]
    fn packages_that_others_get_are_complete() {
        let published: Vec<_> = (packages().into_iter())
            .filter(|package| package["publish"].is_null())
            .collect();
        assert!(published.len() >= 2);
        for package in published {
            let name = &package["name"];
            for key in ["description", "license", "readme", "documentation"] {
                assert!(package[key].is_string(), "{name} has no {key}");
            }
            for key in ["keywords", "categories"] {
                let count = package[key].as_array().map_or(0, Vec::len);
                assert!((1..=5).contains(&count), "{name} has {count} {key}");
            }
            let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
            for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
                assert!(manifest.with_file_name(file).is_file(), "{name}: {file}");
            }
            // docs.rs has no LibTorch, and downloads nothing.
            let features = package["features"].as_object().expect("a table");
            let documented = package["metadata"]["docs"]["rs"]["features"].as_array();
            assert_eq!(documented.is_none(), features.is_empty(), "{name}");
            for feature in documented.into_iter().flatten() {
                let feature = feature.as_str().expect("a name");
                let is_built =
                    features.contains_key(feature) && !["tch", "cuda"].contains(&feature);
                assert!(is_built, "{name} is documented with the feature {feature}");
            }
        }
    }

    /// What cargo would compile, with the features of each: crates for this machine, and
    /// those of build scripts and macros.
    fn compiled(arguments: &str, edges: &str) -> BTreeSet<String> {
        // `cargo tree` compiles nothing, so it knows no profile and no programs.
        let (_, packages) = arguments.split_once(" --release ").expect("the profile");
        let (packages, _) = packages.split_once(" --bin ").unwrap_or((packages, ""));
        // Without spaces: a crate, and its features behind a bar.
        let format = "--prefix none --format {p}|{f} --locked";
        let tree = cargo(&format!("tree {packages} --edges {edges} {format}"));
        // What was shown before has a star behind it.
        let once = |line: &str| line.trim_end_matches(" (*)").to_owned();
        tree.lines().map(once).collect()
    }

    /// A crate with its version.
    fn name(line: &str) -> &str {
        line.split('|').next().unwrap_or_default()
    }

    /// Crates of one build that another compiles too, but not with the same features.
    fn differ<'a>(one: &'a BTreeSet<String>, other: &'a BTreeSet<String>) -> BTreeSet<&'a str> {
        let known: BTreeSet<_> = other.iter().map(|line| name(line)).collect();
        let lines = one.difference(other).map(|line| name(line));
        lines.filter(|name| known.contains(name)).collect()
    }

    /// `cargo test` also counts what only tests depend on. Were one of these to switch on a
    /// feature of something below Burn, tests and programs would each compile their own.
    #[test]
    fn what_tests_depend_on_changes_nothing_below_burn() {
        for backends in [
            &["flex"][..],
            &["tch"],
            &["flex", "ndarray", "tch", "wgpu"],
            &["autotune", "vulkan"],
        ] {
            let all = || with_burn("tree", backends);
            let programs = compiled(&all(), "normal,build");
            let tests = compiled(&all(), "normal,build,dev");
            assert!(programs.iter().any(|line| line.starts_with("burn v0.22.1")));
            let differ = differ(&programs, &tests);
            assert!(differ.is_empty(), "{backends:?}: {differ:#?}");
        }
    }

    /// A bench compiles no more of Burn than it uses, and training compiles nothing a second
    /// time but for the crates that know all backends.
    #[test]
    fn a_bench_shares_what_it_compiles_with_training() {
        let knows_backends = ["burn-core v", "burn-dispatch v", "burn-tensor v"];
        for (backends, may_differ) in [
            (&["flex"][..], &[][..]),
            (&["flex", "ndarray", "tch", "wgpu"], &[]),
            (&["wgpu"], &knows_backends),
            (&["autotune", "vulkan"], &knows_backends),
            (&["ndarray"], &knows_backends),
            (&["tch"], &knows_backends),
        ] {
            let bench = compiled(&program("zoo-bench", backends), "normal,build");
            let zoo = compiled(&program("zoo", backends), "normal,build");
            let differ = differ(&bench, &zoo);
            let unexpected: Vec<_> = differ
                .iter()
                .filter(|name| !name.starts_with("zoo-"))
                .filter(|name| !may_differ.iter().any(|start| name.starts_with(start)))
                .collect();
            assert!(
                unexpected.is_empty(),
                "{backends:?}: pin the features of {unexpected:?} in crates/backend/Cargo.toml"
            );
            if !backends.contains(&"flex") {
                let compiles = |start| bench.iter().any(|line| line.starts_with(start));
                assert!(compiles("burn-dispatch v"));
                assert!(!compiles("burn-flex v") && !compiles("burn-train v"));
            }
        }
    }
}
