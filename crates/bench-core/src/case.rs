//! What is measured: a matmul, an attention or a model, in one pass.

use std::str::FromStr;

use zoo_oracle::{Problem, find};
use zoo_spec::{Mechanism, MechanismConfig, UnknownWord};

use crate::model::Setup;
use crate::words::words;
use crate::work::given_to;

/// What computes a case, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A square matmul: the rate that others are held against.
    Matmul,
    /// A mechanism of ours.
    Mechanism(Mechanism),
}

impl FromStr for Subject {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "matmul" => Ok(Self::Matmul),
            other => other.parse().map(Self::Mechanism),
        }
    }
}

words! {
    /// How far a case goes.
    #[derive(PartialOrd, Ord)]
    pub enum Pass: "pass" {
        /// The result alone.
        Forward = "forward",
        /// The result, and the gradients by query, key and value; of a model, by its parameters,
        /// and a step along them.
        Train = "train",
        /// The result for one place more, with what is kept of those before.
        Decode = "decode",
        /// Of a model: token after token, the best each time.
        Generate = "generate",
    }
}

/// One case, whichever backend runs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What is computed.
    pub task: Task,
    /// How far it goes.
    pub pass: Pass,
}

/// The longest sequence that is measured: the work of attention over it, by its square, can still
/// be counted.
pub const MOST_LENGTH: usize = 1 << 24;

/// Reads a length of a command line.
///
/// # Errors
///
/// What it must be, if it is something else.
pub fn length(text: &str) -> Result<usize, String> {
    count(text, MOST_LENGTH)
}

/// Reads a whole number of a command line, from 1 to `most`.
///
/// # Errors
///
/// As [`length`].
pub fn count(text: &str, most: usize) -> Result<usize, String> {
    let number = text.trim().parse().ok();
    let number = number.filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("it must be a whole number from 1 to {most}"))
}

/// What is computed.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// A product of two square matrices: the rate that others are held against.
    Matmul {
        /// Rows and columns of each.
        side: usize,
    },
    /// A mechanism on a problem of the catalogue.
    Attention {
        /// The mechanism.
        mechanism: Mechanism,
        /// The problem, with as many key and value heads as the mechanism has.
        problem: Box<Problem>,
    },
    /// A model with a mechanism for its attention.
    Model {
        /// The model and its sizes.
        setup: Setup,
        /// The mechanism.
        attention: Mechanism,
    },
}

impl Case {
    /// The matmul whose rate others are held against.
    pub fn matmul() -> Self {
        Self {
            // Large enough for full speed on 2 cores, and still a hundredth of a second.
            task: Task::Matmul { side: 1024 },
            pass: Pass::Forward,
        }
    }

    /// A mechanism on a problem, with as many key and value heads as the mechanism has.
    pub fn attention(mechanism: Mechanism, problem: Problem, pass: Pass) -> Self {
        let kv_heads = MechanismConfig::from(mechanism).kv_heads(problem.heads);
        let kv_heads = kv_heads.unwrap_or(problem.kv_heads);
        let problem = Problem {
            kv_heads,
            ..problem
        };
        Self {
            task: Task::Attention {
                mechanism,
                problem: Box::new(problem),
            },
            pass,
        }
    }

    /// A model with a mechanism for its attention.
    pub fn model(setup: Setup, attention: Mechanism, pass: Pass) -> Self {
        Self {
            task: Task::Model { setup, attention },
            pass,
        }
    }

    /// The case of these words: a catalogue problem, at another length if one is given.
    ///
    /// # Errors
    ///
    /// [`UnknownProblem`] when the catalogue has no such problem, or none of that length.
    pub fn of(
        subject: Subject,
        problem: &str,
        n: Option<usize>,
        pass: Pass,
    ) -> Result<Self, UnknownProblem> {
        let Subject::Mechanism(mechanism) = subject else {
            return Ok(Self::matmul());
        };
        let found = find(problem).ok_or_else(|| UnknownProblem::Name(unknown_problem(problem)))?;
        let problem = match n {
            Some(n) if n != found.seq_k => {
                let name = found.name;
                found
                    .at_length(n)
                    .ok_or(UnknownProblem::Length { name, n })?
            }
            _ => found,
        };
        Ok(Self::attention(mechanism, problem, pass))
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

    /// Its length: keys, or places of a sequence.
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

    /// Whether there is such a case: a mechanism that takes its problem, in a pass it has.
    pub fn is_possible(&self) -> bool {
        self.refusal().is_none()
    }

    /// Why there is no such case, if there is none.
    pub fn refusal(&self) -> Option<String> {
        let reason = match &self.task {
            Task::Matmul { .. } if self.pass == Pass::Forward => return None,
            Task::Matmul { .. } => "a matmul has a forward pass alone",
            Task::Model { setup, attention } => return setup.refuses(*attention, self.pass),
            Task::Attention { mechanism, problem } => {
                let decoding = MechanismConfig::from(*mechanism).capabilities().decoding;
                match (self.pass, given_to(problem, *mechanism)) {
                    (Pass::Generate, _) => "models alone generate",
                    (Pass::Decode, _) if decoding.is_err() => {
                        "it has no incremental decoding: what a position sees depends on how many \
                         there will be"
                    }
                    (_, Some(_)) => return None,
                    (_, None) if *mechanism == Mechanism::Retention => {
                        "it is causal alone, and the problem shows later keys, or changes scores"
                    }
                    (_, None) if *mechanism == Mechanism::Lsh => {
                        "it makes its keys of its queries: the problem has other keys, heads that \
                         share them, or scores that depend on positions"
                    }
                    (_, None) => "the problem has a mask, heads or scores that it cannot have",
                }
            }
        };
        Some(reason.to_owned())
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

/// Says which problems there are.
pub(crate) fn unknown_problem(name: &str) -> UnknownWord {
    let known = zoo_oracle::catalogue()
        .into_iter()
        .chain(zoo_oracle::only_measured())
        .map(|p| p.name);
    UnknownWord::new("problem", name, known)
}

/// Why there is no such problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownProblem {
    /// The catalogue has none of that name.
    #[error("{0}")]
    Name(UnknownWord),
    /// It has, and its mask is made for one length.
    #[error(
        "problem \"{name}\" cannot be measured at n = {n}: its mask or its sizes are made for one \
         length\n  do: leave out --seq, or choose layer, layer-causal or decode-step"
    )]
    Length {
        /// The problem.
        name: &'static str,
        /// The length.
        n: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_lengths_are_refused() {
        assert_eq!(length("16777216"), Ok(MOST_LENGTH));
        for text in [
            "0",
            "-1",
            "16777217",
            "1000000000000",
            "18446744073709551616",
            "n",
        ] {
            let said = length(text).unwrap_err();
            assert_eq!(
                said, "it must be a whole number from 1 to 16777216",
                "{text}"
            );
        }
    }

    #[test]
    fn a_problem_that_is_not_there_gets_the_nearest() {
        let standard = Subject::Mechanism(Mechanism::Standard);
        let error = Case::of(standard, "layr", None, Pass::Forward).unwrap_err();
        assert!(error.to_string().contains("did you mean layer?"), "{error}");
        let error = Case::of(standard, "bert-base", Some(64), Pass::Forward).unwrap_err();
        assert!(
            error.to_string().contains("cannot be measured at n = 64"),
            "{error}"
        );
    }

    #[test]
    fn only_models_generate() {
        let standard = Subject::Mechanism(Mechanism::Standard);
        let case = Case::of(standard, "layer", None, Pass::Generate).expect("in the catalogue");
        assert!(!case.is_possible());
    }
}
