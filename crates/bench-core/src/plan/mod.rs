//! Which cases a person's choice comes to.

mod extent;
mod suite;

use zoo_oracle::{Problem, find};
use zoo_spec::Mechanism;

pub use self::extent::{Extent, Sampling};
pub use self::suite::Suite;
use crate::case::{Case, Pass, Task, UnknownProblem, unknown_problem};
use crate::model::{Model, ModelName, Setup, WrongLength};
use crate::record::Skipped;
use crate::table::skipped_lines;

/// What a person asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Selection {
    /// The suite, where no problems or models are named.
    pub suite: Suite,
    /// The mechanisms; none named is all, and in a model its usual one.
    pub mechanisms: Vec<Mechanism>,
    /// Problems of the catalogue by name.
    pub problems: Vec<String>,
    /// Models by name.
    pub models: Vec<ModelName>,
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
    /// A model cannot be measured at a length.
    #[error(transparent)]
    Length(#[from] WrongLength),
    /// The choice leaves nothing over.
    #[error(
        "{what} no {pass} case{}\n  do: choose another --suite, --pass or --mechanism; --list shows \
         what there is",
        skipped_lines(skipped).iter().map(|line| format!("\n  {line}")).collect::<String>()
    )]
    Nothing {
        /// "suite decode has", or "the models named have".
        what: String,
        /// The pass, or "such".
        pass: String,
        /// What is not possible, and why.
        skipped: Vec<Skipped>,
    },
}

/// What comes of a choice.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// The cases: attention before models, short ones first, each next to those it is
    /// compared with.
    pub cases: Vec<Case>,
    /// What belongs to the choice and is not run.
    pub skipped: Vec<Skipped>,
}

impl Plan {
    /// A case to be run, or one that is skipped for a reason.
    fn add(&mut self, case: Case, reason: Option<String>) {
        match reason {
            None => self.cases.push(case),
            Some(reason) => self
                .skipped
                .push(Skipped::new(&case, case.subject(), reason)),
        }
    }
}

impl Skipped {
    /// A case that is not run, by the subject that does not run it.
    pub(crate) fn new(case: &Case, subject: &str, reason: String) -> Self {
        Self {
            problem: case.name(),
            n: case.n(),
            pass: case.pass,
            subject: subject.to_owned(),
            reason,
        }
    }
}

