//! Who may see whom, as a function of your own.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin custom_pattern
//! ```
//!
//! Each place sees itself and those 1, 2, 4, 8, ... before it: Li et al.,
//! [LogSparse](https://arxiv.org/abs/1907.00235), 2019. A handful of layers of it reach
//! everywhere.

use std::error::Error;
use std::process::ExitCode;

use burn::tensor::{Distribution, Tensor};
use zoo_attention::{AttentionOptions, AttentionShape, Pattern, flash, standard};
use zoo_backend::Opened;

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn log_sparse() -> Pattern {
    Pattern::sees(|query, key| {
        let behind = query - key;
        behind == 0 || (behind > 0 && behind.unsigned_abs().is_power_of_two())
    })
}

fn run(opened: &Opened) -> Result<(), Box<dyn Error>> {
    let device = &opened.device;
    let shape = |seq: usize| AttentionShape {
        batch: 1,
        heads: 2,
        kv_heads: 2,
        seq_q: seq,
        seq_k: seq,
        d_head: 16,
        d_value: 16,
    };

    let hidden = log_sparse().hidden("example", &shape(24), device);
    let hidden: Vec<bool> = hidden
        .ok_or("it hides something")?
        .into_data()
        .iter::<bool>()
        .collect();
    for row in hidden.chunks(24) {
        let places = row
            .iter()
            .map(|is_hidden| if *is_hidden { "· " } else { "█ " });
        println!("{}", places.collect::<String>());
    }

    // Joined with others by `and` and `or`, like any pattern. Tiles that nobody sees are not
    // computed: a window around it leaves few.
    let near = log_sparse().and(Pattern::Window {
        left: 256,
        right: 0,
    });
    for (name, pattern) in [("log-sparse", log_sparse()), ("within 256", near)] {
        let plan = pattern.plan(&shape(4096), [64, 64]);
        println!(
            "{name}: {:.1}% of 4,096 x 4,096 computed",
            100.0 * plan.density()
        );
    }

    let [query, key, value] =
        [(); 3].map(|()| Tensor::random([1, 2, 300, 16], Distribution::Normal(0.0, 1.0), device));
    let options = AttentionOptions::new().with_pattern(log_sparse());
    let held = standard(query.clone(), key.clone(), value.clone(), &options).context;
    let tiled = flash(query, key, value, &options);
    let difference = (held - tiled).abs().max().into_scalar::<f32>();
    println!("flash and standard differ by {difference:.1e} at most");
    Ok(())
}
