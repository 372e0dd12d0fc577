//! The `zoo` program.

#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use zoo_config::examples;
use zoo_train::cli::Command as _;
use zoo_train::{TrainError, cli};

/// Train, evaluate and inspect attention models
#[derive(Parser)]
#[command(name = "zoo", version, max_term_width = 100, after_help = examples!(
    "zoo new transformer > my.toml              a commented config",
    "zoo train my.toml                          train it; the run is in runs/my",
    "zoo translate runs/my                      use it",
    "zoo train my.toml --sweep model.layers=2,4 compare variants",
))]
struct Zoo {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(after_help = examples!(
        "zoo train my.toml",
        "zoo train my.toml --set model.layers=4 --name deeper --backend wgpu",
        "zoo train my.toml --dry-run",
        "zoo train runs/my --resume",
        "zoo train my.toml --sweep model.encoder_attention=flash,linear,performer",
        "zoo train my.toml --sweep model.layers=2,4 --print-commands | parallel",
    ))]
    Train(cli::train::Train),
    #[command(after_help = examples!(
        "zoo eval runs/my",
        "zoo eval runs/my --split valid --samples 5",
        "zoo eval runs/my --source test.en --target test.de --json",
    ))]
    Eval(cli::eval::Eval),
    #[command(after_help = examples!(
        "zoo translate runs/my",
        "zoo translate runs/my --file in.txt --beams 4 --n-best 2",
        "echo 'a b c' | zoo translate runs/my",
    ))]
    Translate(cli::translate::Translate),
    #[command(after_help = examples!(
        "zoo classify runs/han",
        "zoo classify runs/han --file reviews.txt --json",
    ))]
    Classify(cli::classify::Classify),
    #[command(after_help = examples!(
        "zoo generate runs/gpt --prompt 'ROMEO:'",
        "zoo generate runs/gpt --temperature 0.8 --top-p 0.9 --count 3",
        "zoo generate models/SmolLM2-135M --prompt 'Once upon a time'",
    ))]
    Generate(cli::generate::Generate),
    #[command(after_help = examples!(
        "zoo attend runs/my --text '3rd of May 1998'",
        "zoo attend runs/my --text 'a b c' --layer 2 --head 1 --svg head.svg",
    ))]
    Attend(cli::attend::Attend),
    #[command(after_help = examples!(
        "zoo average runs/my --last 5",
        "zoo eval runs/my --checkpoint average",
    ))]
    Average(cli::average::Average),
    #[command(after_help = examples!(
        "zoo inspect runs/my",
        "zoo inspect runs/my --weights",
    ))]
    Inspect(cli::inspect::Inspect),
    #[command(after_help = examples!("zoo new transformer > my.toml"))]
    New(cli::new::New),
    #[command(after_help = examples!(
        "zoo runs",
        "zoo runs runs/my-sweep --sort metric",
        "zoo runs --mechanism flash --metric bleu --json",
        "zoo runs --compare my deeper --to page.html",
    ))]
    Runs(cli::runs::Runs),
    #[command(after_help = examples!(
        "zoo serve",
        "zoo serve runs --port 8080 --open",
    ))]
    Serve(cli::serve::Serve),
    #[command(after_help = examples!(
        "zoo mechanisms",
        "zoo mechanisms sliding-window",
    ))]
    Mechanisms(cli::mechanisms::Mechanisms),
    #[command(after_help = examples!(
        "source <(zoo completions bash)",
        "zoo completions fish > ~/.config/fish/completions/zoo.fish",
    ))]
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
            cli::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
