//! Which cases a person's choice comes to.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use zoo_testkit::{Problem, find};
use zoo_words::{Mechanism, UnknownWord};

use crate::case::{Case, Pass, Subject, UnknownProblem, unknown_problem};

/// A group of problems that answer one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Suite {
    /// A whole layer, every query at once: how training and prompts run.
    #[default]
    Attention,
    /// One query against everything before it: how text is generated.
    Decode,
    /// Whole models.
    Models,
    /// Every one of them.
    All,
}

impl Suite {
    /// Every suite, in the order they are shown.
    pub const EACH: [Self; 4] = [Self::Attention, Self::Decode, Self::Models, Self::All];

    /// The word people write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Decode => "decode",
            Self::Models => "models",
            Self::All => "all",
        }
    }

    /// What it measures, in a few words.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Attention => {
                "a causal layer over n positions; with --full also one that sees everything"
            }
            Self::Decode => "one place more after n - 1 that are kept: the time of a token",
            Self::Models => "whole models (none yet)",
            Self::All => "every suite",
        }
    }

    fn problems(self, extent: Extent) -> Vec<&'static str> {
        match (self, extent) {
            // What every mechanism takes.
            (Self::Attention, Extent::Quick) => vec!["layer-causal"],
            (Self::Attention, Extent::Full) => vec!["layer", "layer-causal"],
            (Self::Decode, _) => vec!["decode-step"],
            (Self::Models, _) => vec![],
            (Self::All, _) => [Self::Attention, Self::Decode, Self::Models]
                .into_iter()
                .flat_map(|suite| suite.problems(extent))
                .collect(),
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Suite {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::EACH
            .into_iter()
            .find(|suite| suite.word() == word)
            .ok_or_else(|| UnknownWord::new("suite", word, Self::EACH.map(Self::word)))
    }
}

/// How much time a run may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// Two lengths, within two minutes; `additive` at the first alone.
    #[default]
    Quick,
    /// Every length from short to as long as the machine holds.
    Full,
}

/// What a person asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Selection {
    /// The suite, where no problems are named.
    pub suite: Suite,
    /// The mechanisms; none named is all.
    pub mechanisms: Vec<Mechanism>,
    /// Problems of the catalogue by name.
    pub problems: Vec<String>,
    /// Lengths; none named is the extent's.
    pub lengths: Vec<usize>,
    /// The passes; none named is those of each problem.
    pub passes: Vec<Pass>,
    /// How much time there is.
    pub extent: Extent,
}

/// Why nothing can be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A problem is not there.
    #[error(transparent)]
    Problem(#[from] UnknownProblem),
    /// The choice leaves nothing over.
    #[error(
        "suite {suite} has no {pass} case\n  do: choose another --suite or --pass; --list shows \
         what there is"
    )]
    Nothing {
        /// The suite.
        suite: Suite,
        /// The pass, or "such".
        pass: String,
    },
}

impl Selection {
    /// The cases, short ones first, each next to those it is compared with.
    ///
    /// # Errors
    ///
    /// [`PlanError`] when a problem is unknown or nothing is left.
    pub fn cases(&self) -> Result<Vec<Case>, PlanError> {
        let mechanisms = some_or(&self.mechanisms, &Mechanism::ALL);
        let mut cases = Vec::new();
        for problem in self.sized_problems()? {
            for &pass in some_or(&self.passes, passes_of(&problem)) {
                // Only what comes after others is decoded, and nobody trains on it, unless
                // it was asked for by name.
                let is_usual = passes_of(&problem).contains(&pass);
                let is_asked_for = pass != Pass::Decode && !self.problems.is_empty();
                if !is_usual && !is_asked_for {
                    continue;
                }
                let each = mechanisms.iter().map(|&mechanism| {
                    Case::new(Subject::Mechanism(mechanism), problem.clone(), pass)
                });
                cases.extend(each.filter(|case| case.is_possible() && !self.is_too_slow(case)));
            }
        }
        if cases.is_empty() {
            let pass = self.passes.first().map_or("such", |pass| pass.word());
            return Err(PlanError::Nothing {
                suite: self.suite,
                pass: pass.to_owned(),
            });
        }
        cases.sort_by_key(|case| case.problem.seq_k);
        Ok(cases)
    }

    /// What a run leaves out, unless it was asked for by name.
    fn is_too_slow(&self, case: &Case) -> bool {
        // A network for each query and key: half a minute at 1,024 for all it takes to
        // measure, and four times as long at twice the length.
        let longest = match self.extent {
            Extent::Quick => 256,
            Extent::Full => 2048,
        };
        let is_network = case.subject == Subject::Mechanism(Mechanism::Additive);
        self.mechanisms.is_empty() && is_network && case.problem.seq_q > longest
    }

    fn sized_problems(&self) -> Result<Vec<Problem>, PlanError> {
        let named = !self.problems.is_empty();
        let names: Vec<&str> = if named {
            self.problems.iter().map(String::as_str).collect()
        } else {
            self.suite.problems(self.extent)
        };
        let mut sized = Vec::new();
        for name in names {
            let problem = find(name).ok_or_else(|| UnknownProblem::Name(unknown_problem(name)))?;
            // A problem named without a length is meant as the catalogue has it.
            if named && self.lengths.is_empty() {
                sized.push(problem);
                continue;
            }
            for &n in some_or(&self.lengths, self.extent.lengths(&problem)) {
                let name = problem.name;
                let length = || UnknownProblem::Length { name, n };
                sized.push(problem.at_length(n).ok_or_else(length)?);
            }
        }
        Ok(sized)
    }
}

