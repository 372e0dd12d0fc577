//! What is measured: a matmul, an attention or a model, in one pass.

use anyhow::{Context, Result};
use zoo_oracle::{Input, Problem, catalogue, find, only_measured};
use zoo_spec::{Mechanism, MechanismConfig, UnknownWord, words};

use crate::model::Setup;

words! {
    /// How far a case goes.
    #[derive(PartialOrd, Ord, clap::ValueEnum)]
    pub enum Pass: "pass" {
        /// The result alone.
        Forward = "forward",
        /// The result, and the gradients with respect to query, key and value; of a model, with
        /// respect to its parameters, and an optimizer step.
        Train = "train",
        /// The result for one position more, with the cached state of those before.
        Decode = "decode",
        /// Of a model: token after token, the best each time.
        Generate = "generate",
    }
}

words! {
    /// A case that misbehaves on purpose, so that tests can show what becomes of one.
    pub enum Fault: "fault" {
        Hang = "hang",
        /// Takes all the memory there is.
        Exhaust = "exhaust",
        Wrong = "wrong",
        /// A model whose results are one percent off.
        Inexact = "inexact",
        Crash = "crash",
    }
}

/// One case, whichever backend runs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub task: Task,
    pub pass: Pass,
    /// How it misbehaves, in a test.
    pub fault: Option<Fault>,
}

/// The longest sequence that is measured: the work of attention over it, by its square, can still
/// be counted.
pub const MOST_LENGTH: usize = 1 << 24;

/// Reads a length of a command line.
pub fn length(text: &str) -> Result<usize, String> {
    count(text, MOST_LENGTH)
}

/// Reads a whole number of a command line, from 1 to `most`.
pub fn count(text: &str, most: usize) -> Result<usize, String> {
    let number = text.trim().parse().ok();
    let number = number.filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("it must be a whole number from 1 to {most}"))
}

#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// A product of two square matrices: the rate that others are compared with.
    Matmul { side: usize },
    /// A mechanism on a problem of the catalogue.
    Attention {
        mechanism: Mechanism,
        /// The problem, with as many key and value heads as the mechanism has.
        problem: Box<Problem>,
    },
    /// A model with a mechanism for its attention.
    Model { setup: Setup, attention: Mechanism },
}

impl Case {
    fn new(task: Task, pass: Pass) -> Self {
        let fault = None;
        Self { task, pass, fault }
    }

    /// The matmul whose rate others are compared with.
    pub fn matmul() -> Self {
        // Large enough for full speed on 2 cores, and still a hundredth of a second.
        Self::new(Task::Matmul { side: 1024 }, Pass::Forward)
    }

    pub fn attention(mechanism: Mechanism, mut problem: Problem, pass: Pass) -> Self {
        if let Some(kv_heads) = MechanismConfig::from(mechanism).kv_heads(problem.heads) {
            problem.kv_heads = kv_heads;
        }
        let problem = Box::new(problem);
        Self::new(Task::Attention { mechanism, problem }, pass)
    }

    pub fn model(setup: Setup, attention: Mechanism, pass: Pass) -> Self {
        Self::new(Task::Model { setup, attention }, pass)
    }

    /// What computes it, in a word.
    pub fn subject(&self) -> &'static str {
        match &self.task {
            Task::Matmul { .. } => "matmul",
            Task::Attention { mechanism, .. } => mechanism.word(),
            Task::Model { attention, .. } => attention.word(),
        }
    }

    /// The problem's name, or the model's.
    pub fn name(&self) -> String {
        match &self.task {
            Task::Matmul { .. } => "matmul".to_owned(),
            Task::Attention { problem, .. } => problem.name.to_owned(),
            Task::Model { setup, .. } => setup.name(),
        }
    }

    /// Its length: keys, or positions of a sequence.
    pub fn n(&self) -> usize {
        match &self.task {
            Task::Matmul { side } => *side,
            Task::Attention { problem, .. } => problem.seq_k,
            Task::Model { setup, .. } => setup.n,
        }
    }

    /// Tokens of a pass, of a model.
    pub fn tokens(&self) -> Option<usize> {
        match &self.task {
            Task::Matmul { .. } | Task::Attention { .. } => None,
            Task::Model { setup, .. } => Some(setup.tokens(self.pass)),
        }
    }

    /// Why there is no such case, if there is none: the mechanism does not accept its problem, or
    /// does not have the pass.
    pub fn refusal(&self) -> Option<String> {
        let reason = match (&self.task, self.pass) {
            (Task::Matmul { .. }, Pass::Forward) => None,
            (Task::Matmul { .. }, _) => Some("a matmul has a forward pass alone"),
            (Task::Model { setup, attention }, pass) => return setup.refuses(*attention, pass),
            (Task::Attention { .. }, Pass::Generate) => Some("models alone generate"),
            (Task::Attention { mechanism, problem }, pass) => {
                let decoding = MechanismConfig::from(*mechanism).capabilities().decoding;
                let mut inputs = Input::ALL.iter().filter(|input| input.is_in(problem));
                match decoding {
                    Err(reason) if pass == Pass::Decode => Some(reason),
                    _ => inputs.find_map(|input| input.refused_by(*mechanism)),
                }
            }
        };
        reason.map(str::to_owned)
    }
}

/// The queries whose results are compared with the oracle: all of them, or of a
/// large problem a sample.
pub fn queries_to_check(problem: &Problem) -> Vec<usize> {
    // The oracle takes about a microsecond a pair.
    const PAIRS: usize = 1 << 20;
    const SAMPLE: usize = 64;
    if problem.queries() * problem.seq_k <= PAIRS {
        (0..problem.queries()).collect()
    } else {
        problem.sample_of_queries(SAMPLE)
    }
}

/// A problem of the catalogue, at another length if one is given.
pub fn problem(name: &str, n: Option<usize>) -> Result<Problem> {
    let found = find(name).ok_or_else(|| {
        let known = catalogue().into_iter().chain(only_measured());
        UnknownWord::new("problem", name, known.map(|problem| problem.name))
    })?;
    match n {
        Some(n) if n != found.seq_k => found.at_length(n).with_context(|| {
            format!(
                "problem \"{name}\" cannot be measured at n = {n}: its mask or its sizes are made \
                 for one length\n  do: leave out --seq, or choose layer, layer-causal or decode-step"
            )
        }),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_generate() {
        let layer = problem("layer", None).expect("in the catalogue");
        let case = Case::attention(Mechanism::Standard, layer, Pass::Generate);
        assert_eq!(case.refusal().as_deref(), Some("models alone generate"));
    }
}
