//! The packages that others get: what crates.io wants of them is there, and cargo can make them.
//!
//! Whether they build is not tried here, since that compiles Burn; they are the same files
//! that everything else is built from.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::backends::Environment;
use crate::build::{cargo_output, cargo_run, cargo_text};
use crate::metadata::{Metadata, Package};

/// Files that go with every copy.
const WITH_COPIES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Features that docs.rs cannot build: LibTorch is not there, and nothing can be downloaded.
const NOT_ON_DOCS_RS: [&str; 2] = ["tch", "cuda"];

/// Checks the packages that are published, and makes them.
pub(crate) fn check(metadata: &Metadata) -> Result<()> {
    let mut wrong = said(metadata);
    let published: Vec<&Package> = published(metadata).collect();
    for package in &published {
        wrong.extend(missing(package, &listed(package)?));
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    make(&published)?;
    let names: Vec<&str> = (published.iter())
        .map(|package| package.name.as_str())
        .collect();
    println!("can be published: {}", names.join(", "));
    Ok(())
}

/// Those of ours that do not say `publish = false`.
fn published(metadata: &Metadata) -> impl Iterator<Item = &Package> {
    metadata
        .ours()
        .filter(|package| package.publish.as_ref().is_none_or(|to| !to.is_empty()))
}

/// What their `Cargo.toml` lacks, or says wrongly.
fn said(metadata: &Metadata) -> Vec<String> {
    let names: BTreeSet<&str> = (metadata.ours())
        .map(|package| package.name.as_str())
        .collect();
    let public: BTreeSet<&str> = (published(metadata))
        .map(|package| package.name.as_str())
        .collect();
    let mut wrong = Vec::new();
    for package in published(metadata) {
        let manifest = package.manifest_path.display();
        for (key, there) in [
            ("description", package.description.is_some()),
            ("license", package.license.is_some()),
            ("readme", package.readme.is_some()),
            ("documentation", package.documentation.is_some()),
            ("keywords", !package.keywords.is_empty()),
            ("categories", !package.categories.is_empty()),
        ] {
            if !there {
                wrong.push(format!(
                    "{} is published and has no {key}\n  do: add it to {manifest}, or say \
                     `publish = false` there",
                    package.name
                ));
            }
        }
        // crates.io refuses a sixth.
        for (key, words) in [
            ("keywords", &package.keywords),
            ("categories", &package.categories),
        ] {
            if words.len() > 5 {
                wrong.push(format!(
                    "{} has {} {key}, and crates.io takes five\n  do: leave some out of {manifest}",
                    package.name,
                    words.len()
                ));
            }
        }
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let needed = dependency.kind.as_deref() != Some("dev");
            if needed && names.contains(name) && !public.contains(name) {
                wrong.push(format!(
                    "{} is published and needs {name}, which is not\n  do: publish {name} too, or \
                     say `publish = false` in {manifest}",
                    package.name
                ));
            }
        }
        wrong.extend(documented(package));
    }
    wrong
}

/// What docs.rs would stumble over: a package with features says which are to be documented,
/// and all of them are there and can be built.
fn documented(package: &Package) -> Vec<String> {
    if package.features.is_empty() {
        return Vec::new();
    }
    let told = &package.metadata["docs"]["rs"]["features"];
    let manifest = package.manifest_path.display();
    let Some(told) = told.as_array() else {
        return vec![format!(
            "{} does not say with which features it is documented\n  do: add \
             [package.metadata.docs.rs] with features = [...] to {manifest}",
            package.name
        )];
    };
    let features = told.iter().filter_map(serde_json::Value::as_str);
    features
        .filter_map(|feature| {
            let problem = if NOT_ON_DOCS_RS.contains(&feature) {
                "cannot be built on docs.rs"
            } else if !package.features.contains_key(feature) {
                "does not exist"
            } else {
                return None;
            };
            Some(format!(
                "{} is to be documented with the feature {feature}, which {problem}\n  do: remove it \
                 from [package.metadata.docs.rs] in {manifest}",
                package.name
            ))
        })
        .collect()
}

