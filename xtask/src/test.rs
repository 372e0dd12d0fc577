//! `cargo xtask test`: builds the tests with all requested backends and runs them on each.

use std::collections::VecDeque;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::backends::{Backends, Environment};
use crate::build::{self, Built};
use crate::check::Lint;
use crate::{doctor, packages, paths, print, program};

#[derive(Args)]
pub(crate) struct Test {
    #[command(flatten)]
    pub(crate) backends: Backends,

    /// Run only tests whose name contains FILTER
    pub(crate) filter: Option<String>,

    /// Also test hub.py (installs the Python package `datasets` into the cache)
    #[arg(long)]
    pub(crate) hub: bool,

    /// Also test outside/, a project outside the workspace (compiles Burn again)
    #[arg(long)]
    pub(crate) outside: bool,

    /// Also run clippy and rustdoc, while tests run
    #[arg(long)]
    pub(crate) lints: bool,

    /// Write cargo's build timing report (cargo --timings)
    #[arg(long)]
    pub(crate) timings: bool,
}

impl Test {
    pub(crate) fn run(&self) -> Result<()> {
        let environment = self.backends.prepare()?;
        let ids = self.backends.ids().iter();
        let names: Vec<_> = ids.map(ToString::to_string).collect();
        print(&format!("building the tests for {}\n", names.join(", ")));
        let start = Instant::now();
        let mut programs = self.build(&environment)?;
        print(&format!("built in {}\n\n", seconds(start.elapsed())));

        programs.retain(|program| program.test);
        let (on_device, without_device): (Vec<_>, Vec<_>) =
            programs.into_iter().partition(Built::uses_device);

        let groups = self.groups(&on_device, &without_device, &environment)?;
        let total = self.run_groups(groups)?;
        let Tally { passed, failed, .. } = total;
        // On its own line, for people and scripts.
        print(&format!("\n{passed} passed, {failed} failed\n"));
        ensure!(failed == 0, "{failed} tests failed");
        let filter = self.filter.as_deref().unwrap_or_default();
        ensure!(passed > 0, "no test name contains \"{filter}\"");
        Ok(())
    }

    fn build(&self, environment: &Environment) -> Result<Vec<Built>> {
        let mut programs = build::cargo_build(&packages::light_tests(), &Environment::new())?;
        if self.outside {
            programs.extend(build_outside()?);
        }

        let mut arguments = packages::with_burn("test", &self.backends.features());
        arguments.push_str(" --no-run");
        if self.timings {
            arguments.push_str(" --timings");
        }
        let heavy = build::cargo_build(&arguments, environment)?;
        program::keep(doctor::PROBE, &heavy, &self.backends.features())?;
        programs.extend(heavy);
        Ok(programs)
    }

    /// Lints, if requested, and doc tests, one after the other as cargo would run them anyway.
    fn run_cargo(&self, environment: &Environment) -> Result<Tally> {
        let mut total = Tally::default();
        for lint in Lint::ALL.into_iter().filter(|_| self.lints) {
            let (arguments, environment) = lint.command(&self.backends, environment);
            let output = build::cargo_output(&arguments, &environment)?;
            if !output.status.success() {
                total.failed += 1;
                let stderr = String::from_utf8_lossy(&output.stderr);
                print(&format!("---- cargo {arguments}\n{stderr}\n"));
            }
        }
        total.add(self.doc_tests(environment)?);
        Ok(total)
    }

    fn doc_tests(&self, environment: &Environment) -> Result<Tally> {
        let start = Instant::now();
        let features = self.backends.features();
        let arguments = packages::with_burn("test", &features);
        let mut environment = environment.clone();
        // Doc tests use Burn's default device, which would be a GPU if there is one.
        if features.contains(&"flex") {
            environment.push(("BURN_DEVICE", "flex".into()));
        }
        let output = build::cargo_output(&format!("{arguments} --doc"), &environment)?;
        Ok(Tally::from_output("doc tests", &output, start))
    }

