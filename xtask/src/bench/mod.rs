//! `cargo xtask bench`: builds a measuring program for each backend, runs every
//! case in a process of its own, and shows the answer.

mod compare;
mod list;
mod programs;
mod progress;
mod pytorch;

use std::io::Write;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use zoo_comparison::case::Pass;
use zoo_comparison::findings::{families, findings};
use zoo_comparison::model::ModelName;
use zoo_comparison::plan::{Extent, Plan, Selection, Suite};
use zoo_comparison::pool::{Pool, Pooled, pool};
use zoo_comparison::record::{FILE, Outcome, Results, RunInfo, Writer};
use zoo_comparison::run::Comparison;
use zoo_comparison::table::{self, Against};
use zoo_comparison::{report, units};
use zoo_words::{Dtype, Mechanism};

use crate::backends::Backends;
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
    Compare(compare::Compare),
}

#[derive(Args)]
struct Measure {
    #[command(flatten)]
    backends: Backends,

    /// attention, decode, models or all
    #[arg(long, default_value_t)]
    suite: Suite,

    /// Mechanisms, with commas; all unless named, and in a model its usual one
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    mechanism: Vec<Mechanism>,

    /// Problems of the catalogue instead of a suite, with commas
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    problem: Vec<String>,

    /// Models instead of a suite, with commas: gpt, gpt-base
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    model: Vec<ModelName>,

    /// Lengths to measure at, with commas
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    seq: Vec<NonZeroUsize>,

    /// What is measured of each
    #[arg(long, value_enum, default_value_t)]
    pass: Passes,

    /// The number type: f32, f16 or bf16
    #[arg(long, default_value_t)]
    dtype: Dtype,

    /// Threads each side may use; all cores unless said otherwise
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// Two lengths or small models, within two minutes (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Every length from 128 to 16,384 or models of papers' sizes, and more samples
    #[arg(long)]
    full: bool,

    /// Measure another library on the same problems, taking turns
    #[arg(long, value_name = "LIBRARY")]
    vs: Option<Rival>,

    /// An earlier run (its folder or file) to set the times against
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Where results go; a new folder under bench-results unless named
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// How the answer is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// Show what can be chosen, and stop
    #[arg(long)]
    list: bool,

    /// How often each case is started; 2, or 3 with --vs
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,

    /// Seconds after which a case is given up; 60, or 600 with --full
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<NonZeroU64>,

    /// GiB a case may take; nine tenths of what is free unless said otherwise
    #[arg(long, value_name = "GIB")]
    memory_limit: Option<f64>,

