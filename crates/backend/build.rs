//! Does nothing. Cargo counts the features of build dependencies only where there is a build
//! script; `Cargo.toml` says why they are there.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
