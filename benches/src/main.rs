//! Measures one attention case on one device, and prints one line of JSON.
//!
//! `cargo xtask bench` runs this once for each case, so that the memory a case
//! takes is its own and nothing it does ends the others.

mod measure;
mod timing;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use zoo_backend::{BackendWord, Dtype};
use zoo_comparison::case::{Case, Fault, Pass, Subject};
use zoo_comparison::record::Report;

use crate::timing::Sampling;

#[derive(Parser)]
#[command(about = "Measures one attention case on one device; cargo xtask bench runs many")]
struct Arguments {
    /// The device, by its word
    #[arg(long, default_value = "flex")]
    backend: BackendWord,

    /// The number type
    #[arg(long, default_value = "f32")]
    dtype: Dtype,

    /// A mechanism, or matmul
    #[arg(long, default_value = "standard")]
    subject: Subject,

    /// A problem of the catalogue
    #[arg(long, default_value = "layer")]
    problem: String,

    /// Its length, if not the catalogue's
    #[arg(long)]
    n: Option<usize>,

    /// forward or train
    #[arg(long, default_value = "forward")]
    pass: Pass,

    /// Seconds before the first sample
    #[arg(long, default_value = "0.3", value_parser = seconds)]
    warm_up: Duration,

    /// Seconds to sample for, if that gives ten samples
    #[arg(long, default_value = "1", value_parser = seconds)]
    budget: Duration,

    /// Seconds after which sampling ends, however few there are
    #[arg(long, default_value = "10", value_parser = seconds)]
    patience: Duration,

    /// Misbehave: hang, exhaust, wrong or crash
    #[arg(long, hide = true)]
    fault: Option<Fault>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
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
    let Arguments {
        subject, n, pass, ..
    } = *arguments;
    let case = Case::of(subject, &arguments.problem, n, pass)?;
    let opened = zoo_backend::open(arguments.backend, arguments.dtype)?;
    let sampling = Sampling {
        warm_up: arguments.warm_up,
        budget: arguments.budget,
        patience: arguments.patience,
    };
    let (outcome, body) = measure::measure(&case, &opened, sampling, arguments.fault)?;
    let report = Report {
        device: opened.to_string(),
        body: body.map(str::to_owned),
        outcome,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
