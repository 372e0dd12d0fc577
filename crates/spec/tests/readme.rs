//! The README's example, compiled and run.

use zoo_spec::{BackendId, Mechanism, ParseBackendError};

fn names() -> Result<(), ParseBackendError> {
    let gpu: BackendId = "wgpu:1".parse()?;
    assert_eq!((gpu.backend.feature(), gpu.index), ("wgpu", Some(1)));

    let error = "sliding-windw".parse::<Mechanism>().expect_err("misspelt");
    assert_eq!(error.nearest(), Some("sliding-window"));
    Ok(())
}

#[test]
fn readme_example() {
    names().expect("wgpu:1 is a backend");
    let readme = include_str!("../README.md");
    let block = readme.split("```rust\n").nth(1).expect("an example");
    let block = block.split("```").next().unwrap_or_default();
    assert!(include_str!("readme.rs").contains(block), "{block}");
}
