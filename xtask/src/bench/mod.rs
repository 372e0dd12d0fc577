//! `cargo xtask bench`: builds a measuring program for each backend, runs every
//! case in a process of its own, and shows the answer.

mod answer;
mod list;
mod sides;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use zoo_bench_core::case::count;
use zoo_bench_core::child::Limits;
use zoo_bench_core::machine::Machine;
use zoo_bench_core::plan::{Extent, Plan, Selection};
use zoo_bench_core::pool::pool;
use zoo_bench_core::record::{CaseLine, FILE, Line, Outcome, Results, RunInfo, Writer};
use zoo_bench_core::run::{Comparison, Event};
use zoo_bench_core::{pytorch, table};
use zoo_spec::Dtype;

use crate::backends::Backends;
use crate::build::said;
use crate::places;

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
    /// Compare two earlier runs, case by case
    Compare(answer::Compare),
    /// Show an earlier run again, and write its report: also of one that was killed
    Report(answer::Again),
}

#[derive(Args)]
struct Measure {
    #[command(flatten)]
    backends: Backends,

    #[command(flatten)]
    selection: Selection,

    /// The number type: f32, f16 or bf16
    #[arg(long, default_value_t)]
    dtype: Dtype,

    /// Threads each side may use; all cores unless said otherwise
    #[arg(long, value_name = "N", value_parser = |text: &str| count(text, 4096))]
    threads: Option<usize>,

    /// Two lengths or small models, within two minutes (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Every length from 128 to 16,384 or models of papers' sizes, and more samples
    #[arg(long)]
    full: bool,

    /// Measure another library on the same problems, taking turns
    #[arg(long, value_name = "LIBRARY", value_parser = ["pytorch"])]
    vs: Option<String>,

    #[command(flatten)]
    show: answer::Show,

    /// Where results go; a new folder under bench-results unless named
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Show what can be chosen, and stop
    #[arg(long)]
    list: bool,

    /// How often each case is started; 2, or 3 with --vs
    #[arg(long, value_name = "N", value_parser = |text: &str| count(text, 1000))]
    rounds: Option<usize>,

    /// Seconds after which a case is given up; 60, or 600 with --full
    #[arg(long, value_name = "SECONDS", value_parser = |text: &str| count(text, 1_000_000_000))]
    timeout: Option<usize>,

    /// GiB a case may take; nine tenths of what is free unless said otherwise
    #[arg(long, value_name = "GIB")]
    memory_limit: Option<f64>,

    /// Measure with a zoo-bench that was built elsewhere, for machines without Rust
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.action {
            Some(Action::Compare(compare)) => compare.run(),
            Some(Action::Report(again)) => again.run(),
            None if self.measure.list => {
                print!("{}", list::everything());
                Ok(())
            }
            None => self.measure.run(),
        }
    }
}

impl Measure {
    fn run(&self) -> Result<()> {
        // Everything a person can get wrong, before anything slow.
        let selection = Selection {
            extent: self.extent(),
            ..self.selection.clone()
        };
        let Plan { cases, mut skipped } = selection.plan()?;
        let baseline = self.show.baseline()?;
        if let Some(limit) = self.memory_limit {
            ensure!(limit > 0.0, "--memory-limit is {limit}: it must be above 0");
        }
        let started = SystemTime::now();
        let folder = self.folder(started)?;
        if self.vs.is_some() {
            skipped.extend(cases.iter().filter_map(pytorch::skipped));
        }
        for line in table::skipped_lines(&skipped) {
            eprintln!("{line}");
        }

        let programs = sides::programs(&self.backends, self.program.as_deref())?;
        let pytorch = match self.vs {
            Some(_) => Some(sides::pytorch(self.backends.words())?),
            None => None,
        };
        let sides = programs.len();
        let rounds = match (self.rounds, &self.vs) {
            (Some(rounds), _) => rounds,
            (None, Some(_)) => 3,
            // One of each of many is what a quick run has time for.
            (None, None) if self.extent() == Extent::Quick && cases.len() * sides > 40 => 1,
            (None, None) => 2,
        };
        let sampling = self.extent().sampling(cases.len() * sides * rounds);
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

        // The first Ctrl-C ends the case, not the program: what is done is shown.
        let stop = Arc::new(AtomicBool::new(false));
        let noticed = Arc::clone(&stop);
        ctrlc::set_handler(move || {
            if noticed.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        })
        .context("cannot watch for Ctrl-C")?;
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
            eprintln!("stopped early: what was done is kept");
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

    /// The folder for this run, created; never one that holds results already.
    fn folder(&self, started: SystemTime) -> Result<PathBuf> {
        let folder = match &self.out {
            Some(folder) => folder.clone(),
            None => {
                let stamp = humantime::format_rfc3339_seconds(started).to_string();
                let stamp = stamp.replace(':', "-").replace('Z', "");
                places::workspace().join("bench-results").join(stamp)
            }
        };
        ensure!(
            !folder.join(FILE).exists(),
            "{} holds results already, and they are never overwritten\n  do: choose another --out, \
             or move them",
            folder.display()
        );
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        Ok(folder)
    }

    fn run_info(&self, started: SystemTime) -> RunInfo {
        let own = ["cargo".to_owned(), "xtask".to_owned()];
        // Paths need not be UTF-8.
        let given = std::env::args_os().skip(1);
        let given = given.map(|word| word.to_string_lossy().into_owned());
        RunInfo {
            started: humantime::format_rfc3339_seconds(started).to_string(),
            command: own.into_iter().chain(given).collect(),
            commit: commit(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            burn: burn_version().unwrap_or_default(),
            machine: Machine::here(),
            threads: self.threads(),
        }
    }
}

/// A bar, drawn on stderr, and not at all where that is no terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {eta} left  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Shows what happens on the bar, or as a line in its place.
fn show(bar: &ProgressBar, event: Event<'_>) {
    match event {
        Event::Run(total) => bar.set_length(total as u64),
        Event::Begin(id) => bar.set_message(id.to_string()),
        Event::End(line) => {
            bar.inc(1);
            let outcome = line.report.outcome.summary();
            if bar.is_hidden() {
                let (at, of) = (bar.position(), bar.length().unwrap_or_default());
                eprintln!("[{at}/{of}] {}: {outcome}", line.id);
            } else if line.report.outcome.measured().is_none() {
                bar.println(format!("{}: {outcome}", line.id));
            }
        }
    }
}

/// Too little memory or time is an answer. A wrong result or a crash is a defect.
fn verdict(cases: &[CaseLine]) -> Result<()> {
    let defects = cases.iter().filter(|case| {
        matches!(
            case.report.outcome,
            Outcome::Wrong { .. } | Outcome::Failed { .. }
        )
    });
    match defects.count() {
        0 => Ok(()),
        1 => bail!("one case is wrong or failed; the lines above say how"),
        count => bail!("{count} cases are wrong or failed; the lines above say how"),
    }
}

/// The commit that is checked out, if this is a git checkout.
fn commit() -> Option<String> {
    let commit = said("git", &["rev-parse", "--short=12", "HEAD"])?;
    let changed = said("git", &["status", "--porcelain"]).is_some_and(|files| !files.is_empty());
    Some(if changed { commit + "+changes" } else { commit })
}

/// The version of Burn that the lock file holds.
fn burn_version() -> Option<String> {
    let lock = std::fs::read_to_string(places::workspace().join("Cargo.lock")).ok()?;
    let burn = lock.split_once("name = \"burn\"\nversion = \"")?.1;
    Some(burn.split_once('"')?.0.to_owned())
}
