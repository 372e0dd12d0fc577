//! Who may see whom, as a function of your own.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin custom_pattern
//! ```
//!
//! Each place sees itself and those 1, 2, 4, 8, ... before it: Li et al.,
//! [LogSparse](https://arxiv.org/abs/1907.00235), 2019. A handful of layers of it reach
//! everywhere.

use std::process::ExitCode;

use zoo_attention::{AttentionOptions, Pattern, flash, standard};
use zoo_backend::Opened;
use zoo_examples::{difference, query_key_value, shape};

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn log_sparse() -> Pattern {
    Pattern::sees(|query, key| {
        let behind = query - key;
        behind == 0 || (behind > 0 && behind.unsigned_abs().is_power_of_two())
    })
}

fn run(opened: &Opened) -> zoo_examples::Outcome {
    let device = &opened.device;
    let hidden = log_sparse().hidden("example", &shape(24, 24), device);
    let hidden = hidden.ok_or("it hides something")?.into_data();
    let hidden: Vec<bool> = hidden.iter::<bool>().collect();
    for row in hidden.chunks(24) {
        let keys = row.iter().map(|hidden| if *hidden { "· " } else { "█ " });
        println!("{}", keys.collect::<String>());
    }

    // Joined with others by `and` and `or`, like any pattern. Tiles that nobody sees are not
    // computed: a window around it leaves few.
    let (left, right) = (256, 0);
    let near = log_sparse().and(Pattern::Window { left, right });
    for (name, pattern) in [("log-sparse", log_sparse()), ("within 256", near)] {
        let plan = pattern.plan(&shape(4096, 4096), [64, 64]);
        let percent = 100.0 * plan.density();
        println!("{name}: {percent:.1}% of 4,096 x 4,096 computed");
    }

    let [query, key, value] = query_key_value([1, 2, 300, 16], device);
    let options = AttentionOptions::new().with_pattern(log_sparse());
    let held = standard(query.clone(), key.clone(), value.clone(), &options).context;
    let tiled = flash(query, key, value, &options);
    let difference = difference(&held, &tiled);
    println!("flash and standard differ by {difference:.1e} at most");
    Ok(())
}
