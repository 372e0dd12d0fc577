//! Benchmark program: measures one case on one device and prints a line of JSON.

mod attention;
mod burn_attention;
mod model;
mod timing;

use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use burn::tensor::Device;
use clap::Parser;
use zoo_backend::{BackendId, Dtype, OpenDevice};
use zoo_bench_core::burn::SUBJECT as BURN_ATTENTION;
use zoo_bench_core::case::{Case, Fault, Pass, Task, parse_length, problem};
use zoo_bench_core::model::{ModelName, Setup, Size};
use zoo_bench_core::plan::Sampling;
use zoo_spec::{Mechanism, printable_text};

use self::attention::{measure_attention, measure_matmul};
use self::burn_attention::measure_burn_attention;
use self::model::measure_model;

#[derive(Parser)]
#[command(about = "Measure one benchmark case on one device (run by cargo xtask bench)")]
struct Arguments {
    /// Backend
    #[arg(long, default_value = "flex")]
    backend: BackendId,

    /// Data type
    #[arg(long, default_value = "f32")]
    dtype: Dtype,

    /// Mechanism, matmul or burn-attention [default: standard; in a model, its default attention]
    #[arg(long)]
    mechanism: Option<String>,

    /// Problem from the catalogue
    #[arg(long, default_value = "layer")]
    problem: String,

    /// Model instead of a problem: gpt, gpt-base
    #[arg(long, conflicts_with = "problem")]
    model: Option<ModelName>,

    /// Sequence length [default: that of the problem or model]
    #[arg(long, value_name = "N", value_parser = parse_length)]
    seq: Option<usize>,

    /// Pass: forward, train, decode or generate
    #[arg(long, default_value = "forward")]
    pass: Pass,

    #[command(flatten)]
    sampling: Sampling,

    /// Inject a fault: hang, exhaust, wrong, inexact or crash
    #[arg(long, hide = true)]
    fault: Option<Fault>,
}

/// Former names of options.
const RENAMED: [(&str, &str); 4] = [
    ("--subject", "--mechanism"),
    ("--n", "--seq"),
    ("--budget", "--min-time"),
    ("--patience", "--max-time"),
];

fn main() -> ExitCode {
    match check_renamed().and_then(|()| run(&Arguments::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", printable_text(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn check_renamed() -> Result<()> {
    for argument in std::env::args_os() {
        let argument = argument.to_string_lossy();
        let name = argument.split('=').next();
        if let Some((old, new)) = RENAMED.iter().find(|(old, _)| Some(*old) == name) {
            bail!("{old} has been renamed to {new}");
        }
    }
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    let case = arguments.case()?;
    let opened = zoo_backend::open(arguments.backend, arguments.dtype)?;
    match arguments.fault {
        Some(Fault::Hang) => loop {
            std::thread::park();
        },
        Some(Fault::Exhaust) => exhaust_memory(),
        Some(Fault::Crash) => panic!("injected crash"),
        Some(Fault::Wrong | Fault::Inexact) | None => {}
    }
    zoo_backend::configure_allocator();
    let setting = Setting {
        pass: case.pass,
        opened: &opened,
        sampling: arguments.sampling,
        fault: arguments.fault,
    };
    let mut report = match &case.task {
        Task::Matmul => measure_matmul(setting)?,
        Task::Attention { mechanism, problem } => measure_attention(*mechanism, problem, setting)?,
        Task::BurnAttention { problem } => measure_burn_attention(problem, setting)?,
        Task::Model { setup, attention } => measure_model(setup, *attention, setting)?,
    };
    report.device = Some(opened.to_string());
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

#[derive(Clone, Copy)]
struct Setting<'a> {
    pass: Pass,
    opened: &'a OpenDevice,
    sampling: Sampling,
    fault: Option<Fault>,
}

impl Setting<'_> {
    /// The device, with autodiff in training.
    fn device(&self) -> Device {
        let device = self.opened.device.clone();
        match self.pass {
            Pass::Train => device.autodiff(),
            Pass::Forward | Pass::Decode | Pass::Generate => device,
        }
    }
}

fn exhaust_memory() -> ! {
    let mut blocks = Vec::new();
    loop {
        blocks.push(vec![1u8; 1 << 26]);
        std::hint::black_box(&blocks);
    }
}

impl Arguments {
    fn case(&self) -> Result<Case> {
        let named = self.mechanism.as_deref();
        let (is_matmul, is_burn) = (named == Some("matmul"), named == Some(BURN_ATTENTION));
        let mechanism = named.filter(|_| !is_matmul && !is_burn);
        let mechanism = mechanism.map(str::parse).transpose()?;
        let case = match self.model {
            None if is_matmul => Case::matmul(),
            None if is_burn => Case::burn_attention(problem(&self.problem, self.seq)?, self.pass),
            None => {
                let mechanism = mechanism.unwrap_or(Mechanism::Standard);
                Case::attention(mechanism, problem(&self.problem, self.seq)?, self.pass)
            }
            Some(name) => {
                let is_attention = !is_matmul && !is_burn;
                let named = named.unwrap_or_default();
                ensure!(
                    is_attention,
                    "--mechanism {named} cannot be used with --model"
                );
                let setup = Setup::new(name.model, name.size.unwrap_or(Size::Small));
                let n = self.seq.unwrap_or(setup.n);
                let attention = mechanism.unwrap_or(name.model.default_attention());
                Case::model(setup.at_length(n)?, attention, self.pass)
            }
        };
        if let Some(reason) = case.unsupported_reason() {
            let (name, subject, pass) = (case.name(), case.subject(), case.pass);
            bail!("{name} with {subject}, {pass}: {reason}");
        }
        Ok(case)
    }
}
