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
use zoo_examples::{difference, pattern_rows, query_key_value, shape};

fn log_sparse() -> Pattern {
    Pattern::from_fn(|query, key| {
        let distance = query - key;
        distance == 0 || (distance > 0 && distance.unsigned_abs().is_power_of_two())
    })
}

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let device = &opened.device;
        for row in pattern_rows(&log_sparse(), [24, 24], device)? {
            println!("{row}");
        }

        // Patterns combine with `and` and `or`. Fully masked tiles are skipped, so an additional
        // window leaves few.
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
    })
}
