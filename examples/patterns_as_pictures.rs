//! Draws which tiles of the score matrix each pattern computes, one SVG file each.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin patterns_as_pictures -- pictures
//! ```

use std::path::PathBuf;

use zoo_attention::mechanisms::BigBird;
use zoo_attention::{AttentionShape, Pattern};

const LENGTH: usize = 2048;
const TILE: usize = 64;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or("pictures".into()));
    std::fs::create_dir_all(&folder)?;
    let shape = AttentionShape {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        seq_q: LENGTH,
        seq_k: LENGTH,
        d_head: 64,
        d_value: 64,
    };
    println!("{LENGTH} queries and keys in tiles of {TILE}:\n");
    for (name, pattern) in patterns() {
        let plan = pattern.plan(&shape, [TILE, TILE]);
        let file = folder.join(format!("{name}.svg"));
        std::fs::write(&file, plan.to_svg())?;
        println!(
            "{name:20} {:5.1}% computed   {}",
            100.0 * plan.density(),
            file.display()
        );
    }
    Ok(())
}

fn patterns() -> Vec<(&'static str, Pattern)> {
    let documents: Vec<usize> = (0..LENGTH).map(|place| place * place / 900_000).collect();
    vec![
        ("full", Pattern::Full),
        ("causal", Pattern::Causal),
        (
            "window",
            Pattern::Window {
                left: 128,
                right: 128,
            },
        ),
        ("block", Pattern::Block { size: 256 }),
        ("longformer", Pattern::longformer(128, [0, 1, 1024])),
        ("big-bird", Pattern::big_bird(&BigBird::default(), LENGTH)),
        ("sparse-transformer", Pattern::sparse_transformer(128)),
        ("fixed", Pattern::fixed(128, 8).and(Pattern::Causal)),
        ("prefix", Pattern::prefix([512])),
        (
            "documents",
            Pattern::documents([documents]).and(Pattern::Causal),
        ),
    ]
}