    /// The tests without a device, then those of each device.
    fn groups<'a>(
        &self,
        on_device: &'a [Built],
        without_device: &'a [Built],
        environment: &Environment,
    ) -> Result<Vec<Group<'a>>> {
        let mut notes = Vec::new();
        for (is_run, name) in [
            (self.hub, "hub.py with the package datasets (--hub)"),
            (self.outside, "a project outside the workspace (--outside)"),
            (self.lints, "clippy and rustdoc (--lints)"),
        ] {
            if !is_run {
                notes.push(format!("NOT run: {name}"));
            }
        }
        let mut hub_environment = environment.clone();
        if self.hub {
            hub_environment.push(("ZOO_HUB", paths::cache()?.join("hub").into()));
        }
        let mut jobs = Vec::new();
        // The longest, on one core for most of the time.
        if self.filter.is_none() {
            jobs.push((Job::Cargo, environment.clone()));
        }
        for program in without_device {
            jobs.push((Job::Program(program), hub_environment.clone()));
        }
        let mut groups = vec![Group::new("no device", jobs)];
        groups[0].tally.notes = notes;
        for id in self.backends.ids() {
            let mut environment = environment.clone();
            environment.push(("ZOO_BACKEND", id.to_string().into()));
            groups.push(Group::new(
                &id.to_string(),
                jobs_on_device(on_device, &environment),
            ));
        }
        Ok(groups)
    }

    /// Runs the jobs of all groups in order, [`workers`] in parallel, and prints the result of a
    /// group when its last job ends. A group starts while the last jobs of the previous one run.
    fn run_groups(&self, mut groups: Vec<Group<'_>>) -> Result<Tally> {
        let mut queue = VecDeque::new();
        for (i, group) in groups.iter_mut().enumerate() {
            queue.extend(group.jobs.drain(..).map(|job| (i, job)));
        }
        let (queue, groups) = (Mutex::new(queue), Mutex::new(groups));
        let times = Mutex::new(Vec::new());
        let next = || queue.lock().expect("no panic").pop_front();
        let work = || -> Result<()> {
            while let Some((i, (job, environment))) = next() {
                let start = Instant::now();
                let tally = match job {
                    Job::Program(program) => self.execute(program, &environment)?,
                    Job::Cargo => self.run_cargo(&environment)?,
                };
                let time = (start.elapsed(), job_name(&job, &environment));
                times.lock().expect("no panic").push(time);
                groups.lock().expect("no panic")[i].add(tally, start);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers()).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("no panic"))
        })?;
        print_slowest(times.into_inner().expect("no panic"));
        let mut total = Tally::default();
        for group in groups.into_inner().expect("no panic") {
            total.add(group.tally);
        }
        Ok(total)
    }

    fn execute(&self, program: &Built, environment: &Environment) -> Result<Tally> {
        let start = Instant::now();
        let mut command = Command::new(&program.executable);
        command.args(&self.filter).current_dir(&program.package);
        build::set_environment(&mut command, environment);
        let output = command.output();
        let output =
            output.with_context(|| format!("cannot start {}", program.executable.display()))?;
        Ok(Tally::from_output(&program.name(), &output, start))
    }
}

/// Builds the tests of `outside/`, a project that uses the crates from outside the workspace, with
/// the workspace's lock file. It has its own features and target directory.
fn build_outside() -> Result<Vec<Built>> {
    let workspace = paths::workspace();
    let project = workspace.join("outside");
    std::fs::copy(workspace.join("Cargo.lock"), project.join("Cargo.lock"))
        .with_context(|| format!("cannot write to {}", project.display()))?;
    let target = paths::target().join("outside");
    let environment = vec![("CARGO_TARGET_DIR", target.into_os_string())];
    let arguments = "test --no-run --quiet --manifest-path outside/Cargo.toml";
    build::cargo_build(arguments, &environment)
}

/// Cores, up to eight: most test programs wait in one thread for the device, or for a driver that
/// compiles kernels one after the other. Each opens the device, so more would need too much of its
/// memory.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8))
}

/// The number of test programs that run in parallel: one more than cores, because some wait for
/// other processes, signals and timeouts.
fn workers() -> usize {
    (cores() + 1).min(8)
}

