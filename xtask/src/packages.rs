//! The packages of each cargo command.
//!
//! Cargo unifies features over all packages of a command. Tests, benchmarks and training therefore
//! name the same packages, so that Burn is compiled once with the same features.

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

/// The arguments of `cargo COMMAND` for all packages that link Burn, with these backends.
pub(crate) fn with_burn(command: &str, backends: &[&str]) -> String {
    let features = features(backends);
    let packages = package_flags(&[&WITH_FEATURES[..], &WITHOUT_FEATURES].concat());
    format!("{command} --release --features {features}{packages}")
}

/// The arguments of `cargo build` for one program.
pub(crate) fn program(name: &str, backends: &[&str]) -> String {
    format!("{} --bin {name}", with_burn("build", backends))
}

fn package_flags(packages: &[&str]) -> String {
    let flags = packages.iter().map(|name| format!(" --package {name}"));
    flags.collect()
}

/// The value of `--features` for every package with backend features.
pub(crate) fn features(backends: &[&str]) -> String {
    let of_package = |package| {
        let features = backends.iter();
        features.map(move |backend| format!("{package}/{backend}"))
    };
    let features: Vec<_> = WITH_FEATURES.iter().flat_map(of_package).collect();
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
        let listed = [&WITH_FEATURES[..], &WITHOUT_FEATURES, &LIGHT].concat();
        let packages = packages();
        let names = packages.iter().map(|package| package["name"].as_str());
        let names: BTreeSet<_> = names.collect();
        assert_eq!(names, listed.into_iter().map(Some).collect());
    }

    /// Metadata for crates.io and docs.rs that cargo does not require.
    #[test]
    fn published_packages_have_metadata() {
        let mut published = packages();
        published.retain(|package| package["publish"].is_null());
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
                assert!(features.contains_key(feature), "{name}: {feature}");
                assert!(!["tch", "cuda"].contains(&feature), "{name}: {feature}");
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

    #[test]
    fn only_the_requested_backends_are_compiled() {
        for (backends, crates) in [
            (&["flex"][..], ["flex"]),
            (&["wgpu"], ["wgpu"]),
            (&["autotune", "vulkan"], ["wgpu"]),
            (&["ndarray"], ["ndarray"]),
            (&["tch"], ["tch"]),
        ] {
            let lines = compiled(&program("zoo", backends), "normal,build");
            for backend in ["flex", "ndarray", "tch", "wgpu"] {
                let start = format!("burn-{backend} v");
                let is_compiled = lines.iter().any(|line| line.starts_with(&start));
                assert_eq!(
                    is_compiled,
                    crates.contains(&backend),
                    "{backends:?}: {backend}"
                );
            }
        }
    }
}
