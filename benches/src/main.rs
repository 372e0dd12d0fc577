//! Measures attention on one device and prints a table.
//!
//! `cargo xtask bench --backend WORD` builds and runs this.

mod cases;
mod timing;

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Result;
use cases::Measured;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use zoo_backend::{BackendWord, Dtype};

#[derive(Parser)]
#[command(about = "Measures attention on one device")]
struct Arguments {
    /// The device, by its word
    #[arg(long, default_value = "flex")]
    backend: BackendWord,

    /// The number type
    #[arg(long, default_value = "f32")]
    dtype: Dtype,

    /// Lengths to measure at
    #[arg(long, value_delimiter = ',', default_value = "256,1024")]
    seq: Vec<NonZeroUsize>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let opened = zoo_backend::open(arguments.backend, arguments.dtype)?;
    println!("device: {opened}");
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_header([
        "case", "pass", "n", "median", "10th", "90th", "GFLOP/s", "error",
    ]);
    let lengths: Vec<usize> = arguments.seq.iter().map(|n| n.get()).collect();
    let mut wrong = 0;
    for case in cases::cases(&lengths) {
        match case.measure(&opened.device)? {
            Measured::Right(row) => table.add_row(row),
            Measured::Wrong(row) => {
                wrong += 1;
                table.add_row(row)
            }
        };
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    println!(
        "times in ms; attention: batch 1, 8 heads, d_head 64; error: largest, relative to the oracle's largest number"
    );
    anyhow::ensure!(wrong == 0, "{wrong} of the cases computed something wrong");
    Ok(())
}
