//! Benchmark runs: one process per case and round.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zoo_spec::Dtype;

use crate::burn;
use crate::case::{Case, Task};
use crate::child::{Limits, run_with_limits};
use crate::library::{Library, Rival};
use crate::plan::{Extent, Sampling};
use crate::pytorch::{self, PyTorch};
use crate::record::{CaseId, CaseLine, Line, Outcome, Writer};

#[derive(Debug, Clone)]
pub struct Program {
    pub backend: String,
    pub executable: PathBuf,
    pub environment: Environment,
}

pub type Environment = Vec<(&'static str, OsString)>;

#[derive(Debug)]
pub struct Comparison {
    pub programs: Vec<Program>,
    /// Other libraries, measured after each case of ours.
    pub rivals: Vec<Rival>,
    pub cases: Vec<Case>,
    pub dtype: Dtype,
    pub threads: usize,
    /// Number of processes per case. Each round runs all cases, so that temporary load on the
    /// machine affects all of them.
    pub rounds: usize,
    pub sampling: Sampling,
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Start of the run, with the total number of processes.
    Run(usize),
    Begin(&'a CaseId),
    End(&'a CaseLine),
}

struct Job<'a> {
    id: CaseId,
    case: Case,
    runner: Runner<'a>,
}

#[derive(Clone, Copy)]
enum Runner<'a> {
    Program(&'a Program),
    PyTorch(&'a PyTorch),
}

impl Comparison {
    /// One round in f32 on one thread with minimal sampling.
    pub fn new(programs: Vec<Program>, cases: Vec<Case>) -> Self {
        Self {
            programs,
            rivals: Vec::new(),
            cases,
            dtype: Dtype::F32,
            threads: 1,
            rounds: 1,
            sampling: Sampling {
                warm_up: Duration::ZERO,
                min_time: Duration::from_millis(1),
                max_time: Duration::from_millis(1),
            },
            limits: Limits {
                time: Extent::Quick.timeout(),
                memory: None,
            },
        }
    }

    /// Measures all cases, writes each result, and reports progress to `on_event`. Returns early
    /// with the results so far when `stop` is set.
    pub fn run(
        &self,
        writer: &mut Writer,
        on_event: &mut dyn FnMut(Event<'_>),
        stop: &AtomicBool,
    ) -> io::Result<Vec<CaseLine>> {
        let mut jobs = self.jobs();
        on_event(Event::Run(jobs.len() * self.rounds));
        let mut lines = Vec::new();
        for round in 1..=self.rounds {
            for job in &jobs {
                on_event(Event::Begin(&job.id));
                let Some(line) = self.measure(job, round, &lines, stop) else {
                    return Ok(lines);
                };
                writer.write(&Line::Case(line.clone()))?;
                on_event(Event::End(&line));
                lines.push(line);
                if stop.load(Ordering::Relaxed) {
                    return Ok(lines);
                }
            }
            // Alternate the order, so that no case always runs first.
            jobs.reverse();
        }
        Ok(lines)
    }

    fn jobs(&self) -> Vec<Job<'_>> {
        let mut jobs = Vec::new();
        let mut add = |case: Case, runner| {
            let (backend, subject) = match runner {
                Runner::Program(program) => (program.backend.as_str(), case.subject()),
                Runner::PyTorch(_) => (Library::PyTorch.name(), pytorch::subject(&case.task)),
            };
            let id = CaseId {
                backend: backend.to_owned(),
                dtype: self.dtype.name().to_owned(),
                problem: case.name(),
                n: case.n(),
                pass: case.pass,
                subject: subject.to_owned(),
            };
            jobs.push(Job { id, case, runner });
        };
        for program in &self.programs {
            add(Case::matmul(), Runner::Program(program));
        }
        for (i, case) in self.cases.iter().enumerate() {
            for program in &self.programs {
                add(case.clone(), Runner::Program(program));
            }
            for rival in &self.rivals {
                for (case, runner) in self.cases_after(i, rival) {
                    add(case, runner);
                }
            }
        }
        jobs
    }

    /// The cases of another library that run after `self.cases[i]`.
    fn cases_after<'a>(&'a self, i: usize, rival: &'a Rival) -> Vec<(Case, Runner<'a>)> {
        match rival {
            Rival::PyTorch(pytorch) => {
                let cases = pytorch::cases_after(&self.cases, i).into_iter();
                cases.map(|case| (case, Runner::PyTorch(pytorch))).collect()
            }
            Rival::Burn => {
                let case = burn::case_after(&self.cases, i);
                let on = |program| Some((case.clone()?, Runner::Program(program)));
                self.programs.iter().filter_map(on).collect()
            }
        }
    }

    fn measure(
        &self,
        job: &Job<'_>,
        round: usize,
        before: &[CaseLine],
        stop: &AtomicBool,
    ) -> Option<CaseLine> {
        let command = match job.runner {
            Runner::Program(program) => Ok(self.command(program, &job.case)),
            Runner::PyTorch(pytorch) => pytorch.command(&job.case, self.dtype),
        };
        let mut report = match command {
            Ok(mut command) => {
                self.set_environment(&mut command);
                command.args(self.sampling.arguments());
                run_with_limits(command, self.limits, stop)?
            }
            Err(error) => {
                let message = format!("cannot run PyTorch: {error}");
                Outcome::Failed { message }.into()
            }
        };
        if let Runner::PyTorch(_) = job.runner {
            report = pytorch::with_flops_of_ours(&job.id, &job.case, before, report);
        }
        report.work = report.work.or_else(|| Some(job.case.flops()));
        Some(CaseLine {
            id: job.id.clone(),
            round,
            minimum_bytes: job.case.minimum_bytes(self.dtype, report.parameters),
            tokens: job.case.tokens(),
            report,
            round_medians: Vec::new(),
        })
    }

    fn command(&self, program: &Program, case: &Case) -> Command {
        let flag = match case.task {
            Task::Matmul | Task::Attention { .. } | Task::BurnAttention { .. } => "--problem",
            Task::Model { .. } => "--model",
        };
        let mut command = Command::new(&program.executable);
        command
            .args(["--backend", &program.backend])
            .args(["--dtype", self.dtype.name()])
            .args(["--mechanism", case.subject()])
            .args([flag, &case.name()])
            .args(["--seq", &case.n().to_string()])
            .args(["--pass", case.pass.name()])
            .envs(program.environment.clone());
        if let Some(fault) = case.fault {
            command.args(["--fault", fault.name()]);
        }
        command
    }

    fn set_environment(&self, command: &mut Command) {
        // The last line of stderr is reported: it must be the message, not a backtrace.
        command.env("RUST_BACKTRACE", "0");
        for name in [
            "RAYON_NUM_THREADS",  // flex, ndarray and our kernels
            "MATMUL_NUM_THREADS", // ndarray's matmul
            "OMP_NUM_THREADS",    // LibTorch and PyTorch
            "MKL_NUM_THREADS",    // their matmul
            "LP_NUM_THREADS",     // the software Vulkan adapter
        ] {
            command.env(name, self.threads.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::plan::Selection;

    /// Two programs that do not exist.
    fn programs() -> Vec<Program> {
        let program = |backend: &str| Program {
            backend: backend.to_owned(),
            executable: "/nowhere/zoo-bench".into(),
            environment: Vec::new(),
        };
        ["flex", "ndarray"].map(program).to_vec()
    }

    /// The lines of two rounds.
    fn run(stop: bool) -> Vec<CaseLine> {
        let comparison = Comparison {
            rounds: 2,
            ..Comparison::new(
                programs(),
                Selection::default().plan().expect("cases").cases,
            )
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = crate::test_utils::run_info();
        let mut writer = Writer::create(&folder.path().join("run"), &run).expect("a new file");
        let lines = comparison.run(&mut writer, &mut |_| {}, &AtomicBool::new(stop));
        lines.expect("writable")
    }

    #[test]
    fn rounds_alternate_and_failures_do_not_end_the_run() {
        let lines = run(false);
        let cases = Selection::default().plan().expect("cases").cases;
        let per_round = 2 * (1 + cases.len());
        assert_eq!(lines.len(), 2 * per_round);
        let ids: Vec<&CaseId> = lines.iter().map(|line| &line.id).collect();
        for (id, backend) in ids.iter().zip(["flex", "ndarray"]) {
            assert_eq!((&*id.backend, &*id.subject), (backend, "matmul"));
        }
        assert!(ids[per_round..].iter().rev().eq(&ids[..per_round]));
        let failed = |line: &CaseLine| matches!(line.report.outcome, Outcome::Failed { .. });
        assert!(lines.iter().all(failed));
    }

    /// Burn's attention runs once for each problem and pass, on each backend.
    #[test]
    fn burn_runs_in_the_program_of_each_backend() {
        let flags = "--mechanism flash,standard --problem layer --pass forward --seq 256";
        let comparison = Comparison {
            rivals: vec![Rival::Burn],
            ..Comparison::new(
                programs(),
                Selection::parse(flags)
                    .expect("flags")
                    .plan()
                    .expect("cases")
                    .cases,
            )
        };
        let jobs = comparison.jobs();
        let names = jobs
            .iter()
            .map(|job| format!("{} {}", job.id.backend, job.id.subject));
        let expected = [
            "flex matmul",
            "ndarray matmul",
            "flex flash",
            "ndarray flash",
            "flex standard",
            "ndarray standard",
            "flex burn-attention",
            "ndarray burn-attention",
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let Runner::Program(program) = jobs[6].runner else {
            panic!("not a program")
        };
        let command = comparison.command(program, &jobs[6].case);
        let arguments: Vec<&OsStr> = command.get_args().collect();
        for pair in [
            ["--mechanism", "burn-attention"],
            ["--problem", "layer"],
            ["--seq", "256"],
        ] {
            assert!(
                arguments.windows(2).any(|found| found == pair),
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn stop_ends_the_run() {
        assert!(run(true).len() <= 1);
    }
}