/// The passes of a problem.
fn passes_of(problem: &Problem) -> &'static [Pass] {
    match problem.seq_q {
        1 => &[Pass::Decode],
        _ => &[Pass::Forward, Pass::Train],
    }
}

fn some_or<'a, T>(chosen: &'a [T], otherwise: &'a [T]) -> &'a [T] {
    if chosen.is_empty() { otherwise } else { chosen }
}

impl Extent {
    fn lengths(self, problem: &Problem) -> &'static [usize] {
        match (self, problem.seq_q == 1) {
            (Self::Quick, false) => &[256, 1024],
            (Self::Quick, true) => &[1024, 8192],
            (Self::Full, false) => &[128, 256, 512, 1024, 2048, 4096, 8192, 16_384],
            (Self::Full, true) => &[1024, 4096, 16_384, 65_536],
        }
    }

    /// How each of `processes` children samples.
    pub fn sampling(self, processes: usize) -> Sampling {
        match self {
            Self::Quick => Sampling {
                warm_up: Duration::from_millis(200),
                // Cheap cases share 20 seconds, however many there are.
                budget: Duration::from_secs_f64((20.0 / processes as f64).clamp(0.1, 1.0)),
                // Slow ones share most of a minute more.
                patience: Duration::from_secs_f64((60.0 / processes as f64).clamp(0.5, 4.0)),
                timeout: Duration::from_secs(60),
            },
            Self::Full => Sampling {
                warm_up: Duration::from_millis(500),
                budget: Duration::from_secs(2),
                patience: Duration::from_secs(20),
                timeout: Duration::from_secs(600),
            },
        }
    }
}

/// How a case is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// How long it runs before the first sample.
    pub warm_up: Duration,
    /// How long it is sampled if that gives ten samples or more.
    pub budget: Duration,
    /// How long it is sampled at most, however few samples that gives.
    pub patience: Duration,
    /// When the whole process is given up.
    pub timeout: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(selection: &Selection) -> Vec<String> {
        let cases = selection.cases().unwrap_or_else(|error| panic!("{error}"));
        let name = |case: &Case| {
            let word = case.subject.word();
            format!("{word}/{}/{}", case.problem.name, case.problem.seq_k)
        };
        let mut names: Vec<String> = cases.iter().map(name).collect();
        names.dedup();
        names
    }

    #[test]
    fn no_choice_is_a_layer_at_two_lengths() {
        let expected =
            ["layer-causal/256", "layer-causal/1024"].map(|name| format!("standard/{name}"));
        let selection = Selection {
            mechanisms: vec![Mechanism::Standard],
            ..Selection::default()
        };
        assert_eq!(names(&selection), expected);
    }

    /// A layer that sees everything is not for what is causal by itself, and a network of
    /// every query and key is not for a quick run at length, unless it is asked for.
    #[test]
    fn what_cannot_be_or_takes_too_long_is_left_out() {
        let has = |selection: &Selection, name: &str| names(selection).contains(&name.to_owned());
        let quick = Selection::default();
        assert!(has(&quick, "retention/layer-causal/1024"));
        assert!(has(&quick, "additive/layer-causal/256"));
        assert!(!has(&quick, "additive/layer-causal/1024"));
        let full = Selection {
            extent: Extent::Full,
            ..Selection::default()
        };
        assert!(has(&full, "linear/layer/1024") && !has(&full, "retention/layer/1024"));
        let named = Selection {
            mechanisms: vec![Mechanism::Additive],
            ..Selection::default()
        };
        assert!(has(&named, "additive/layer-causal/1024"));
    }

    #[test]
    fn a_named_problem_is_taken_as_it_is_or_at_the_lengths_given() {
        let mut selection = Selection {
            mechanisms: vec![Mechanism::Standard],
            problems: vec!["gpt2".to_owned()],
            ..Selection::default()
        };
        assert_eq!(names(&selection), ["standard/gpt2/256"]);
        selection.lengths = vec![512];
        assert_eq!(names(&selection), ["standard/gpt2/512"]);
        selection.problems = vec!["bert-base".to_owned()];
        assert!(selection.cases().is_err());
    }

    #[test]
    fn a_single_query_is_not_trained_on_unless_asked_by_name() {
        let decode = Selection {
            suite: Suite::Decode,
            ..Selection::default()
        };
        let cases = decode.cases().expect("decode has cases");
        assert!(cases.iter().all(|case| case.pass == Pass::Decode));
        let subjects: Vec<&str> = cases.iter().map(|case| case.subject.word()).collect();
        assert!(subjects.contains(&"linear") && !subjects.contains(&"bigbird"));
        let nothing = Selection {
            passes: vec![Pass::Train],
            ..decode
        };
        let error = nothing.cases().unwrap_err().to_string();
        assert!(error.contains("suite decode has no train case"), "{error}");
    }

    #[test]
    fn models_say_that_there_are_none() {
        let models = Selection {
            suite: Suite::Models,
            ..Selection::default()
        };
        assert!(models.cases().is_err());
    }
}
