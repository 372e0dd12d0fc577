//! The Rust blocks of `docs/` and of the README: each stands in a test here word for word, and
//! is run on the device `ZOO_BACKEND` names.

mod chapters;
mod library;
mod migrating;

use burn::tensor::Device;

fn device() -> Device {
    let opened = zoo_backend::open_for_tests().expect("the backend is there");
    opened.device.seed(1);
    opened.device
}

/// Sees to it that every Rust block of a page stands in a source file, but for how far it is
/// moved to the right, and says how many there are.
fn blocks_standing_in(page: &str, source: &str) -> usize {
    let plain = |text: &str| -> String {
        let lines = text.lines().map(|line| format!("{}\n", line.trim()));
        lines.collect()
    };
    let source = plain(source);
    let blocks = page.split("```rust\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    blocks
        .inspect(|block| {
            assert!(source.contains(&plain(block)), "in no test:\n{block}");
        })
        .count()
}
