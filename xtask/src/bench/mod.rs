//! `cargo xtask bench`: builds a benchmark program for each backend, runs every case in its own
//! process, and prints the results.

mod list;
mod output;
mod programs;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use zoo_bench_core::case::parse_count;
use zoo_bench_core::child::Limits;
use zoo_bench_core::machine::Machine;
use zoo_bench_core::plan::{Extent, Plan, Selection};
use zoo_bench_core::pool::pool;
use zoo_bench_core::record::{CaseLine, FILE, Line, Outcome, Results, RunInfo, Writer};
use zoo_bench_core::run::{Comparison, Event};
use zoo_bench_core::{pytorch, table};
use zoo_spec::Dtype;

use crate::backends::Backends;
use crate::build::stdout_of;
use crate::{paths, print};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    measure: Measure,
}

#[derive(Subcommand)]
enum Action {
    /// Compare two runs case by case
    Compare(output::Compare),
    /// Print the results of an earlier (possibly interrupted) run and write its report
    Report(output::Report),
}

#[derive(Args)]
struct Measure {
    #[command(flatten)]
    backends: Backends,

    #[command(flatten)]
    selection: Selection,

    /// Data type: f32, f16 or bf16
    #[arg(long, default_value_t)]
    dtype: Dtype,

    /// Number of threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = |text: &str| parse_count(text, 4096))]
    threads: Option<usize>,

    /// Run a quick benchmark: two sequence lengths or small models, about two minutes (default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Run the full benchmark: sequence lengths 128 to 16,384 or models of published sizes, with more
    /// samples
    #[arg(long)]
    full: bool,

    /// Also measure another library on the same problems, interleaved
    #[arg(long, value_name = "LIBRARY", value_parser = ["pytorch"])]
    vs: Option<String>,

    #[command(flatten)]
    show: output::Show,

    /// Output folder [default: a new folder in bench-results]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// List the possible values of all options and exit
    #[arg(long)]
    list: bool,

    /// Number of runs of each case [default: 2, or 3 with --vs]
    #[arg(long, value_name = "N", value_parser = |text: &str| parse_count(text, 1000))]
    rounds: Option<usize>,

    /// Timeout of a case in seconds [default: 60, or 600 with --full]
    #[arg(long, value_name = "SECONDS", value_parser = |text: &str| parse_count(text, 1_000_000_000))]
    timeout: Option<usize>,

    /// Memory limit of a case in GiB [default: 90% of the free memory]
    #[arg(long, value_name = "GIB")]
    memory_limit: Option<f64>,

    /// Use a prebuilt zoo-bench, for machines without Rust
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.action {
            Some(Action::Compare(compare)) => compare.run(),
            Some(Action::Report(report)) => report.run(),
            None if self.measure.list => {
                print(&list::everything());
                Ok(())
            }
            None => self.measure.run(),
        }
    }
}

impl Measure {
    fn run(&self) -> Result<()> {
        // Validate all arguments before anything slow.
        let selection = Selection {
            extent: self.extent(),
            ..self.selection.clone()
        };
        let Plan { cases, mut skipped } = selection.plan()?;
        let baseline = self.show.baseline()?;
        if let Some(limit) = self.memory_limit {
            ensure!(limit > 0.0, "--memory-limit must be above 0, got {limit}");
        }
        let started = SystemTime::now();
        let folder = self.folder(started)?;
        if self.vs.is_some() {
            skipped.extend(cases.iter().filter_map(pytorch::skipped));
        }
        for line in table::skipped_lines(&skipped) {
            eprintln!("{line}");
        }

        let programs = programs::programs(&self.backends, self.program.as_deref())?;
        let pytorch = match self.vs {
            Some(_) => Some(programs::pytorch(self.backends.ids())?),
            None => None,
        };
        let num_programs = programs.len();
        let rounds = match (self.rounds, &self.vs) {
            (Some(rounds), _) => rounds,
            (None, Some(_)) => 3,
            // A quick run has time for one round of many cases.
            (None, None) if self.extent() == Extent::Quick && cases.len() * num_programs > 40 => 1,
            (None, None) => 2,
        };
        let sampling = self.extent().sampling(cases.len() * num_programs * rounds);
        let timeout = self
            .timeout
            .map(|seconds| Duration::from_secs(seconds as u64));
        let comparison = Comparison {
            programs,
            pytorch,
            cases,
            dtype: self.dtype,
            threads: self.threads(),
            rounds,
            sampling,
            limits: Limits {
                time: timeout.unwrap_or(self.extent().timeout()),
                memory: self
                    .memory_limit
                    .map(|gib| (gib * f64::from(1 << 30)) as u64),
            },
        };
        let run = self.run_info(started);
        let file = folder.join(FILE);
        let failed = || format!("cannot write {}", file.display());
        let mut writer = Writer::create(&file, &run).with_context(failed)?;
        for case in &skipped {
            let line = Line::Skipped(case.clone());
            writer.write(&line).with_context(failed)?;
        }

        // The first Ctrl-C ends the current case; the results so far are printed.
        let stop = Arc::new(AtomicBool::new(false));
        let interrupted = Arc::clone(&stop);
        ctrlc::set_handler(move || {
            if interrupted.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        })
        .context("cannot install the Ctrl-C handler")?;
        let bar = bar();
        let cases = comparison
            .run(&mut writer, &mut |event| show(&bar, event), &stop)
            .with_context(failed)?;
        bar.finish_and_clear();

        let results = Results {
            run,
            cases,
            skipped,
        };
        eprintln!("results: {}", file.display());
        self.show.results(&folder, &results, baseline.as_deref())?;
        if stop.load(Ordering::Relaxed) {
            eprintln!("interrupted: the results so far are saved");
            std::process::exit(130);
        }
        verdict(&pool(&results.cases))
    }