    /// Measure with a zoo-bench that was built elsewhere, for machines without Rust
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Passes {
    Forward,
    Train,
    /// One place more, with what is kept of those before
    Decode,
    /// Token after token, by a model
    Generate,
    /// Those of each problem: forward and train, or decode; of each model: train, and
    /// generate or forward
    #[default]
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rival {
    Pytorch,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    #[default]
    Table,
    Markdown,
    Json,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.action {
            Some(Action::Compare(compare)) => compare.run(),
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
        let Plan { cases, left_out } = self.selection().plan()?;
        let baseline = match &self.baseline {
            Some(path) => Some(pool(&Results::read(path)?.cases)),
            None => None,
        };
        if let Some(limit) = self.memory_limit {
            ensure!(limit > 0.0, "--memory-limit is {limit}: it must be above 0");
        }
        let started = SystemTime::now();
        let folder = self.folder(started)?;
        for line in left_out {
            eprintln!("note: {line}");
        }

        let programs = programs::provide(&self.backends, self.program.as_deref())?;
        let pytorch = match self.vs {
            Some(Rival::Pytorch) => Some(pytorch::provide(self.backends.words())?),
            None => None,
        };
        let sides = programs.len();
        let rounds = match (self.rounds, self.vs) {
            (Some(rounds), _) => rounds.get(),
            (None, Some(_)) => 3,
            // One of each of many is what a quick run has time for.
            (None, None) if self.extent() == Extent::Quick && cases.len() * sides > 40 => 1,
            (None, None) => 2,
        };
        let mut sampling = self.extent().sampling(cases.len() * sides * rounds);
        if let Some(seconds) = self.timeout {
            sampling.timeout = Duration::from_secs(seconds.get());
        }
        let comparison = Comparison {
            programs,
            pytorch,
            cases,
            dtype: self.dtype,
            threads: self.threads(),
            rounds,
            sampling,
            memory_limit: self
                .memory_limit
                .map(|gib| (gib * f64::from(1 << 30)) as u64),
            faults: Vec::new(),
        };
        let run = self.run_info(started);
        let results = folder.join(FILE);
        let mut writer = Writer::create(&results, &run)
            .with_context(|| format!("cannot write {}", results.display()))?;

        // The first Ctrl-C ends the case, not the program: what is done is shown.
        let stop = Arc::new(AtomicBool::new(false));
        let noticed = Arc::clone(&stop);
        ctrlc::set_handler(move || {
            if noticed.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        })
        .context("cannot watch for Ctrl-C")?;
        let mut progress = progress::Progress::new();
        let lines = comparison
            .run(&mut writer, &mut progress, &stop)
            .with_context(|| format!("cannot write {}", results.display()))?;
        progress.finish();

        let against = Against {
            baseline: baseline.as_deref(),
        };
        let page = report::write(&folder, &run, &lines, against)
            .with_context(|| format!("cannot write the report into {}", folder.display()))?;
        let cases = pool(&lines);
        self.show(&cases, against)?;
        eprintln!("results: {}", results.display());
        eprintln!("report:  {}", page.display());
        if stop.load(Ordering::Relaxed) {
            eprintln!("stopped early: what was done is kept");
            std::process::exit(130);
        }
        verdict(&cases)
    }

    fn selection(&self) -> Selection {
        Selection {
            suite: self.suite,
            mechanisms: self.mechanism.clone(),
            problems: self.problem.clone(),
            models: self.model.clone(),
            lengths: self.seq.iter().map(|n| n.get()).collect(),
            passes: match self.pass {
                Passes::Forward => vec![Pass::Forward],
                Passes::Train => vec![Pass::Train],
                Passes::Decode => vec![Pass::Decode],
                Passes::Generate => vec![Pass::Generate],
                Passes::Both => vec![],
            },
            extent: self.extent(),
        }
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
        self.threads.map_or_else(cores, NonZeroUsize::get)
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
        RunInfo {
            command: own.into_iter().chain(std::env::args().skip(1)).collect(),
            commit: commit(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            burn: burn_version().unwrap_or_default(),
            ..RunInfo::here(
                humantime::format_rfc3339_seconds(started).to_string(),
                self.threads(),
            )
        }
    }

    fn show(&self, cases: &[Pooled], against: Against<'_>) -> Result<()> {
        let sections = table::sections(cases, against);
        let mut text = match self.format {
            Format::Table => devices(cases) + &table::terminal(&sections, terminal_width()),
            Format::Markdown => table::markdown(&sections),
            Format::Json => serde_json::to_string_pretty(&summary(cases))? + "\n",
        };
        if self.format != Format::Json {
            let findings = findings(&families(cases));
            let remarks = table::remarks(cases);
            for line in findings.iter().chain(&remarks) {
                text.push_str(line);
                text.push('\n');
            }
            if self.format == Format::Table {
                text.push_str(table::LEGEND);
                text.push('\n');
            }
        }
        // A reader that has seen enough (`| head`) is no failure of ours.
        let _ = std::io::stdout().write_all(text.as_bytes());
        Ok(())
    }
}

/// What computes which mechanisms, for each backend.
fn bodies(cases: &[Pooled]) -> Vec<(&str, &str, Vec<&str>)> {
    let mut bodies: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for case in cases {
        let Some(body) = &case.body else { continue };
        let (backend, mechanism) = (case.id.backend.as_str(), case.id.subject.as_str());
        let found = bodies
            .iter_mut()
            .find(|(other, by, _)| *other == backend && by == body);
        match found {
            Some((.., mechanisms)) if mechanisms.contains(&mechanism) => {}
            Some((.., mechanisms)) => mechanisms.push(mechanism),
            None => bodies.push((backend, body, vec![mechanism])),
        }
    }
    bodies
}

fn devices(cases: &[Pooled]) -> String {
    let mut text = String::new();
    for device in cases.iter().filter_map(|case| case.device.as_ref()) {
        let line = format!("device: {device}\n");
        if !text.contains(&line) {
            text.push_str(&line);
        }
    }
    for (backend, body, mechanisms) in bodies(cases) {
        let mechanisms = mechanisms.join(", ");
        text.push_str(&format!(
            "body: {backend} computes {mechanisms} by {body}\n"
        ));
    }
    for case in cases.iter().filter(|case| case.id.subject == "matmul") {
        if let Some(rate) = case.rate() {
            let (n, backend) = (units::count(case.id.n), &case.id.backend);
            let rate = units::three_digits(rate / 1e9);
            text.push_str(&format!(
                "matmul: {backend} multiplies {n} x {n} at {rate} GFLOP/s\n"
            ));
        }
    }
    text.push('\n');
    text
}

/// The cases as JSON: what the table shows, as numbers.
fn summary(cases: &[Pooled]) -> Vec<serde_json::Value> {
    let of = |case: &Pooled| {
        let mut value = serde_json::json!({
            "case": case.id,
            "device": case.device,
            "work": case.work,
            "minimum_bytes": case.minimum_bytes,
            "parameters": case.parameters,
        });
        value["result"] = match &case.result {
            Pool::Samples(samples) => serde_json::json!({
                "median": samples.median(),
                "p10": samples.quantile(0.1),
                "p90": samples.quantile(0.9),
                "samples": samples.count(),
                "flops_per_second": case.rate(),
                "tokens_per_second": case.tokens_per_second(),
                "peak": samples.peak,
                "error": samples.error,
                "checked": samples.checked,
            }),
            Pool::Without(outcome) => serde_json::json!({ "outcome": outcome }),
        };
        value
    };
    cases.iter().map(of).collect()
}

/// Too little memory or time is an answer. A wrong result or a crash is a defect.
fn verdict(cases: &[Pooled]) -> Result<()> {
    let defects = cases.iter().filter(|case| {
        matches!(
            case.result,
            Pool::Without(Outcome::Wrong { .. } | Outcome::Failed { .. })
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
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(places::workspace())
            .output()
            .ok()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said)
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain"]).is_some_and(|files| !files.is_empty());
    Some(if changed { commit + "+changes" } else { commit })
}

/// The version of Burn that the lock file holds.
fn burn_version() -> Option<String> {
    let lock = std::fs::read_to_string(places::workspace().join("Cargo.lock")).ok()?;
    let burn = lock.split_once("name = \"burn\"\nversion = \"")?.1;
    Some(burn.split_once('"')?.0.to_owned())
}

/// Characters in a line, if there is a terminal to show them.
fn terminal_width() -> Option<usize> {
    console::Term::stdout()
        .size_checked()
        .map(|(_, columns)| usize::from(columns))
}
