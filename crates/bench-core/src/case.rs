//! Benchmark cases: one pass of a matmul, an attention mechanism or a model.

use anyhow::{Context, Result};
use zoo_oracle::{Problem, Requirement, bench_only, catalogue, find};
use zoo_spec::{Mechanism, MechanismConfig, UnknownName, names};

use crate::burn;
use crate::model::Setup;

names! {
    #[derive(PartialOrd, Ord, clap::ValueEnum)]
    pub enum Pass: "pass" {
        Forward = "forward",
        /// Forward and backward pass with gradients of query, key and value; for a model, a
        /// training step including the optimizer.
        Train = "train",
        /// One decoding step with a filled cache.
        Decode = "decode",
        Generate = "generate",
    }
}

names! {
    /// A fault injected into a case by tests.
    pub enum Fault: "fault" {
        Hang = "hang",
        /// Allocates until it is stopped.
        Exhaust = "exhaust",
        Wrong = "wrong",
        /// Scales the results of a model by 1.01.
        Inexact = "inexact",
        Crash = "crash",
    }
}

/// A benchmark case, independent of the backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub task: Task,
    pub pass: Pass,
    pub fault: Option<Fault>,
}

pub fn parse_length(text: &str) -> Result<usize, String> {
    // The FLOPs of attention, quadratic in the length, do not overflow.
    parse_count(text, 1 << 24)
}

/// Parses an integer from 1 to `max` from the command line.
pub fn parse_count(text: &str, max: usize) -> Result<usize, String> {
    let count = text.trim().parse().ok();
    let count = count.filter(|count| (1..=max).contains(count));
    count.ok_or_else(|| format!("expected an integer from 1 to {max}"))
}

/// Large enough for full speed on 2 cores, and still about 10 ms.
pub const MATMUL_SIZE: usize = 1024;

#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Product of two square matrices: the reference of the column `% of matmul`.
    Matmul,
    Attention {
        mechanism: Mechanism,
        /// The problem, with the number of key/value heads of the mechanism.
        problem: Box<Problem>,
    },
    /// Burn's own attention.
    BurnAttention {
        problem: Box<Problem>,
    },
    Model {
        setup: Setup,
        attention: Mechanism,
    },
}

impl Case {
    fn new(task: Task, pass: Pass) -> Self {
        Self {
            task,
            pass,
            fault: None,
        }
    }

    pub fn matmul() -> Self {
        Self::new(Task::Matmul, Pass::Forward)
    }

    pub fn attention(mechanism: Mechanism, mut problem: Problem, pass: Pass) -> Self {
        if let Some(kv_heads) = MechanismConfig::from(mechanism).kv_heads(problem.heads) {
            problem.kv_heads = kv_heads;
        }
        let problem = Box::new(problem);
        Self::new(Task::Attention { mechanism, problem }, pass)
    }

    pub fn burn_attention(problem: Problem, pass: Pass) -> Self {
        let problem = Box::new(problem);
        Self::new(Task::BurnAttention { problem }, pass)
    }

    pub fn model(setup: Setup, attention: Mechanism, pass: Pass) -> Self {
        Self::new(Task::Model { setup, attention }, pass)
    }

    pub fn subject(&self) -> &'static str {
        match &self.task {
            Task::Matmul => "matmul",
            Task::Attention { mechanism, .. } => mechanism.name(),
            Task::BurnAttention { .. } => burn::SUBJECT,
            Task::Model { attention, .. } => attention.name(),
        }
    }

    pub fn name(&self) -> String {
        match &self.task {
            Task::Matmul => "matmul".to_owned(),
            Task::Attention { problem, .. } | Task::BurnAttention { problem } => {
                problem.name.to_owned()
            }
            Task::Model { setup, .. } => setup.name(),
        }
    }

    /// Number of keys, or sequence length of a model.
    pub fn n(&self) -> usize {
        match &self.task {
            Task::Matmul => MATMUL_SIZE,
            Task::Attention { problem, .. } | Task::BurnAttention { problem } => problem.seq_k,
            Task::Model { setup, .. } => setup.n,
        }
    }

    pub fn tokens(&self) -> Option<usize> {
        match &self.task {
            Task::Matmul | Task::Attention { .. } | Task::BurnAttention { .. } => None,
            Task::Model { setup, .. } => Some(setup.tokens(self.pass)),
        }
    }

    /// Why the case cannot run, if the mechanism does not support the problem or the pass.
    pub fn unsupported_reason(&self) -> Option<String> {
        let reason = match (&self.task, self.pass) {
            (Task::Matmul, _) => None,
            (Task::Model { setup, attention }, pass) => {
                return setup.unsupported_reason(*attention, pass);
            }
            (Task::Attention { .. } | Task::BurnAttention { .. }, Pass::Generate) => {
                Some("generate is for models only")
            }
            (Task::Attention { problem, .. } | Task::BurnAttention { problem }, Pass::Decode)
                if problem.seq_q != 1 =>
            {
                Some("decode needs one query, as in decode-step")
            }
            (Task::BurnAttention { problem }, _) => return burn::unsupported_reason(problem),
            (Task::Attention { mechanism, problem }, pass) => {
                let capabilities = MechanismConfig::from(*mechanism).capabilities();
                let longest = problem.seq_q.max(problem.seq_k);
                if let Some(limit) = capabilities.max_length.filter(|limit| longest > *limit) {
                    return Some(format!("its `length` is {limit} by default"));
                }
                let mut inputs = Requirement::ALL.iter().filter(|input| input.is_in(problem));
                match capabilities.decoding {
                    Err(reason) if pass == Pass::Decode => Some(reason),
                    _ => inputs.find_map(|input| input.unsupported_reason(*mechanism)),
                }
            }
        };
        reason.map(str::to_owned)
    }
}

/// Indices of the queries that are checked against the oracle: all, or a sample if there are many.
pub fn queries_to_check(problem: &Problem) -> Vec<usize> {
    // The oracle takes about 1 us per query-key pair.
    const PAIRS: usize = 1 << 20;
    const SAMPLE: usize = 64;
    if problem.queries() * problem.seq_k <= PAIRS {
        (0..problem.queries()).collect()
    } else {
        problem.sample_queries(SAMPLE)
    }
}

/// The problem of the catalogue with its own number of key and value heads.
pub(crate) fn own_problem(of_mechanism: &Problem) -> Problem {
    let own = problem(of_mechanism.name, Some(of_mechanism.seq_k));
    own.unwrap_or_else(|_| of_mechanism.clone())
}

/// Looks up a problem in the catalogue, with sequence length `n` if given.
pub fn problem(name: &str, n: Option<usize>) -> Result<Problem> {
    let found = find(name).ok_or_else(|| {
        let known = catalogue().into_iter().chain(bench_only());
        UnknownName::new("problem", name, known.map(|problem| problem.name))
    })?;
    match n {
        Some(n) if n != found.seq_k => found.at_length(n).with_context(|| {
            format!(
                "problem \"{name}\" has a fixed sequence length and cannot be measured at {n}\n  \
                 help: omit --seq, or use layer, layer-causal or decode-step"
            )
        }),
        _ => Ok(found),
    }
}