    fn extent(&self) -> Extent {
        if self.full {
            Extent::Full
        } else {
            Extent::Quick
        }
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores)
    }

    /// Creates the output folder; it must not contain results.
    fn folder(&self, started: SystemTime) -> Result<PathBuf> {
        let folder = match &self.out {
            Some(folder) => folder.clone(),
            None => {
                let stamp = humantime::format_rfc3339_seconds(started).to_string();
                let stamp = stamp.replace(':', "-").replace('Z', "");
                paths::workspace().join("bench-results").join(stamp)
            }
        };
        ensure!(
            !folder.join(FILE).exists(),
            "{} already contains results\n  help: choose another --out, or move them",
            folder.display()
        );
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        Ok(folder)
    }

    fn run_info(&self, started: SystemTime) -> RunInfo {
        let program = ["cargo".to_owned(), "xtask".to_owned()];
        // Paths need not be UTF-8.
        let arguments = std::env::args_os().skip(1);
        let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
        RunInfo {
            started: humantime::format_rfc3339_seconds(started).to_string(),
            command: program.into_iter().chain(arguments).collect(),
            commit: commit(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            burn: burn_version().unwrap_or_default(),
            machine: Machine::detect(),
            threads: self.threads(),
        }
    }
}

/// A progress bar on stderr, hidden unless that is a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} ETA {eta}  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Shows an event on the bar, or as a line if the bar is hidden.
fn show(bar: &ProgressBar, event: Event<'_>) {
    match event {
        Event::Run(total) => bar.set_length(total as u64),
        Event::Begin(id) => bar.set_message(id.to_string()),
        Event::End(line) => {
            bar.inc(1);
            let outcome = line.report.outcome.summary();
            if bar.is_hidden() {
                let (position, total) = (bar.position(), bar.length().unwrap_or_default());
                eprintln!("[{position}/{total}] {}: {outcome}", line.id);
            } else if line.report.outcome.measured().is_none() {
                bar.println(format!("{}: {outcome}", line.id));
            }
        }
    }
}

/// Fails on wrong results and crashes; running out of memory or time is a valid result.
fn verdict(cases: &[CaseLine]) -> Result<()> {
    let defects = cases.iter().filter(|case| {
        matches!(
            case.report.outcome,
            Outcome::Wrong { .. } | Outcome::Failed { .. }
        )
    });
    match defects.count() {
        0 => Ok(()),
        count => bail!(
            "{count} of {} cases have wrong results or failed",
            cases.len()
        ),
    }
}

/// The checked-out commit, if this is a git repository.
fn commit() -> Option<String> {
    let commit = stdout_of("git", &["rev-parse", "--short=12", "HEAD"])?;
    let changed =
        stdout_of("git", &["status", "--porcelain"]).is_some_and(|files| !files.is_empty());
    Some(if changed { commit + "+changes" } else { commit })
}

/// The version of Burn in the lock file.
fn burn_version() -> Option<String> {
    let lock = std::fs::read_to_string(paths::workspace().join("Cargo.lock")).ok()?;
    let burn = lock.split_once("name = \"burn\"\nversion = \"")?.1;
    Some(burn.split_once('"')?.0.to_owned())
}
