//! `cargo xtask`: everything people do with this workspace, in one command.
//!
//! It never links Burn: it compiles in seconds, answers `--help` and a misspelt
//! flag at once, and builds the rest with just the features a backend needs.

mod backends;
mod bench;
mod build;
mod check;
mod doctor;
mod hub;
mod libtorch;
mod packages;
mod places;
mod program;
mod readme;
mod test;
mod train;
mod vulkan;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use zoo_spec::printable_text;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The commands of Attention Zoo"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train from a TOML file
    Train(train::Train),
    /// Translate, classify, generate and more with what was trained: zoo -- --help
    Zoo(train::Zoo),
    /// Bring a data set of the Hugging Face hub into files that training reads
    Hub(hub::Hub),
    /// Measure attention on a backend and print a table
    Bench(Box<bench::Bench>),
    /// Run the tests on one backend after another
    Test(test::Test),
    /// Format, dependencies, packages, lints, docs and tests, every warning an error
    Check(check::Check),
    /// Show what this machine has, what is missing, and how to get it
    Doctor(doctor::Doctor),
    /// Write the parts of the README that follow from the code, and draw its picture
    Readme,
    /// Write docs/config.md, which follows from the code
    ConfigDocs,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Train(train) => train.run(),
        Command::Zoo(zoo) => zoo.run(),
        Command::Hub(hub) => hub.run(),
        Command::Bench(bench) => bench.run(),
        Command::Test(test) => test.run(),
        Command::Check(check) => check.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Readme => readme::run(),
        Command::ConfigDocs => readme::write(zoo_config::DOCS_PATH, &zoo_config::docs()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", printable_text(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
