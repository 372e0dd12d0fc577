//! `cargo xtask bench`: builds a program for each backend, runs every case in its own process.

mod list;
mod output;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use zoo_bench_core::case::parse_count;
use zoo_bench_core::child::Limits;
use zoo_bench_core::library::{Library, Rival};
use zoo_bench_core::machine::Machine;
use zoo_bench_core::plan::{Extent, Plan, Selection};
use zoo_bench_core::pool::{distinct, pool};
use zoo_bench_core::pytorch::PyTorch;
use zoo_bench_core::record::{CaseLine, FILE, Line, Outcome, Results, RunInfo, Writer};
use zoo_bench_core::report::FILE as REPORT;
use zoo_bench_core::run::{Comparison, Event, Program};
use zoo_bench_core::screen::MAX_WIDTH;
use zoo_bench_core::table;
use zoo_spec::{Backend, BackendId, Dtype};

use crate::backends::{Backends, Environment};
use crate::build::stdout_of;
use crate::{libtorch, paths, print, program};

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

    /// Also measure other libraries, interleaved, comma-separated: pytorch (the same mechanisms,
    /// problems and models) or burn (its own attention on the same problems and backends)
    #[arg(long, value_name = "LIBRARY,...", value_delimiter = ',')]
    vs: Vec<Library>,

    /// Python interpreter whose PyTorch is measured [default: with the PyTorch that provides LibTorch]
    #[arg(long, value_name = "FILE", requires = "vs")]
    python: Option<PathBuf>,

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
        let limit = self.memory_limit.unwrap_or(f64::MAX);
        ensure!(limit > 0.0, "--memory-limit must be above 0, got {limit}");
        if let Some(python) = &self.python {
            let has_pytorch = self.vs.contains(&Library::PyTorch);
            ensure!(has_pytorch, "--python can be used only with --vs pytorch");
            check_torch(python)?;
        }
        let started = SystemTime::now();
        let folder = self.folder(started)?;
        let libraries = distinct(self.vs.iter().copied());
        for library in &libraries {
            skipped.extend(library.skipped(&cases));
        }
        for line in table::skipped_lines(&skipped) {
            eprintln!("{}", table::wrap(&line, MAX_WIDTH));
        }

        let programs = programs(&self.backends, self.program.as_deref())?;
        let rival = |&library: &Library| self.rival(library);
        let rivals = libraries
            .iter()
            .map(rival)
            .collect::<Result<Vec<Rival>>>()?;
        let num_programs = programs.len();
        let rounds = match (self.rounds, &rivals[..]) {
            (Some(rounds), _) => rounds,
            // A quick run has time for one round of many cases.
            (None, []) if self.extent() == Extent::Quick && cases.len() * num_programs > 40 => 1,
            (None, []) => 2,
            (None, [..]) => 3,
        };
        let sampling = self.extent().sampling(cases.len() * num_programs * rounds);
        let timeout = self.timeout.map(|seconds| seconds as u64);
        let bytes = |gib: f64| (gib * f64::from(1 << 30)) as u64;
        let run = self.run_info(started);
        let comparison = Comparison {
            programs,
            rivals,
            cases,
            dtype: self.dtype,
            threads: run.threads,
            rounds,
            sampling,
            limits: Limits {
                time: timeout.map_or(self.extent().timeout(), Duration::from_secs),
                memory: self.memory_limit.map(bytes),
            },
        };
        let file = folder.join(FILE);
        let failed = || format!("cannot write {}", file.display());
        let mut writer = Writer::create(&file, &run).with_context(failed)?;
        for case in &skipped {
            let line = Line::Skipped(case.clone());
            writer.write(&line).with_context(failed)?;
        }

        // The first Ctrl-C ends the current case; the results so far are printed.
        static STOP: AtomicBool = AtomicBool::new(false);
        ctrlc::set_handler(|| {
            if STOP.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        })
        .context("cannot install the Ctrl-C handler")?;
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} ETA {eta}  {msg}")?;
        let bar = ProgressBar::no_length().with_style(style);
        let cases = comparison.run(&mut writer, &mut |event| show(&bar, event), &STOP);
        let cases = cases.with_context(failed)?;
        bar.finish_and_clear();

        let results = Results {
            run,
            cases,
            skipped,
        };
        eprintln!("results: {}", output::relative(&file).display());
        self.show.results(&folder, &results, baseline.as_deref())?;
        if STOP.load(Ordering::Relaxed) {
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

    fn rival(&self, library: Library) -> Result<Rival> {
        Ok(match library {
            Library::PyTorch => {
                Rival::PyTorch(pytorch_for(self.backends.ids(), self.python.as_deref())?)
            }
            Library::Burn => Rival::Burn,
        })
    }

    /// Creates the output folder; it must not contain results or another report.
    fn folder(&self, started: SystemTime) -> Result<PathBuf> {
        let folder = self.out.clone().unwrap_or_else(|| {
            let stamp = humantime::format_rfc3339_seconds(started).to_string();
            let stamp = stamp.replace(':', "-").replace('Z', "");
            paths::workspace().join("bench-results").join(stamp)
        });
        ensure!(
            !folder.join(FILE).exists(),
            "{} already contains results\n  help: choose another --out, or move them",
            folder.display()
        );
        ensure!(
            !folder.join(REPORT).exists(),
            "{} already contains {REPORT}\n  help: choose another --out, or move it",
            folder.display()
        );
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        Ok(folder)
    }

    fn run_info(&self, started: SystemTime) -> RunInfo {
        let machine = Machine::detect();
        let program = ["cargo", "xtask"].map(str::to_owned);
        // Paths need not be UTF-8.
        let arguments = std::env::args_os().skip(1);
        let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
        RunInfo {
            started: humantime::format_rfc3339_seconds(started).to_string(),
            command: program.into_iter().chain(arguments).collect(),
            commit: commit(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            burn: burn_version().unwrap_or_default(),
            threads: self.threads.unwrap_or(machine.cores),
            machine,
        }
    }
}

/// Shows an event on the bar, or as a line if the bar is hidden because stderr is no terminal.
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

/// Fails on wrong results and crashes of ours; running out of memory or time is a valid result, and so
/// is a defect of another library.
fn verdict(cases: &[CaseLine]) -> Result<()> {
    let is_defect = |case: &&CaseLine| {
        let outcome = &case.report.outcome;
        matches!(outcome, Outcome::Wrong { .. } | Outcome::Failed { .. })
    };
    let defects = |library: Option<Library>| {
        let cases = cases.iter().filter(|case| case.id.library() == library);
        (cases.clone().filter(is_defect).count(), cases.count())
    };
    for library in Library::ALL {
        let ((defects, all), library) = (defects(Some(library)), library.title());
        if defects > 0 {
            eprintln!("note: {defects} of {all} cases of {library} have wrong results or failed");
        }
    }
    let (defects, all) = defects(None);
    ensure!(
        defects == 0,
        "{defects} of {all} cases have wrong results or failed"
    );
    Ok(())
}

fn commit() -> Option<String> {
    let commit = stdout_of("git", &["rev-parse", "--short=12", "HEAD"])?;
    let files = stdout_of("git", &["status", "--porcelain"]).unwrap_or_default();
    let changes = if files.is_empty() { "" } else { "+changes" };
    Some(commit + changes)
}

fn burn_version() -> Option<String> {
    let lock = std::fs::read_to_string(paths::workspace().join("Cargo.lock")).ok()?;
    let burn = lock.split_once("name = \"burn\"\nversion = \"")?.1;
    Some(burn.split_once('"')?.0.to_owned())
}

/// Builds a program for each backend, or uses `prebuilt` for all.
fn programs(backends: &Backends, prebuilt: Option<&Path>) -> Result<Vec<Program>> {
    let provide = |&id: &BackendId| {
        let backend = backends.only(id);
        let (executable, environment) = match prebuilt {
            Some(file) => {
                ensure!(
                    file.is_file(),
                    "--program {}: no such file\n  help: build it with \
                     cargo build --release --package zoo-bench --features {}",
                    file.display(),
                    backend.features().join(",")
                );
                (file.to_owned(), Environment::default())
            }
            None => {
                let environment = backend.prepare()?;
                let program = program::provide("zoo-bench", &backend, &environment)?;
                (program, environment)
            }
        };
        Ok(Program {
            backend: id.to_string(),
            executable,
            environment,
        })
    };
    backends.ids().iter().map(provide).collect()
}

/// PyTorch of this Python, or of the one that provides LibTorch (installed if there is none), on the
/// CPU or a GPU.
fn pytorch_for(ids: &[BackendId], python: Option<&Path>) -> Result<PyTorch> {
    let (python, environment) = match python {
        Some(python) => (python.to_owned(), Environment::new()),
        None => libtorch_python()?,
    };
    let gpus = [Backend::TchCuda, Backend::Vulkan, Backend::Cuda];
    let is_gpu = ids.iter().any(|id| gpus.contains(&id.backend));
    let device = if is_gpu { "cuda" } else { "cpu" };
    let scripts = paths::workspace().join("benches").join("pytorch");
    PyTorch::new(python, scripts, environment, device).context("cannot write PyTorch's inputs")
}

/// Checks that a Python interpreter has PyTorch.
fn check_torch(python: &Path) -> Result<()> {
    let name = python.display();
    let output = Command::new(python)
        .args(["-c", "import torch"])
        .output()
        .with_context(|| {
            format!("--python {name} cannot be run\n  help: use the path of a Python interpreter")
        })?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "--python {name}: import torch failed: {}\n  help: {name} -m pip install torch",
        errors.lines().last().unwrap_or_default()
    );
    Ok(())
}