/// The files that would be in a package.
fn listed(package: &Package) -> Result<String> {
    cargo_text(&[
        "package",
        "--list",
        "--allow-dirty",
        "--package",
        &package.name,
    ])
}

/// What should be among them and is not.
fn missing(package: &Package, listed: &str) -> Vec<String> {
    let gone = (WITH_COPIES.iter()).filter(|file| !listed.lines().any(|line| line == **file));
    gone.map(|file| {
        format!(
            "{file} would not be in the package {}\n  do: put it beside {}; a licence is a link to \
             the one at the root",
            package.name,
            package.manifest_path.display()
        )
    })
    .collect()
}

/// Makes the packages, all at once: they depend on each other, and none is on crates.io yet.
fn make(published: &[&Package]) -> Result<()> {
    let mut arguments = vec![
        "package",
        "--no-verify",
        "--allow-dirty",
        "--locked",
        "--quiet",
    ];
    for package in published {
        arguments.extend(["--package", &package.name]);
    }
    // What the registry has is known here already, if anything was ever built: asking again
    // takes half a minute.
    let offline = [&arguments[..], &["--offline"]].concat();
    if cargo_output(&offline, &Environment::new())?
        .status
        .success()
    {
        return Ok(());
    }
    cargo_run(&arguments, &Environment::new())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A package that could be published.
    fn fine(name: &str) -> Value {
        json!({
            "name": name, "version": "0.1.0", "source": null, "license": "MIT OR Apache-2.0",
            "manifest_path": "Cargo.toml", "dependencies": [], "publish": null,
            "description": "Numbers", "readme": "README.md",
            "documentation": "https://docs.rs/numbers",
            "keywords": ["numbers"], "categories": ["science"],
            "features": { "flex": [], "tch": [] },
            "metadata": { "docs": { "rs": { "features": ["flex"] } } },
        })
    }

    fn said_of(packages: &[Value]) -> Vec<String> {
        let metadata = json!({ "packages": packages });
        said(&serde_json::from_value(metadata).expect("as cargo writes it"))
    }

    #[test]
    fn a_package_that_says_everything_passes() {
        assert_eq!(said_of(&[fine("zoo")]), [""; 0]);
    }

    #[test]
    fn what_is_not_published_need_say_nothing() {
        let mut package = fine("zoo");
        package["publish"] = json!([]);
        package["description"] = Value::Null;
        assert_eq!(said_of(&[package]), [""; 0]);
    }

    /// A key of a package that could be published is changed; what is said then begins so.
    #[track_caller]
    fn changed(key: &str, value: Value, said: &str) {
        let mut package = fine("zoo");
        package[key] = value;
        let mut private = fine("private");
        private["publish"] = json!([]);
        let told = said_of(&[package, private]);
        let [told] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert!(told.starts_with(said), "{told}");
        assert!(told.contains("\n  do: "), "{told}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_told() {
        for key in ["description", "license", "readme", "documentation"] {
            let said = format!("zoo is published and has no {key}");
            changed(key, Value::Null, &said);
        }
        changed(
            "keywords",
            json!([]),
            "zoo is published and has no keywords",
        );
        changed(
            "keywords",
            json!(["a", "b", "c", "d", "e", "f"]),
            "zoo has 6 keywords",
        );
        changed(
            "dependencies",
            json!([{ "name": "private", "rename": null, "kind": null }]),
            "zoo is published and needs private, which is not",
        );
        changed(
            "metadata",
            Value::Null,
            "zoo does not say with which features",
        );
        changed(
            "metadata",
            json!({ "docs": { "rs": { "features": ["tch"] } } }),
            "zoo is to be documented with the feature tch, which cannot be built",
        );
        changed(
            "metadata",
            json!({ "docs": { "rs": { "features": ["wgpu"] } } }),
            "zoo is to be documented with the feature wgpu, which does not exist",
        );
    }

    #[test]
    fn a_package_without_its_licences_is_told() {
        let package: Package = serde_json::from_value(fine("zoo")).expect("as cargo writes it");
        let told = missing(&package, "Cargo.toml\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\n");
        let [told] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert!(told.starts_with("LICENSE-APACHE would not be in the package zoo"));
    }
}