impl Selection {
    /// The cases of [`plan`](Self::plan).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn cases(&self) -> Result<Vec<Case>, PlanError> {
        Ok(self.plan()?.cases)
    }

    /// The cases it comes to, and what it does not come to.
    ///
    /// # Errors
    ///
    /// [`PlanError`] when a problem is unknown, a length is impossible or nothing is left.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        let mut plan = self.attention_cases()?;
        let models = self.model_cases()?;
        plan.cases.extend(models.cases);
        plan.skipped.extend(models.skipped);
        if plan.cases.is_empty() {
            let what = match (self.problems.is_empty(), self.models.is_empty()) {
                (true, true) => format!("suite {} has", self.suite),
                (false, true) => "the problems named have".to_owned(),
                (_, false) => "the models named have".to_owned(),
            };
            let pass = self.passes.first().map_or("such", |pass| pass.word());
            return Err(PlanError::Nothing {
                what,
                pass: pass.to_owned(),
                skipped: plan.skipped,
            });
        }
        Ok(plan)
    }

    fn attention_cases(&self) -> Result<Plan, PlanError> {
        let mechanisms = some_or(&self.mechanisms, &Mechanism::ALL);
        let mut plan = Plan::default();
        for problem in self.sized_problems()? {
            for &pass in some_or(&self.passes, passes_of(&problem)) {
                // Only what comes after others is decoded, and nobody trains on it, unless
                // it was asked for by name.
                let is_usual = passes_of(&problem).contains(&pass);
                let is_asked_for = pass != Pass::Decode && !self.problems.is_empty();
                let unusual = (!is_usual && !is_asked_for).then(|| {
                    let usual: Vec<_> =
                        passes_of(&problem).iter().map(|pass| pass.word()).collect();
                    format!("this problem is measured by {}", usual.join(" and "))
                });
                for &mechanism in mechanisms {
                    let case = Case::attention(mechanism, problem.clone(), pass);
                    let reason = unusual.clone().or(case.refusal()).or(self.too_slow(&case));
                    plan.add(case, reason);
                }
            }
        }
        plan.cases.sort_by_key(Case::n);
        plan.skipped.sort_by_key(|skipped| skipped.n);
        Ok(plan)
    }

    fn model_cases(&self) -> Result<Plan, PlanError> {
        let mut plan = Plan::default();
        for setup in self.sized_models()? {
            let usual = [setup.model.usual_attention()];
            for &attention in some_or(&self.mechanisms, &usual) {
                for &pass in some_or(&self.passes, setup.model.usual_passes()) {
                    let case = Case::model(setup.clone(), attention, pass);
                    let reason = case.refusal();
                    plan.add(case, reason);
                }
            }
        }
        Ok(plan)
    }

    fn sized_models(&self) -> Result<Vec<Setup>, PlanError> {
        let of_suite = || {
            let models = match self.problems.is_empty() {
                true => self.suite.models(),
                false => &[],
            };
            let name = |&model: &Model| ModelName { model, size: None };
            models.iter().map(name).collect()
        };
        let names: Vec<ModelName> = match self.models.is_empty() {
            true => of_suite(),
            false => self.models.clone(),
        };
        let mut sized = Vec::new();
        for name in names {
            let setup = Setup::new(name.model, name.size.unwrap_or(self.extent.size()));
            for &n in some_or(&self.lengths, &[setup.n]) {
                sized.push(setup.clone().at_length(n)?);
            }
        }
        Ok(sized)
    }

    /// Why a run leaves a case out that takes too long, unless it was asked for by name.
    fn too_slow(&self, case: &Case) -> Option<String> {
        // A network for each query and key: half a minute at 1,024 for all it takes to
        // measure, and four times as long at twice the length.
        let longest = match self.extent {
            Extent::Quick => 256,
            Extent::Full => 2048,
        };
        let is_too_slow = match &case.task {
            Task::Attention { mechanism, problem } => {
                *mechanism == Mechanism::Additive && problem.seq_q > longest
            }
            Task::Matmul { .. } | Task::Model { .. } => false,
        };
        (self.mechanisms.is_empty() && is_too_slow).then(|| {
            format!("it takes too long above n = {longest}; do: name it, --mechanism additive")
        })
    }

    fn sized_problems(&self) -> Result<Vec<Problem>, PlanError> {
        let named = !self.problems.is_empty();
        let names: Vec<&str> = match (named, self.models.is_empty()) {
            (true, _) => self.problems.iter().map(String::as_str).collect(),
            (false, true) => self.suite.problems(self.extent),
            (false, false) => vec![],
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(selection: &Selection) -> Vec<String> {
        let cases = selection.cases().unwrap_or_else(|error| panic!("{error}"));
        let name = |case: &Case| format!("{}/{}/{}", case.subject(), case.name(), case.n());
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

    /// Every mechanism of the catalogue is a case or named among those that are none, at every
    /// length and in every pass, with a reason.
    #[test]
    fn nothing_is_left_out_in_silence() {
        for (suite, extent, passes) in [
            (Suite::Attention, Extent::Quick, vec![]),
            (Suite::Attention, Extent::Full, vec![]),
            (Suite::Decode, Extent::Full, vec![]),
            (Suite::All, Extent::Quick, vec![Pass::Decode, Pass::Train]),
        ] {
            let selection = Selection {
                suite,
                extent,
                passes,
                ..Selection::default()
            };
            let plan = selection.plan().expect("cases");
            let problems = selection.sized_problems().expect("they are there");
            let passes = |problem| some_or(&selection.passes, passes_of(problem)).len();
            let of_attention: usize = problems.iter().map(passes).sum();
            let is_attention = |name: &str| find(name).is_some();
            let run = plan.cases.iter().filter(|case| is_attention(&case.name()));
            let skipped = plan
                .skipped
                .iter()
                .filter(|case| is_attention(&case.problem));
            assert_eq!(
                run.count() + skipped.count(),
                of_attention * Mechanism::ALL.len(),
                "{suite}"
            );
            assert!(plan.skipped.iter().all(|case| !case.reason.is_empty()));
        }
        let lines = |suite, extent| {
            let selection = Selection {
                suite,
                extent,
                ..Selection::default()
            };
            skipped_lines(&selection.plan().expect("cases").skipped).join("\n")
        };
        let decode = lines(Suite::Decode, Extent::Quick);
        assert!(
            decode.contains(
                "skipped: bigbird in decode-step at n = 1,024 and 8,192, decode: it has no \
                 incremental decoding"
            ),
            "{decode}"
        );
        let full = lines(Suite::Attention, Extent::Full);
        assert!(
            full.contains(
                "skipped: additive in layer at n = 4,096, 8,192 and 16,384, forward: it takes"
            ),
            "{full}"
        );
        assert!(
            full.contains("skipped: retention in layer at n = 128, "),
            "{full}"
        );
        assert!(full.contains("forward: it is causal alone"), "{full}");
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
        let subjects: Vec<&str> = cases.iter().map(Case::subject).collect();
        assert!(subjects.contains(&"linear") && !subjects.contains(&"bigbird"));
        let nothing = Selection {
            passes: vec![Pass::Train],
            ..decode
        };
        let error = nothing.cases().unwrap_err().to_string();
        assert!(error.contains("suite decode has no train case"), "{error}");
    }

    fn models(selection: &Selection) -> Vec<String> {
        let plan = selection.plan().unwrap_or_else(|error| panic!("{error}"));
        let name = |case: &Case| format!("{} {} {}", case.name(), case.subject(), case.pass);
        plan.cases.iter().map(name).collect()
    }

    #[test]
    fn every_model_is_trained_and_generates_or_goes_forward() {
        let quick = Selection {
            suite: Suite::Models,
            ..Selection::default()
        };
        let expected = [
            "han-small additive train",
            "han-small additive forward",
            "transformer-small flash train",
            "transformer-small flash generate",
            "seq2seq-small additive train",
            "seq2seq-small additive generate",
            "gpt-small flash train",
            "gpt-small flash generate",
            "classifier-small flash train",
            "classifier-small flash forward",
        ];
        assert_eq!(models(&quick), expected);
        let full = Selection {
            extent: Extent::Full,
            ..quick
        };
        assert!(models(&full).iter().all(|name| name.contains("-base ")));
    }

    #[test]
    fn every_suite_is_attention_and_models() {
        let all = Selection {
            suite: Suite::All,
            mechanisms: vec![Mechanism::Flash],
            ..Selection::default()
        };
        let plan = all.plan().expect("cases");
        let has = |name: &str| plan.cases.iter().any(|case| case.name() == name);
        assert!(has("layer-causal") && has("decode-step") && has("gpt-small"));
        assert!(!has("han-small"));
    }

    #[test]
    fn a_mechanism_is_put_into_the_models_that_take_it_and_others_are_named() {
        let selection = Selection {
            suite: Suite::Models,
            mechanisms: vec![Mechanism::Linear, Mechanism::Lsh],
            passes: vec![Pass::Train, Pass::Generate],
            ..Selection::default()
        };
        let expected = [
            "transformer-small linear train",
            "transformer-small linear generate",
            "transformer-small lsh train",
            "gpt-small linear train",
            "gpt-small linear generate",
            "gpt-small lsh train",
            "classifier-small linear train",
            "classifier-small lsh train",
        ];
        assert_eq!(models(&selection), expected);
        let skipped = skipped_lines(&selection.plan().expect("cases").skipped);
        let says = |what: &str| {
            assert!(
                skipped.iter().any(|line| line.starts_with(what)),
                "{what} in {skipped:?}"
            );
        };
        says("skipped: linear in han-small at n = 128, train: its attention is additive");
        says("skipped: linear in han-small at n = 128, generate: its attention is additive");
        says("skipped: lsh in gpt-small at n = 64, generate: this attention cannot go");
        says("skipped: lsh in classifier-small at n = 256, generate: it generates nothing");
    }

    #[test]
    fn models_by_name_are_those_alone_at_the_lengths_given() {
        let mut selection = Selection {
            models: vec!["gpt-tiny".parse().expect("a name")],
            lengths: vec![16, 32],
            passes: vec![Pass::Forward],
            ..Selection::default()
        };
        assert_eq!(
            names(&selection),
            ["flash/gpt-tiny/16", "flash/gpt-tiny/32"]
        );
        selection.lengths = vec![7];
        let error = selection.cases().unwrap_err().to_string();
        assert!(
            error.contains("gpt-tiny cannot be measured at n = 7"),
            "{error}"
        );
        let nothing = Selection {
            models: vec!["han".parse().expect("a name")],
            passes: vec![Pass::Generate],
            ..Selection::default()
        };
        let error = nothing.cases().unwrap_err().to_string();
        assert!(
            error.contains("the models named have no generate case"),
            "{error}"
        );
        assert!(error.contains("it generates nothing"), "{error}");
    }
}
