//! `cargo xtask test`: one set of test programs with all the backends asked
//! for, run on each device in turn.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::backends::{Backends, Environment};
use crate::build::{self, Built};
use crate::{doctor, packages, places};

#[derive(Args)]
pub(crate) struct Test {
    #[command(flatten)]
    pub(crate) backends: Backends,

    /// Run only the tests whose name contains this
    pub(crate) filter: Option<String>,

    /// Test hub.py with Python's package datasets too, which is installed into the cache
    #[arg(long)]
    pub(crate) hub: bool,

    /// Test a project outside the workspace too, which compiles a Burn of its own
    #[arg(long)]
    pub(crate) outside: bool,

    /// Have cargo write a report of where the build's time went
    #[arg(long)]
    pub(crate) timings: bool,
}

impl Test {
    pub(crate) fn run(&self) -> Result<()> {
        let environment = self.backends.prepare()?;
        let words: Vec<_> = self
            .backends
            .words()
            .iter()
            .map(ToString::to_string)
            .collect();
        println!("building the tests for: {}", words.join(", "));
        let (programs, took) = self.build(&environment)?;
        println!("built in {}\n", seconds(took));

        let (on_device, once): (Vec<_>, Vec<_>) = programs
            .into_iter()
            .filter(|program| program.test)
            .partition(Built::runs_on_a_device);

        let mut total = Tally::default();
        let mut plain = Tally::default();
        let mut alone = environment.clone();
        if self.hub {
            alone.push(("ZOO_HUB", places::cache()?.join("hub").into()));
        }
        for program in &once {
            plain.add(self.execute(program, &alone)?);
        }
        if self.filter.is_none() {
            plain.add(self.doc_tests(&environment)?);
        }
        for (is_run, what) in [
            (self.hub, "hub.py with the package datasets (--hub)"),
            (self.outside, "a project outside the workspace (--outside)"),
        ] {
            if !is_run {
                plain.notes.push(format!("NOT run: {what}"));
            }
        }
        plain.print("no device");
        total.add(plain);

        for word in self.backends.words() {
            let mut environment = environment.clone();
            environment.push(("ZOO_BACKEND", word.to_string().into()));
            let start = Instant::now();
            let mut tally = self.execute_all(&on_device, &environment)?;
            tally.time = start.elapsed();
            tally.print(&word.to_string());
            total.add(tally);
        }

        // Alone on its line, where people and machines look for it.
        println!("\n{} passed, {} failed", total.passed, total.failed);
        if total.failed > 0 {
            bail!("{} of the tests failed", total.failed);
        }
        if total.passed == 0 {
            bail!(
                "no test ran: none has \"{}\" in its name",
                self.filter.as_deref().unwrap_or_default()
            );
        }
        Ok(())
    }

    fn build(&self, environment: &Environment) -> Result<(Vec<Built>, Duration)> {
        let (mut programs, light_took) =
            build::cargo_build(&packages::light_tests(), &Environment::new())?;
        if self.outside {
            programs.extend(build_outside()?);
        }

        let mut arguments = packages::with_burn("test", &self.backends.features());
        arguments.push_str(" --no-run");
        if self.timings {
            arguments.push_str(" --timings");
        }
        let (heavy, heavy_took) = build::cargo_build(&arguments, environment)?;
        doctor::keep_probe(&heavy, &self.backends.features())?;
        programs.extend(heavy);
        Ok((programs, light_took + heavy_took))
    }

    fn doc_tests(&self, environment: &Environment) -> Result<Tally> {
        let start = Instant::now();
        let features = self.backends.features();
        let arguments = packages::with_burn("test", &features);
        let mut environment = environment.clone();
        // Examples of pages use Burn's default device, which would be a GPU if there is one.
        if features.contains(&"flex") {
            environment.push(("BURN_DEVICE", "flex".into()));
        }
        let output = build::cargo_output(&format!("{arguments} --doc"), &environment)?;
        Ok(Tally::of("doc tests", &output, start.elapsed()))
    }

    /// Runs programs on one device, as many at a time as there are cores, up to eight: most have
    /// one thread that waits for the device, or for a driver that compiles one kernel after the
    /// other. Each opens the device, so that more would need too much of its memory.
    fn execute_all(&self, programs: &[Built], environment: &Environment) -> Result<Tally> {
        let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
        let (shared, whole): (Vec<_>, Vec<_>) =
            programs.iter().partition(|program| program.can_be_shared());
        // Shares are short: they fill up what the others leave.
        let mut jobs: Vec<_> = (whole.into_iter().rev())
            .map(|program| (program, environment.clone()))
            .collect();
        for program in shared {
            for share in 1..=workers {
                let mut environment = environment.clone();
                environment.push(("ZOO_SHARE", format!("{share}/{workers}").into()));
                jobs.push((program, environment));
            }
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<Tally> {
            let mut tally = Tally::default();
            while let Some((program, environment)) = jobs.get(next.fetch_add(1, Ordering::Relaxed))
            {
                tally.add(self.execute(program, environment)?);
            }
            Ok(tally)
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let mut all = Tally::default();
            for worker in workers {
                all.add(worker.join().expect("a worker does not panic")?);
            }
            Ok(all)
        })
    }

    fn execute(&self, program: &Built, environment: &Environment) -> Result<Tally> {
        let start = Instant::now();
        let mut command = Command::new(&program.executable);
        command.args(&self.filter).current_dir(&program.package);
        build::set(&mut command, environment);
        let output = command
            .output()
            .with_context(|| format!("cannot start {}", program.executable.display()))?;
        Ok(Tally::of(&program.name(), &output, start.elapsed()))
    }
}

