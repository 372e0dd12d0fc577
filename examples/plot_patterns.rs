//! Writes one SVG file per pattern that shows which tiles of the score matrix are computed.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin plot_patterns -- pictures
//! ```

use std::path::PathBuf;

use zoo_attention::Pattern;
use zoo_attention::mechanisms::BigBird;

const LENGTH: usize = 2048;
const TILE: usize = 64;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or("pictures".into()));
    std::fs::create_dir_all(&folder)?;
    let shape = zoo_examples::shape(LENGTH, LENGTH);
    println!("{LENGTH} queries and keys in tiles of {TILE}:\n");
    for (name, pattern) in patterns() {
        let plan = pattern.plan(&shape, [TILE, TILE]);
        let file = folder.join(format!("{name}.svg"));
        std::fs::write(&file, plan.to_svg())?;
        let percent = 100.0 * plan.density();
        println!("{name:20} {percent:5.1}% computed   {}", file.display());
    }
    Ok(())
}

fn patterns() -> Vec<(&'static str, Pattern)> {
    let (left, right) = (128, 128);
    let documents: Vec<usize> = (0..LENGTH).map(|i| i * i / 900_000).collect();
    let documents = Pattern::documents([documents]);
    vec![
        ("full", Pattern::Full),
        ("causal", Pattern::Causal),
        ("window", Pattern::Window { left, right }),
        ("block", Pattern::Block { size: 256 }),
        ("longformer", Pattern::longformer(128, [0, 1, 1024])),
        ("big-bird", Pattern::big_bird(&BigBird::default(), LENGTH)),
        ("sparse-transformer", Pattern::sparse_transformer(128)),
        ("fixed", Pattern::fixed(128, 8).and(Pattern::Causal)),
        ("prefix", Pattern::prefix([512])),
        ("documents", documents.and(Pattern::Causal)),
    ]
}