/// The Python that provides LibTorch, and its environment variables.
fn libtorch_python() -> Result<(PathBuf, Environment)> {
    let found = libtorch::provide()?;
    ensure!(
        found.folder.join("__init__.py").is_file(),
        "--vs pytorch needs PyTorch, but {} is LibTorch without Python\n  help: unset \
         LIBTORCH, or set it to the torch folder in Python's site-packages",
        found.folder.display()
    );
    let python = libtorch::python().context("--vs pytorch needs Python 3.10 or newer")?;
    let mut environment = found.environment();
    if let Some(packages) = found.folder.parent() {
        environment.push(("PYTHONPATH", packages.into()));
    }
    Ok((python.into(), environment))
}

#[cfg(test)]
mod tests {
    use zoo_bench_core::burn;
    use zoo_bench_core::test_utils::{failed_line, line, on_backend};

    use super::*;

    #[test]
    fn only_defects_of_ours_fail_the_run() {
        let wrong = |subject: &str| failed_line(subject, 256, Outcome::wrong("is NaN".to_owned()));
        let correct = line("flash", 256, &[1.0]);
        let slow = failed_line("standard", 256, Outcome::TimedOut { seconds: 60.0 });
        let libraries = [on_backend("pytorch", wrong("sdpa")), wrong(burn::SUBJECT)];
        let mut cases = vec![correct, slow];
        cases.extend(libraries);
        assert!(verdict(&cases).is_ok());
        cases.push(wrong("linear"));
        let error = verdict(&cases).expect_err("a wrong result").to_string();
        assert_eq!(error, "1 of 3 cases have wrong results or failed");
    }
}
