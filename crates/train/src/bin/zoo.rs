//! The `zoo` program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use zoo_train::cli;

/// Trains models with any attention, and uses what was trained
#[derive(Parser)]
#[command(name = "zoo", version)]
struct Zoo {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(cli::train::Train),
}

fn main() -> ExitCode {
    let done = match Zoo::parse().command {
        Command::Train(train) => train.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
