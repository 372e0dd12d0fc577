//! `cargo xtask`: the development commands of the workspace. It does not link Burn, so it compiles
//! in seconds; it builds the other programs with the features that a backend needs.

mod backends;
mod bench;
mod build;
mod check;
mod doctor;
mod libtorch;
mod packages;
mod paths;
mod program;
mod readme;
mod start;
mod test;
mod vulkan;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use zoo_config::{ErrorStyle, examples};
use zoo_spec::printable_text;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Development tasks of Attention Zoo",
    max_term_width = 100,
    after_help = examples!(
        "cargo xtask bench",
        "cargo xtask train configs/transformer-reverse.toml",
        "cargo xtask zoo -- translate runs/transformer-reverse",
        "cargo xtask test --backend wgpu",
    )
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model from a TOML config
    #[command(after_help = examples!(
        "cargo xtask train configs/transformer-reverse.toml --set model.layers=4",
        "cargo xtask train configs/transformer-reverse.toml --backend tch-cpu --dry-run",
        "cargo xtask train runs/transformer-reverse --resume",
    ))]
    Train(start::Train),
    /// Run the zoo program: translate, classify, generate, ... (see zoo -- --help)
    #[command(after_help = examples!(
        "cargo xtask zoo -- --help",
        "cargo xtask zoo -- translate runs/transformer-reverse",
        "cargo xtask zoo --backend wgpu -- generate runs/gpt --prompt 'ROMEO:'",
    ))]
    Zoo(start::Zoo),
    /// Download a dataset from the Hugging Face Hub
    Hub(start::Hub),
    /// Benchmark attention mechanisms and models
    #[command(after_help = examples!(
        "cargo xtask bench",
        "cargo xtask bench --mechanism flash,linear --seq 1024,4096 --pass train",
        "cargo xtask bench --backend flex,tch-cpu --vs pytorch,burn",
        "cargo xtask bench --list",
    ))]
    Bench(Box<bench::Bench>),
    /// Run the tests on one or more backends
    #[command(after_help = examples!(
        "cargo xtask test",
        "cargo xtask test --backend all",
    ))]
    Test(test::Test),
    /// Check formatting, dependencies, packages, lints, docs and tests; warnings are errors
    Check(check::Check),
    /// Show what each backend needs, and what is missing on this machine
    Doctor(doctor::Doctor),
    /// Generate the mechanism table and the plot of the README
    Readme,
    /// Generate docs/config.md
    ConfigDocs,
}

/// Prints to stdout, ignoring a closed pipe (`| head`).
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
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
            let style = ErrorStyle::stderr();
            let text = match error.downcast_ref() {
                Some(error) => style.format_config(error),
                None => style.format(&printable_text(&format!("{error:#}"))),
            };
            let _ = std::io::stderr().write_all(text.as_bytes());
            ExitCode::FAILURE
        }
    }
}
