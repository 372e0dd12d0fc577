//! What is measured: a subject on a problem, in one pass.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use zoo_testkit::{Features, Formula, Parameter, Problem, find};
use zoo_words::{Dtype, Mechanism, MechanismConfig, UnknownWord};

/// What computes the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A square matmul: the rate that others are held against.
    Matmul,
    /// A mechanism of ours.
    Mechanism(Mechanism),
}

impl Subject {
    /// The word it is called by.
    pub fn word(self) -> &'static str {
        match self {
            Self::Matmul => "matmul",
            Self::Mechanism(mechanism) => mechanism.word(),
        }
    }
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

/// How far a case goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// The result alone.
    Forward,
    /// The result, and the gradients by query, key and value.
    Train,
    /// The result for one place more, with what is kept of those before.
    Decode,
}

impl Pass {
    /// All, in the order they are shown.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Train, Self::Decode];

    /// The word people write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Train => "train",
            Self::Decode => "decode",
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Pass {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|pass| pass.word() == word)
            .ok_or_else(|| UnknownWord::new("pass", word, Self::ALL.map(Self::word)))
    }
}

/// One case, whichever backend runs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What computes it.
    pub subject: Subject,
    /// What is computed; of a matmul, the sides of its matrices are `seq_k`.
    pub problem: Problem,
    /// How far it goes.
    pub pass: Pass,
}

impl Case {
    /// The matmul whose rate others are held against.
    pub fn matmul() -> Self {
        Self {
            subject: Subject::Matmul,
            // Large enough for full speed on 2 cores, and still a hundredth of a second.
            problem: Problem::new("matmul", [1, 1, 1024, 1024, 1024]),
            pass: Pass::Forward,
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
        if subject == Subject::Matmul {
            return Ok(Self::matmul());
        }
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
        Ok(Self::new(subject, problem, pass))
    }

    /// The case of a problem, with as many key and value heads as its subject has.
    pub fn new(subject: Subject, problem: Problem, pass: Pass) -> Self {
        let kv_heads = match subject {
            Subject::Matmul => None,
            Subject::Mechanism(mechanism) => {
                MechanismConfig::from(mechanism).kv_heads(problem.heads)
            }
        };
        let kv_heads = kv_heads.unwrap_or(problem.kv_heads);
        Self {
            subject,
            problem: Problem {
                kv_heads,
                ..problem
            },
            pass,
        }
    }

    /// Floating-point operations of its matmuls, over the pairs that see each other.
    pub fn work(&self) -> f64 {
        let problem = &self.problem;
        let pairs = (problem.queries() * problem.seq_k) as f64;
        match self.subject {
            Subject::Matmul => 2.0 * pairs * problem.seq_k as f64,
            Subject::Mechanism(mechanism) => {
                let forward = match self.given_to(mechanism) {
                    Some(given) => forward_work(&given, self.pass),
                    None => 0.0,
                };
                match self.pass {
                    Pass::Forward | Pass::Decode => forward,
                    // The backward pass does five matmuls where the forward pass does two.
                    Pass::Train => 3.5 * forward,
                }
            }
        }
    }

    /// What a mechanism computes of the problem, if it takes it.
    fn given_to(&self, mechanism: Mechanism) -> Option<Problem> {
        // How many parameters there are counts here, not which.
        let parameters = |parameter: Parameter| vec![0.0; parameter.count()];
        self.problem.given_to(&mechanism.into(), parameters)
    }

    /// Whether its subject takes its problem.
    pub fn is_possible(&self) -> bool {
        match self.subject {
            Subject::Matmul => true,
            Subject::Mechanism(mechanism) => {
                let decodes = MechanismConfig::from(mechanism).can_decode();
                self.given_to(mechanism).is_some() && (decodes || self.pass != Pass::Decode)
            }
        }
    }

    /// Bytes no way of computing it can do without: inputs, result and gradients.
    pub fn minimum_bytes(&self, dtype: Dtype) -> u64 {
        let numbers = |shape: [usize; 4]| shape.iter().product::<usize>() as u64;
        let problem = &self.problem;
        let inputs = numbers(problem.query_shape())
            + numbers(problem.key_shape())
            + numbers(problem.value_shape());
        let context = numbers(problem.context_shape());
        let count = match (self.subject, self.pass) {
            (Subject::Matmul, _) => 3 * numbers([1, 1, problem.seq_k, problem.seq_k]),
            (_, Pass::Forward | Pass::Decode) => inputs + context,
            // The upstream gradient is an input too.
            (_, Pass::Train) => 2 * inputs + 2 * context,
        };
        let bytes = match dtype {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        };
        count * bytes
    }
}

/// Floating-point operations of the matmuls of a forward pass.
fn forward_work(problem: &Problem, pass: Pass) -> f64 {
    let features = match &problem.formula {
        Formula::Softmax
        | Formula::Multiplicative(_)
        | Formula::Additive(_)
        | Formula::Predicted { .. }
        | Formula::Best
        | Formula::Sampled { .. } => {
            let pairs = (problem.queries() * problem.seq_k) as f64;
            let width = (problem.d_head + problem.d_value) as f64;
            return 2.0 * pairs * problem.density() * width;
        }
        Formula::Hashed(hashing) => {
            // Queries with directions and their opposites, then with the keys of two chunks.
            let (seen, width) = (2 * hashing.bucket * hashing.rounds, problem.d_head);
            let hash = 2 * hashing.directions.len();
            let attend = seen.min(problem.seq_k) * (width + problem.d_value);
            return 2.0 * (problem.queries() * (hash + attend)) as f64;
        }
        Formula::Features(Features::Random { directions }) => directions.len() / problem.d_head,
        Formula::Features(_) | Formula::Retention(_) => problem.d_head,
    };
    // Keys into the state, queries out of it; those before a place that is decoded are in.
    let new = match pass {
        Pass::Forward | Pass::Train => problem.seq_k,
        Pass::Decode => 1,
    };
    let keys = problem.batch * problem.kv_heads * new;
    2.0 * ((problem.queries() + keys) * features * problem.d_value) as f64
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
    let known = zoo_testkit::catalogue().into_iter().map(|p| p.name);
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

/// A case that misbehaves on purpose, so that tests can show what becomes of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// Never ends.
    Hang,
    /// Takes all the memory there is.
    Exhaust,
    /// Computes something else.
    Wrong,
    /// Ends with a panic.
    Crash,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hang, Self::Exhaust, Self::Wrong, Self::Crash];

