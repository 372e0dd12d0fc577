//! An empty build script: without one, cargo ignores the features of build dependencies.
//! `Cargo.toml` explains why they are listed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
