//! The `zoo` program.

#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use zoo_train::cli::Command as _;
use zoo_train::{TrainError, cli};

/// Train, evaluate and inspect attention models
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
    Runs(cli::runs::Runs),
    Serve(cli::serve::Serve),
    Mechanisms(cli::mechanisms::Mechanisms),
    Completions(cli::completions::Completions),
}

fn main() -> ExitCode {
    zoo_backend::configure_allocator();
    // Not locked, because training prints to it as well.
    let out = &mut std::io::stdout();
    let result = match Zoo::parse().command {
        Command::Train(train) => return exit_code(train.run()),
        Command::Eval(eval) => eval.run(out),
        Command::Translate(translate) => translate.run(out),
        Command::Classify(classify) => classify.run(out),
        Command::Generate(generate) => generate.run(out),
        Command::Attend(attend) => attend.run(out),
        Command::Average(average) => average.run(out),
        Command::Inspect(inspect) => inspect.run(out),
        Command::New(new) => new.run(out),
        Command::Runs(runs) => runs.run(out),
        Command::Serve(serve) => serve.run(out),
        Command::Mechanisms(mechanisms) => mechanisms.run(out),
        Command::Completions(completions) => completions.run(Zoo::command(), out),
    };
    exit_code(result.map(|()| ExitCode::SUCCESS))
}

fn exit_code(result: Result<ExitCode, TrainError>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if cli::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cli::print_error_line(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}