    /// The word it is asked for by.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hang => "hang",
            Self::Exhaust => "exhaust",
            Self::Wrong => "wrong",
            Self::Crash => "crash",
        }
    }
}

impl FromStr for Fault {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|fault| fault.word() == word)
            .ok_or_else(|| UnknownWord::new("fault", word, Self::ALL.map(Self::word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(n: usize, pass: Pass) -> Case {
        Case::of(
            Subject::Mechanism(Mechanism::Standard),
            "layer",
            Some(n),
            pass,
        )
        .expect("in the catalogue, at any length")
    }

    /// 4·b·h·n·m·d forward, 3.5 times that for training.
    #[test]
    fn work_is_counted_by_the_formula() {
        let forward = 4.0 * 8.0 * 256.0 * 256.0 * 64.0;
        assert_eq!(layer(256, Pass::Forward).work(), forward);
        assert_eq!(layer(256, Pass::Train).work(), 3.5 * forward);
        assert_eq!(Case::matmul().work(), 2.0 * 1024f64.powi(3));
        let causal = Case {
            problem: find("layer-causal").expect("in the catalogue"),
            ..layer(128, Pass::Forward)
        };
        let share = 129.0 / 256.0;
        assert_eq!(causal.work(), share * layer(128, Pass::Forward).work());
    }

    #[test]
    fn the_least_memory_is_inputs_results_and_gradients() {
        let tensor = 8 * 256 * 64 * 4;
        let least = |pass| layer(256, pass).minimum_bytes(Dtype::F32);
        assert_eq!(least(Pass::Forward), 4 * tensor);
        assert_eq!(least(Pass::Train), 8 * tensor);
        let half = layer(256, Pass::Forward).minimum_bytes(Dtype::Bf16);
        assert_eq!(half, 2 * tensor);
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
}
