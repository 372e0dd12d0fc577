//! A custom attention pattern, defined by a function.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin custom_pattern
//! ```
//!
//! Each position attends to itself and to those 1, 2, 4, 8, ... before it: Li et al.,
//! [LogSparse](https://arxiv.org/abs/1907.00235), 2019. A few layers connect all positions.

use std::process::ExitCode;

use zoo_attention::{AttentionOptions, Pattern, flash, standard};
use zoo_backend::OpenDevice;
use zoo_examples::{difference, query_key_value, shape};

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn log_sparse() -> Pattern {
    Pattern::from_fn(|query, key| {
        let distance = query - key;
        distance == 0 || (distance > 0 && distance.unsigned_abs().is_power_of_two())
    })
}

fn run(opened: &OpenDevice) -> zoo_examples::Outcome {
    let device = &opened.device;
    let mask = log_sparse().dense_mask("example", &shape(24, 24), device);
    let mask = mask.ok_or("the pattern masks nothing")?.into_data();
    let mask: Vec<bool> = mask.iter::<bool>().collect();
    for row in mask.chunks(24) {
        let keys = row
            .iter()
            .map(|is_masked| if *is_masked { "· " } else { "█ " });
        println!("{}", keys.collect::<String>());
    }

    // Patterns combine with `and` and `or`. Fully masked tiles are skipped, so an additional window
    // leaves few.
    let (left, right) = (256, 0);
    let windowed = log_sparse().and(Pattern::Window { left, right });
    for (name, pattern) in [("log-sparse", log_sparse()), ("within 256", windowed)] {
        let plan = pattern.plan(&shape(4096, 4096), [64, 64]);
        let percent = 100.0 * plan.density();
        println!("{name}: {percent:.1}% of 4,096 x 4,096 computed");
    }

    let [query, key, value] = query_key_value([1, 2, 300, 16], device);
    let options = AttentionOptions::new().with_pattern(log_sparse());
    let materialized = standard(query.clone(), key.clone(), value.clone(), &options).context;
    let tiled = flash(query, key, value, &options);
    let difference = difference(&materialized, &tiled);
    println!("largest difference between flash and standard: {difference:.1e}");
    Ok(())
}
