//! The packages of each cargo command.
//!
//! Cargo unifies features over all packages of a command. Tests, benchmarks and training therefore
//! name the same packages, so that Burn is compiled once with the same features.
//!
//! The exception is a benchmark without flex ([`program`]). It does not compile burn-flex, and shares
//! all crates with training except those that depend on the set of backends: burn-tensor,
//! burn-dispatch, burn-core and their dependents. Features of other crates that burn-train enables
//! are pinned in `crates/backend/Cargo.toml`.

/// Packages that link Burn and have a feature for each backend.
const WITH_FEATURES: [&str; 5] = [
    "zoo-conformance",
    "zoo-backend",
    "zoo-bench",
    "zoo-examples",
    "zoo-train",
];

/// Packages that link Burn and have no backend features.
const WITHOUT_FEATURES: [&str; 4] = ["zoo-attention", "zoo-kernels", "zoo-models", "zoo-oracle"];

/// Packages without Burn, tested in the profile of xtask itself.
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

/// The arguments of `cargo COMMAND` for all packages that link Burn, with these backends.
pub(crate) fn with_burn(command: &str, backends: &[&str]) -> String {
    arguments(command, backends, |_| true)
}

/// The arguments of `cargo build` for one program.
///
/// burn-train enables Burn's feature `flex` for any backend. A program that does not train is
/// therefore built without the package [`TRAINING`], unless flex is requested anyway: then
/// everything is shared with the tests.
pub(crate) fn program(name: &str, backends: &[&str]) -> String {
    let all = name == ZOO || backends.contains(&"flex");
    let build = arguments("build", backends, |package| all || package != TRAINING);
    format!("{build} --bin {name}")
}

fn arguments(command: &str, backends: &[&str], is_selected: impl Fn(&str) -> bool) -> String {
    let mut packages: Vec<_> = (WITH_FEATURES.into_iter())
        .filter(|package| is_selected(package))
        .collect();
    let features = features_of(&packages, backends);
    packages.extend(WITHOUT_FEATURES);
    let packages = package_flags(&packages);
    format!("{command} --release --features {features}{packages}")
}

fn package_flags(packages: &[&str]) -> String {
    let flags = packages.iter().map(|name| format!(" --package {name}"));
    flags.collect()
}

/// The value of `--features` for every package with backend features.
pub(crate) fn features(backends: &[&str]) -> String {
    features_of(&WITH_FEATURES, backends)
}

fn features_of(packages: &[&str], backends: &[&str]) -> String {
    let of_package = |package| {
        backends
            .iter()
            .map(move |backend| format!("{package}/{backend}"))
    };
    let features: Vec<_> = packages.iter().flat_map(of_package).collect();
    features.join(",")
}

/// The arguments of `cargo test --no-run` for the packages without Burn.
pub(crate) fn light_tests() -> String {
    format!("test --no-run --quiet{}", package_flags(&LIGHT))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::build::stdout_of;

    #[test]
    fn programs_and_tests_share_packages() {
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

    fn cargo(arguments: &str) -> String {
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        stdout_of(env!("CARGO"), &arguments).unwrap_or_else(|| panic!("cargo {arguments:?} failed"))
    }

    /// Metadata of the workspace's packages.
    fn packages() -> Vec<Value> {
        let metadata = cargo("metadata --no-deps --format-version=1 --locked");
        let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
        metadata["packages"].as_array().expect("a list").clone()
    }

    #[test]
    fn every_package_is_tested() {
        let all = WITH_FEATURES.iter().chain(&WITHOUT_FEATURES).chain(&LIGHT);
        let listed: BTreeSet<_> = all.copied().collect();
        let packages = packages();
        let names = packages
            .iter()
            .filter_map(|package| package["name"].as_str());
        assert_eq!(names.collect::<BTreeSet<_>>(), listed);
    }

    /// Metadata for crates.io and docs.rs that cargo does not require.
    #[test]
    fn published_packages_have_metadata() {
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
            // docs.rs has neither LibTorch nor network access.
            let features = package["features"].as_object().expect("a table");
            let documented = package["metadata"]["docs"]["rs"]["features"].as_array();
            assert_eq!(documented.is_none(), features.is_empty(), "{name}");
            for feature in documented.into_iter().flatten() {
                let feature = feature.as_str().expect("a name");
                let is_built =
                    features.contains_key(feature) && !["tch", "cuda"].contains(&feature);
                assert!(
                    is_built,
                    "docs.rs cannot build the feature {feature} of {name}"
                );
            }
        }
    }

    /// The crates that cargo would compile, each with its features.
    fn compiled(arguments: &str, edges: &str) -> BTreeSet<String> {
        // `cargo tree` has no profile and no programs.
        let (_, packages) = arguments.split_once(" --release ").expect("the profile");
        let (packages, _) = packages.split_once(" --bin ").unwrap_or((packages, ""));
        // Without spaces: a crate, a bar and its features.
        let format = "--prefix none --format {p}|{f} --locked";
        let tree = cargo(&format!("tree {packages} --edges {edges} {format}"));
        // Repeated crates end in a star.
        let without_star = |line: &str| line.trim_end_matches(" (*)").to_owned();
        tree.lines().map(without_star).collect()
    }

    /// A crate with its version.
    fn name(line: &str) -> &str {
        line.split('|').next().unwrap_or_default()
    }

    /// Crates that both builds compile, with different features.
    fn differences<'a>(a: &'a BTreeSet<String>, b: &'a BTreeSet<String>) -> BTreeSet<&'a str> {
        let in_b: BTreeSet<_> = b.iter().map(|line| name(line)).collect();
        let lines = a.difference(b).map(|line| name(line));
        lines.filter(|name| in_b.contains(name)).collect()
    }

    /// If a dev-dependency enabled a feature of a crate below Burn, tests and programs would each
    /// compile their own Burn.
    #[test]
    fn dev_dependencies_do_not_change_features_of_burn() {
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
            let differences = differences(&programs, &tests);
            assert!(differences.is_empty(), "{backends:?}: {differences:#?}");
        }
    }

    /// A benchmark compiles only the part of Burn that it uses, and shares it with training, except
    /// for the crates that depend on the set of backends.
    #[test]
    fn benchmarks_and_training_share_dependencies() {
        let depends_on_backends = ["burn-core v", "burn-dispatch v", "burn-tensor v"];
        for (backends, may_differ) in [
            (&["flex"][..], &[][..]),
            (&["flex", "ndarray", "tch", "wgpu"], &[]),
            (&["wgpu"], &depends_on_backends),
            (&["autotune", "vulkan"], &depends_on_backends),
            (&["ndarray"], &depends_on_backends),
            (&["tch"], &depends_on_backends),
        ] {
            let bench = compiled(&program("zoo-bench", backends), "normal,build");
            let zoo = compiled(&program("zoo", backends), "normal,build");
            let differences = differences(&bench, &zoo);
            let unexpected: Vec<_> = differences
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