/// Builds the tests of `outside/`, a project of somebody else's that is in no workspace of ours,
/// with the versions that the workspace has. The features it turns on are its own, and so is its
/// target directory.
fn build_outside() -> Result<Vec<Built>> {
    let workspace = places::workspace();
    let project = workspace.join("outside");
    std::fs::copy(workspace.join("Cargo.lock"), project.join("Cargo.lock"))
        .with_context(|| format!("cannot write to {}", project.display()))?;
    let target = places::target().join("outside");
    let environment = vec![("CARGO_TARGET_DIR", target.into_os_string())];
    let arguments = "test --no-run --quiet --manifest-path outside/Cargo.toml";
    Ok(build::cargo_build(arguments, &environment)?.0)
}

impl Built {
    /// Integration tests of the packages with backend features open a device;
    /// unit tests do not.
    fn runs_on_a_device(&self) -> bool {
        let package = self.package.file_name().unwrap_or_default();
        self.kind == "test"
            && ["conformance", "backend", "benches", "examples", "train"]
                .iter()
                .any(|folder| package == *folder)
    }

    /// Whether its tests can be split between processes by `ZOO_SHARE`.
    fn can_be_shared(&self) -> bool {
        self.package
            .file_name()
            .is_some_and(|folder| folder == "conformance")
    }

    fn name(&self) -> String {
        let workspace = places::workspace();
        let package = self.package.strip_prefix(&workspace);
        let package = package.unwrap_or(&self.package).display();
        format!("{package}: {} {}", self.kind, self.target)
    }
}

/// What test programs said of themselves.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    /// Whether a program ended without telling of a failed test.
    fell: bool,
    time: Duration,
    /// Lines worth showing: the device in use, the worst error, what was not run.
    notes: Vec<String>,
}

impl Tally {
    /// Reads the output of a test program, and shows it if it failed.
    fn of(name: &str, output: &Output, time: Duration) -> Self {
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        let mut tally = Self::read(&said, output.status.success());
        tally.time = time;
        if tally.failed > 0 {
            println!("---- {name} ({})\n{said}", output.status);
            // Test programs tell of failed tests on stdout. Their stderr holds
            // panics that tests expect, and is the only clue when one falls.
            if tally.fell {
                println!("{complained}");
            }
        }
        tally
    }

    /// Counts the closing lines in a test program's output.
    fn read(text: &str, success: bool) -> Self {
        let mut tally = Self::default();
        for line in text.lines() {
            if let Some(result) = line.strip_prefix("test result: ") {
                tally.passed += count(result, "passed");
                tally.failed += count(result, "failed");
            } else if line.starts_with("device: ") || line.starts_with("worst error: ") {
                tally.notes.push(line.to_owned());
            } else if let Some((name, _)) = line.split_once(" ... ignored") {
                let name = name.trim_start_matches("test ").trim_end();
                tally.notes.push(format!("NOT run: {name}"));
            }
        }
        // One that fell without counting a failure, or never counted at all, is
        // a failure all the same.
        tally.fell = tally.failed == 0 && !(success && text.contains("test result: "));
        if tally.fell {
            tally.failed = 1;
        }
        tally
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.time += other.time;
        for note in other.notes {
            // Of errors, the worst of all shares.
            let same = |own: &&mut String| {
                **own == note || error_share(own).is_some() && error_share(&note).is_some()
            };
            match self.notes.iter_mut().find(same) {
                Some(own) if error_share(&note) > error_share(own) => *own = note,
                Some(_) => {}
                None => self.notes.push(note),
            }
        }
    }

    fn print(&self, name: &str) {
        let verdict = if self.failed == 0 { "ok" } else { "FAILED" };
        println!(
            "{name:<10} {verdict:<6} {:>4} passed {:>3} failed {:>9}",
            self.passed,
            self.failed,
            seconds(self.time)
        );
        for note in &self.notes {
            println!("           {note}");
        }
    }
}

/// The percentage in `worst error: 1.1e-5 forward, 7.5e-6 backward, 67% of what is allowed`.
fn error_share(note: &str) -> Option<u32> {
    let (before, _) = note.strip_prefix("worst error: ")?.split_once('%')?;
    before.rsplit(' ').next()?.parse().ok()
}

/// The number before `what` in `ok. 12 passed; 0 failed; ...`.
fn count(result: &str, what: &str) -> usize {
    result
        .split([';', '.'])
        .filter_map(|part| part.trim().strip_suffix(what))
        .find_map(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        let text = "device: flex on a CPU, f32\n\
                    running 3 tests\n\
                    test a_browser_draws ... ignored\n\
                    test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: FAILED. 3 passed; 2 failed; 0 ignored";
        let tally = Tally::read(text, false);
        assert_eq!((tally.passed, tally.failed), (15, 2));
        let notes = ["device: flex on a CPU, f32", "NOT run: a_browser_draws"];
        assert_eq!(tally.notes, notes);
    }

    #[test]
    fn of_several_errors_the_worst_is_told() {
        let of = |share: u32| Tally {
            notes: vec![format!(
                "worst error: 1e-6 forward, 2e-6 backward, {share}% of what is allowed"
            )],
            ..Tally::default()
        };
        let mut tally = of(12);
        tally.add(of(67));
        tally.add(of(9));
        assert_eq!(tally.notes, of(67).notes);
    }

    #[test]
    fn a_program_that_falls_silently_is_a_failure() {
        assert_eq!(Tally::read("Segmentation fault", false).failed, 1);
        assert_eq!(Tally::read("", true).failed, 1);
        let closed = "test result: ok. 4 passed; 0 failed";
        assert_eq!(Tally::read(closed, true).failed, 0);
        assert_eq!(Tally::read(closed, false).failed, 1);
    }
}
