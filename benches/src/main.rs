//! Measures one case, of attention or of a model, on one device, and prints one line of JSON.
//!
//! `cargo xtask bench` runs this once for each case, so that the memory a case
//! takes is its own and nothing it does ends the others.

mod attention;
mod model;
mod timing;

use std::process::ExitCode;

use anyhow::{Result, bail};
use burn::tensor::Device;
use clap::Parser;
use zoo_backend::{BackendWord, Dtype, Opened};
use zoo_bench_core::case::{Case, Fault, Pass, Task, length, problem};
use zoo_bench_core::model::{ModelName, Setup, Size};
use zoo_bench_core::plan::Sampling;
use zoo_spec::{Mechanism, printable_text};

use self::attention::{measure_attention, measure_matmul};
use self::model::measure_model;

#[derive(Parser)]
#[command(about = "Measures one case on one device; cargo xtask bench runs many")]
struct Arguments {
    /// The device, by its word
    #[arg(long, default_value = "flex")]
    backend: BackendWord,

    /// The number type
    #[arg(long, default_value = "f32")]
    dtype: Dtype,

    /// A mechanism, or matmul; standard, and in a model its usual one, unless named
    #[arg(long)]
    subject: Option<String>,

    /// A problem of the catalogue
    #[arg(long, default_value = "layer")]
    problem: String,

    /// A model instead of a problem: gpt, gpt-base
    #[arg(long, conflicts_with = "problem")]
    model: Option<ModelName>,

    /// Its length, if not its own
    #[arg(long, value_parser = length)]
    n: Option<usize>,

    /// forward, train, decode or generate
    #[arg(long, default_value = "forward")]
    pass: Pass,

    #[command(flatten)]
    sampling: Sampling,

    /// Misbehave: hang, exhaust, wrong, inexact or crash
    #[arg(long, hide = true)]
    fault: Option<Fault>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", printable_text(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let case = arguments.case()?;
    let opened = zoo_backend::open(arguments.backend, arguments.dtype)?;
    match arguments.fault {
        Some(Fault::Hang) => loop {
            std::thread::park();
        },
        Some(Fault::Exhaust) => exhaust(),
        Some(Fault::Crash) => panic!("made to crash"),
        Some(Fault::Wrong | Fault::Inexact) | None => {}
    }
    zoo_backend::settle_allocator();
    let setting = Setting {
        pass: case.pass,
        opened: &opened,
        sampling: arguments.sampling,
        fault: arguments.fault,
    };
    let mut report = match &case.task {
        Task::Matmul { side } => measure_matmul(*side, setting)?,
        Task::Attention { mechanism, problem } => measure_attention(*mechanism, problem, setting)?,
        Task::Model { setup, attention } => measure_model(setup, *attention, setting)?,
    };
    report.device = Some(opened.to_string());
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// How far a case goes, on what device, and how it is sampled.
#[derive(Clone, Copy)]
struct Setting<'a> {
    pass: Pass,
    opened: &'a Opened,
    sampling: Sampling,
    fault: Option<Fault>,
}

impl Setting<'_> {
    /// The device, which records gradients in training.
    fn device(&self) -> Device {
        let device = self.opened.device.clone();
        match self.pass {
            Pass::Train => device.autodiff(),
            Pass::Forward | Pass::Decode | Pass::Generate => device,
        }
    }
}

/// Takes memory, page by page, until somebody puts an end to it.
fn exhaust() -> ! {
    let mut taken = Vec::new();
    loop {
        taken.push(vec![1u8; 1 << 26]);
        std::hint::black_box(&taken);
    }
}

impl Arguments {
    fn case(&self) -> Result<Case> {
        let attention = match (self.subject.as_deref(), self.model) {
            (Some("matmul"), _) => None,
            (Some(word), _) => Some(word.parse()?),
            (None, Some(name)) => Some(name.model.usual_attention()),
            (None, None) => Some(Mechanism::Standard),
        };
        let case = match (self.model, attention) {
            (Some(_), None) => bail!("a model has an attention, and matmul is none"),
            (None, None) => Case::matmul(),
            (None, Some(mechanism)) => {
                Case::attention(mechanism, problem(&self.problem, self.n)?, self.pass)
            }
            (Some(name), Some(attention)) => {
                let setup = Setup::new(name.model, name.size.unwrap_or(Size::Small));
                let n = self.n.unwrap_or(setup.n);
                Case::model(setup.at_length(n)?, attention, self.pass)
            }
        };
        if let Some(why) = case.refusal() {
            let (name, subject, pass) = (case.name(), case.subject(), case.pass);
            bail!("{name} with {subject}, {pass}: {why}");
        }
        Ok(case)
    }
}
