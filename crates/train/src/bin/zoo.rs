//! The `zoo` program.

#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use zoo_train::cli::Command as _;
use zoo_train::{TrainError, cli};

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
    Eval(cli::eval::Eval),
    Translate(cli::translate::Translate),
    Classify(cli::classify::Classify),
    Generate(cli::generate::Generate),
    Attend(cli::attend::Attend),
    Average(cli::average::Average),
    Inspect(cli::inspect::Inspect),
    New(cli::new::New),
}

fn main() -> ExitCode {
    zoo_backend::settle_allocator();
    // No lock: training prints by itself.
    let out = &mut std::io::stdout();
    let done = match Zoo::parse().command {
        Command::Train(train) => return ended(train.run()),
        Command::Eval(eval) => eval.run(out),
        Command::Translate(translate) => translate.run(out),
        Command::Classify(classify) => classify.run(out),
        Command::Generate(generate) => generate.run(out),
        Command::Attend(attend) => attend.run(out),
        Command::Average(average) => average.run(out),
        Command::Inspect(inspect) => inspect.run(out),
        Command::New(new) => new.run(out),
    };
    ended(done.map(|()| ExitCode::SUCCESS))
}

/// How the program ends, with a word about what went wrong.
fn ended(done: Result<ExitCode, TrainError>) -> ExitCode {
    match done {
        Ok(code) => code,
        // Whoever read it has read enough.
        Err(error) if cli::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cli::print_error_line(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}