enum Job<'a> {
    Program(&'a Built),
    /// Doc tests and lints.
    Cargo,
}

fn job_name(job: &Job<'_>, environment: &Environment) -> String {
    let variables = ["ZOO_BACKEND", "ZOO_SHARD"].into_iter();
    let values = variables.filter_map(|name| environment.iter().find(|(key, _)| *key == name));
    let values = values.map(|(_, value)| format!(" {}", value.display()));
    let name = match job {
        Job::Program(program) => program.name(),
        Job::Cargo => "cargo".to_owned(),
    };
    name + &values.collect::<String>()
}

/// Prints which jobs determine how long the tests take.
fn print_slowest(mut times: Vec<(Duration, String)>) {
    const COUNT: usize = 8;
    times.sort_by(|(a, _), (b, _)| b.cmp(a));
    print("\nslowest programs\n");
    for (time, name) in times.iter().take(COUNT) {
        print(&format!("{:>10} {name}\n", seconds(*time)));
    }
}

/// The test programs on a device, some of them split between the cores.
fn jobs_on_device<'a>(
    programs: &'a [Built],
    environment: &Environment,
) -> Vec<(Job<'a>, Environment)> {
    let (sharded, whole): (Vec<_>, Vec<_>) = programs
        .iter()
        .partition(|program| program.can_be_sharded());
    // Shards are short, so they come last.
    let whole = whole.into_iter().rev();
    let mut jobs: Vec<_> = whole
        .map(|program| (Job::Program(program), environment.clone()))
        .collect();
    let count = cores();
    for program in sharded {
        for shard in 1..=count {
            let mut environment = environment.clone();
            environment.push(("ZOO_SHARD", format!("{shard}/{count}").into()));
            jobs.push((Job::Program(program), environment));
        }
    }
    jobs
}

/// Jobs whose results are printed together.
struct Group<'a> {
    name: String,
    jobs: Vec<(Job<'a>, Environment)>,
    /// Jobs that have not ended.
    remaining: usize,
    /// Of its first job.
    start: Option<Instant>,
    tally: Tally,
}

impl<'a> Group<'a> {
    fn new(name: &str, jobs: Vec<(Job<'a>, Environment)>) -> Self {
        Self {
            name: name.to_owned(),
            remaining: jobs.len(),
            jobs,
            start: None,
            tally: Tally::default(),
        }
    }

    /// Adds the result of a job, and prints the group's if it was the last.
    fn add(&mut self, tally: Tally, start: Instant) {
        self.tally.add(tally);
        let start = self.start.map_or(start, |first| first.min(start));
        self.start = Some(start);
        self.remaining -= 1;
        if self.remaining == 0 {
            self.tally.time = start.elapsed();
            self.tally.print(&self.name);
        }
    }
}

impl Built {
    /// Integration tests of packages with backend features open a device; unit tests do not.
    fn uses_device(&self) -> bool {
        let mut folders = ["conformance", "backend", "benches", "examples", "train"].iter();
        self.kind == "test" && folders.any(|folder| self.package.ends_with(folder))
    }

    /// Whether its tests can be split between processes with `ZOO_SHARD`.
    fn can_be_sharded(&self) -> bool {
        self.package.ends_with("conformance")
    }

    fn name(&self) -> String {
        let workspace = paths::workspace();
        let package = self.package.strip_prefix(&workspace);
        let package = package.unwrap_or(&self.package).display();
        format!("{package}: {} {}", self.kind, self.target)
    }
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    /// Whether a program crashed: it failed without a failed test.
    crashed: bool,
    time: Duration,
    /// Lines to print: the device, the largest errors, ignored tests.
    notes: Vec<String>,
}

impl Tally {
    /// Parses the output of a test program, and prints it if it failed.
    fn from_output(name: &str, output: &Output, start: Instant) -> Self {
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let mut tally = Self::parse(&stdout, output.status.success());
        tally.time = start.elapsed();
        if tally.failed > 0 {
            print(&format!("---- {name} ({})\n{stdout}\n", output.status));
            // Failed tests are reported on stdout. stderr has expected panics, too, and is needed
            // only after a crash.
            if tally.crashed {
                print(&format!("{stderr}\n"));
            }
        }
        tally
    }

