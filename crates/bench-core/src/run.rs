//! Runs the cases of a comparison, one process each, round after round.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zoo_spec::Dtype;

use crate::case::{Case, Task};
use crate::child::{Limits, watch};
use crate::plan::{Extent, Sampling};
use crate::pytorch::{self, PyTorch, Way};
use crate::record::{CaseId, CaseLine, Line, Outcome, Writer};

/// A measuring program that was built for a backend.
#[derive(Debug, Clone)]
pub struct Program {
    pub backend: String,
    pub executable: PathBuf,
    pub environment: Environment,
}

/// Environment variables of a child process.
pub type Environment = Vec<(&'static str, OsString)>;

/// Everything that is measured in one run.
#[derive(Debug)]
pub struct Comparison {
    pub programs: Vec<Program>,
    /// PyTorch, if it is compared with.
    pub pytorch: Option<PyTorch>,
    /// The cases that every backend runs.
    pub cases: Vec<Case>,
    pub dtype: Dtype,
    /// Threads that each side is given.
    pub threads: usize,
    /// How often each case is run, from its start. Rounds go over all cases in
    /// turn, so that a busy minute of the machine hurts all of them alike.
    pub rounds: usize,
    pub sampling: Sampling,
    /// Time and memory that each process may take.
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// It begins, with so many processes to run.
    Run(usize),
    Begin(&'a CaseId),
    End(&'a CaseLine),
}

struct Job<'a> {
    id: CaseId,
    case: &'a Case,
    by: By<'a>,
}

enum By<'a> {
    Program(&'a Program),
    PyTorch(&'a PyTorch, Way),
}

impl Comparison {
    /// One round of these cases, in f32 on one thread, with no more samples than there must be.
    pub fn new(programs: Vec<Program>, cases: Vec<Case>) -> Self {
        Self {
            programs,
            pytorch: None,
            cases,
            dtype: Dtype::F32,
            threads: 1,
            rounds: 1,
            sampling: Sampling {
                warm_up: Duration::ZERO,
                budget: Duration::from_millis(1),
                patience: Duration::from_millis(1),
            },
            limits: Limits {
                time: Extent::Quick.timeout(),
                memory: None,
            },
        }
    }

    /// Measures everything, and writes each case down as it ends; `watch` is told what happens.
    /// Stops early, with what is done, when `stop` is set.
    pub fn run(
        &self,
        writer: &mut Writer,
        watch: &mut dyn FnMut(Event<'_>),
        stop: &AtomicBool,
    ) -> io::Result<Vec<CaseLine>> {
        let matmul = Case::matmul();
        let mut order = self.jobs(&matmul);
        watch(Event::Run(order.len() * self.rounds));
        let mut lines = Vec::new();
        for round in 1..=self.rounds {
            for job in &order {
                watch(Event::Begin(&job.id));
                let Some(line) = self.measure(job, round, &lines, stop) else {
                    return Ok(lines);
                };
                writer.write(&Line::Case(line.clone()))?;
                watch(Event::End(&line));
                lines.push(line);
                if stop.load(Ordering::Relaxed) {
                    return Ok(lines);
                }
            }
            // Who was first is last the next time.
            order.reverse();
        }
        Ok(lines)
    }

    fn jobs<'a>(&'a self, matmul: &'a Case) -> Vec<Job<'a>> {
        let mut jobs = Vec::new();
        for program in &self.programs {
            jobs.push(self.job(matmul, By::Program(program)));
        }
        for (at, case) in self.cases.iter().enumerate() {
            for program in &self.programs {
                jobs.push(self.job(case, By::Program(program)));
            }
            let Some(pytorch) = &self.pytorch else {
                continue;
            };
            let rest = &self.cases[at + 1..];
            let is_asked_later = rest.iter().any(|other| pytorch::is_same(case, other));
            if is_asked_later || !pytorch::is_asked(case) {
                continue;
            }
            for &way in Way::of(&case.task) {
                jobs.push(self.job(case, By::PyTorch(pytorch, way)));
            }
        }
        jobs
    }

    fn job<'a>(&self, case: &'a Case, by: By<'a>) -> Job<'a> {
        let (backend, subject) = match &by {
            By::Program(program) => (program.backend.as_str(), case.subject()),
            By::PyTorch(_, way) => ("pytorch", way.word()),
        };
        Job {
            id: CaseId {
                backend: backend.to_owned(),
                dtype: self.dtype.word().to_owned(),
                problem: case.name(),
                n: case.n(),
                pass: case.pass,
                subject: subject.to_owned(),
            },
            case,
            by,
        }
    }

    fn measure(
        &self,
        job: &Job<'_>,
        round: usize,
        before: &[CaseLine],
        stop: &AtomicBool,
    ) -> Option<CaseLine> {
        let command = match &job.by {
            By::Program(program) => Ok(self.command(program, job)),
            By::PyTorch(pytorch, way) => pytorch.command(job.case, *way, self.dtype),
        };
        let mut report = match command {
            Ok(mut command) => {
                self.set_environment(&mut command);
                command.args(self.sampling.arguments());
                watch(command, self.limits, stop)?
            }
            Err(error) => Outcome::Failed {
                message: format!("PyTorch was not run: {error}"),
            }
            .into(),
        };
        if let By::PyTorch(..) = &job.by {
            report = pytorch::compared_with_ours(&job.id, job.case, before, report);
        }
        report.work = report.work.or_else(|| Some(job.case.work()));
        Some(CaseLine {
            id: job.id.clone(),
            round,
            minimum_bytes: job.case.minimum_bytes(self.dtype, report.parameters),
            tokens: job.case.tokens(),
            report,
            round_medians: Vec::new(),
        })
    }

    fn command(&self, program: &Program, job: &Job<'_>) -> Command {
        let what = match job.case.task {
            Task::Matmul { .. } | Task::Attention { .. } => "--problem",
            Task::Model { .. } => "--model",
        };
        let mut command = Command::new(&program.executable);
        command
            .args(["--backend", &program.backend])
            .args(["--dtype", self.dtype.word()])
            .args(["--subject", job.case.subject()])
            .args([what, &job.case.name()])
            .args(["--n", &job.case.n().to_string()])
            .args(["--pass", job.case.pass.word()])
            .envs(program.environment.clone());
        if let Some(fault) = job.case.fault {
            command.args(["--fault", fault.word()]);
        }
        command
    }

    fn set_environment(&self, command: &mut Command) {
        // A child's last words are its message, not a backtrace.
        command.env("RUST_BACKTRACE", "0");
        // Every library's own word for how many threads it may use.
        for name in [
            "RAYON_NUM_THREADS",  // flex, ndarray and ours
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
    use super::*;
    use crate::plan::Selection;

    fn comparison(rounds: usize) -> Comparison {
        let program = |backend: &str| Program {
            backend: backend.to_owned(),
            executable: "/nowhere/zoo-bench".into(),
            environment: Vec::new(),
        };
        let programs = ["flex", "ndarray"].map(program).to_vec();
        let cases = Selection::default().plan().expect("cases").cases;
        Comparison {
            rounds,
            ..Comparison::new(programs, cases)
        }
    }

    fn run(comparison: &Comparison, stop: bool) -> (Vec<CaseLine>, Vec<String>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = crate::for_tests::run_info();
        let mut writer = Writer::create(&folder.path().join("run"), &run).expect("a new file");
        let mut order = Vec::new();
        let mut watch = |event: Event<'_>| {
            if let Event::Begin(id) = event {
                order.push(format!("{}/{}", id.backend, id.subject));
            }
        };
        let lines = comparison
            .run(&mut writer, &mut watch, &AtomicBool::new(stop))
            .expect("the disk takes it");
        (lines, order)
    }

    #[test]
    fn rounds_take_turns_and_failures_do_not_end_the_run() {
        let comparison = comparison(2);
        let (lines, order) = run(&comparison, false);
        let per_round = 2 * (1 + comparison.cases.len());
        assert_eq!(lines.len(), 2 * per_round);
        assert_eq!(order[..2], ["flex/matmul", "ndarray/matmul"]);
        let mut second: Vec<_> = order[per_round..].to_vec();
        second.reverse();
        assert_eq!(second, order[..per_round]);
        let failed = |line: &CaseLine| matches!(line.report.outcome, Outcome::Failed { .. });
        assert!(lines.iter().all(failed));
    }

    #[test]
    fn a_stop_keeps_what_is_done() {
        let (lines, _) = run(&comparison(3), true);
        assert!(lines.len() <= 1);
    }
}