    /// Parses the summary lines of a test program.
    fn parse(text: &str, success: bool) -> Self {
        let mut tally = Self::default();
        for line in text.lines() {
            if let Some(result) = line.strip_prefix("test result: ") {
                tally.passed += count(result, "passed");
                tally.failed += count(result, "failed");
            } else if line.starts_with("device: ") || line.starts_with("largest error") {
                tally.notes.push(line.to_owned());
            } else if let Some((name, _)) = line.split_once(" ... ignored") {
                let name = name.trim_start_matches("test ").trim_end();
                tally.notes.push(format!("NOT run: {name}"));
            }
        }
        // A crash, or no summary at all, counts as one failure.
        tally.crashed = tally.failed == 0 && !(success && text.contains("test result: "));
        tally.failed += usize::from(tally.crashed);
        tally
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.time += other.time;
        for note in other.notes {
            // Of the errors of all shards, the largest in each precision.
            let is_same = |own: &&mut String| match (error(own), error(&note)) {
                (Some((own, _)), Some((name, _))) => own == name,
                _ => **own == note,
            };
            match self.notes.iter_mut().find(is_same) {
                Some(own) if error(&note) > error(own) => *own = note,
                Some(_) => {}
                None => self.notes.push(note),
            }
        }
    }

    fn print(&self, name: &str) {
        let verdict = if self.failed == 0 { "ok" } else { "FAILED" };
        let (passed, failed, time) = (self.passed, self.failed, seconds(self.time));
        print(&format!(
            "{name:<10} {verdict:<6} {passed:>4} passed {failed:>3} failed {time:>9}\n"
        ));
        for note in &self.notes {
            print(&format!("           {note}\n"));
        }
    }
}

/// Name and percentage of `largest error: 1.1e-5 forward, 7.5e-6 backward, 67% of the tolerance`.
fn error(note: &str) -> Option<(&str, u32)> {
    let (name, errors) = note.split_once(": ")?;
    let (before, _) = errors.split_once('%')?;
    let percent = before.rsplit(' ').next()?.parse().ok()?;
    name.starts_with("largest error").then_some((name, percent))
}

/// The number before `label` in `ok. 12 passed; 0 failed; ...`.
fn count(result: &str, label: &str) -> usize {
    result
        .split([';', '.'])
        .filter_map(|part| part.trim().strip_suffix(label))
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
    fn summaries_are_counted() {
        let text = "device: flex on a CPU, f32\n\
                    running 3 tests\n\
                    test a_browser_draws ... ignored\n\
                    test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: FAILED. 3 passed; 2 failed; 0 ignored";
        let tally = Tally::parse(text, false);
        assert_eq!((tally.passed, tally.failed), (15, 2));
        let notes = ["device: flex on a CPU, f32", "NOT run: a_browser_draws"];
        assert_eq!(tally.notes, notes);
    }

    #[test]
    fn largest_error_of_each_precision_is_reported() {
        let tally_of = |percent: u32, half: u32| {
            let line = |name: &str, percent: u32| {
                format!("{name}: 1e-6 forward, 2e-6 backward, {percent}% of the tolerance\n")
            };
            let half = line("largest error in half precision", half);
            Tally::parse(&(line("largest error", percent) + &half), true)
        };
        let mut tally = tally_of(12, 97);
        tally.add(tally_of(67, 3));
        tally.add(tally_of(9, 4));
        assert_eq!(tally.notes, tally_of(67, 97).notes);
        assert_eq!(tally.notes.len(), 2);
    }

    #[test]
    fn crashes_count_as_failures() {
        assert_eq!(Tally::parse("Segmentation fault", false).failed, 1);
        assert_eq!(Tally::parse("", true).failed, 1);
        let summary = "test result: ok. 4 passed; 0 failed";
        assert_eq!(Tally::parse(summary, true).failed, 0);
        assert_eq!(Tally::parse(summary, false).failed, 1);
    }
}
