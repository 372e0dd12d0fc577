//! Which cases a person's choice comes to.

mod extent;
mod suite;

use zoo_oracle::{Problem, find};
use zoo_spec::Mechanism;

pub use self::extent::{Extent, Sampling};
pub use self::suite::Suite;
use crate::case::{Case, Pass, Task, UnknownProblem, length, unknown_problem};
use crate::model::{ModelName, Setup, WrongLength};
use crate::record::Skipped;
use crate::table::skipped_lines;

/// What a person asked for: flags of `cargo xtask bench`.
#[derive(Debug, Clone, PartialEq, Default, clap::Args)]
pub struct Selection {
    /// attention, decode, models or all
    #[arg(long, default_value_t)]
    pub suite: Suite,

    /// Mechanisms, with commas; all unless named, and in a model its usual one
    #[arg(long = "mechanism", value_name = "NAME,...", value_delimiter = ',')]
    pub mechanisms: Vec<Mechanism>,

    /// Problems of the catalogue instead of a suite, with commas
    #[arg(long = "problem", value_name = "NAME,...", value_delimiter = ',')]
    pub problems: Vec<String>,

    /// Models instead of a suite, with commas: gpt, gpt-base
    #[arg(long = "model", value_name = "NAME,...", value_delimiter = ',')]
    pub models: Vec<ModelName>,

    /// Lengths to measure at, with commas
    #[arg(long = "seq", value_name = "N,...", value_delimiter = ',', value_parser = length)]
    pub lengths: Vec<usize>,

    /// What is measured of each
    #[arg(long = "pass", value_name = "PASS", value_enum, default_value_t)]
    pub passes: Passes,

    /// How much time there is.
    #[arg(skip)]
    pub extent: Extent,
}

/// The passes that are measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "what is said of a pass is its help")]
pub enum Passes {
    Forward,
    Train,
    /// One place more, with what is kept of those before
    Decode,
    /// Token after token, by a model
    Generate,
    /// Those of each problem: forward and train, or decode; of each model: train, and
    /// generate or forward
    #[default]
    Both,
}

impl Passes {
    /// The pass that is asked for, or those that are usual.
    fn or<'a>(&self, usual: &'a [Pass]) -> &'a [Pass] {
        match self {
            Self::Forward => &[Pass::Forward],
            Self::Train => &[Pass::Train],
            Self::Decode => &[Pass::Decode],
            Self::Generate => &[Pass::Generate],
            Self::Both => usual,
        }
    }
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
        pass: &'static str,
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
    /// What a command line asks for.
    ///
    /// # Errors
    ///
    /// When a flag or its value is wrong.
    pub fn parse(flags: &str) -> Result<Self, clap::Error> {
        #[derive(clap::Parser)]
        #[command(no_binary_name = true)]
        struct CommandLine {
            #[command(flatten)]
            selection: Selection,
        }
        let parsed = <CommandLine as clap::Parser>::try_parse_from(flags.split_whitespace());
        parsed.map(|line| line.selection)
    }

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
        self.add_models(&mut plan)?;
        if plan.cases.is_empty() {
            let what = match (self.problems.is_empty(), self.models.is_empty()) {
                (true, true) => format!("suite {} has", self.suite),
                (false, true) => "the problems named have".to_owned(),
                (_, false) => "the models named have".to_owned(),
            };
            return Err(PlanError::Nothing {
                what,
                pass: self
                    .passes
                    .or(&[])
                    .first()
                    .map_or("such", |pass| pass.word()),
                skipped: plan.skipped,
            });
        }
        Ok(plan)
    }

    fn attention_cases(&self) -> Result<Plan, PlanError> {
        let mechanisms = some_or(&self.mechanisms, &Mechanism::ALL);
        let mut plan = Plan::default();
        for problem in self.sized_problems()? {
            for &pass in self.passes.or(passes_of(&problem)) {
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

    fn add_models(&self, plan: &mut Plan) -> Result<(), PlanError> {
        for setup in self.sized_models()? {
            let usual = [setup.model.usual_attention()];
            for &attention in some_or(&self.mechanisms, &usual) {
                for &pass in self.passes.or(setup.model.usual_passes()) {
                    let case = Case::model(setup.clone(), attention, pass);
                    let reason = case.refusal();
                    plan.add(case, reason);
                }
            }
        }
        Ok(())
    }

    fn sized_models(&self) -> Result<Vec<Setup>, PlanError> {
        let of_suite = match self.problems.is_empty() {
            true => self.suite.models(),
            false => &[],
        };
        let of_suite: Vec<ModelName> = of_suite
            .iter()
            .map(|&model| ModelName { model, size: None })
            .collect();
        let names = some_or(&self.models, &of_suite);
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
    use super::Extent::{Full, Quick};
    use super::*;

    fn selected(flags: &str, extent: Extent) -> Selection {
        let selection = Selection::parse(flags).unwrap_or_else(|error| panic!("{error}"));
        Selection {
            extent,
            ..selection
        }
    }

    fn planned(flags: &str, extent: Extent) -> Plan {
        let plan = selected(flags, extent).plan();
        plan.unwrap_or_else(|error| panic!("{flags}: {error}"))
    }

    /// Each case in a line, with the passes of the same one side by side.
    fn names(plan: &Plan) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for case in &plan.cases {
            let name = format!("{} {} {}", case.subject(), case.name(), case.n());
            match names.last_mut().filter(|last| last.starts_with(&name)) {
                Some(last) => *last += &format!(" {}", case.pass),
                None => names.push(format!("{name} {}", case.pass)),
            }
        }
        names
    }

    /// A choice in a line, and below it the cases that it comes to.
    const CHOICES: &str = "
        # No choice is a layer at two lengths.
        --mechanism standard
            standard layer-causal 256 forward train
            standard layer-causal 1024 forward train
        # A problem that is named is taken as it is, or at the lengths given.
        --mechanism standard --problem gpt2
            standard gpt2 256 forward train
        --mechanism standard --problem gpt2 --seq 512
            standard gpt2 512 forward train
        # Every model is trained, and generates or goes forward.
        --suite models
            additive han-small 128 train forward
            flash transformer-small 32 train generate
            additive seq2seq-small 24 train generate
            flash gpt-small 64 train generate
            flash classifier-small 256 train forward
        # A mechanism is put into the models that take it.
        --suite models --mechanism linear,lsh --pass train
            linear transformer-small 32 train
            lsh transformer-small 32 train
            linear gpt-small 64 train
            lsh gpt-small 64 train
            linear classifier-small 256 train
            lsh classifier-small 256 train
        --suite models --mechanism linear,lsh --pass generate
            linear transformer-small 32 generate
            linear gpt-small 64 generate
        # Models by name are those alone.
        --model gpt-tiny --seq 16,32 --pass forward
            flash gpt-tiny 16 forward
            flash gpt-tiny 32 forward
    ";

    #[test]
    fn a_choice_comes_to_its_cases() {
        let lines = CHOICES.lines().map(str::trim);
        let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
        let mut choices = 0;
        for (at, flags) in lines.iter().enumerate() {
            if flags.starts_with("--") {
                let cases = lines[at + 1..].iter();
                let is_case = |line: &&&str| !line.starts_with("--") && !line.is_empty();
                let expected: Vec<&str> = cases.take_while(is_case).copied().collect();
                assert_eq!(names(&planned(flags, Quick)), expected, "{flags}");
                choices += 1;
            }
        }
        assert_eq!(choices, 7);
        let full = planned("--suite models", Full);
        assert!(full.cases.iter().all(|case| case.name().ends_with("-base")));
    }

    /// A layer that sees everything is not for what is causal by itself, and a network of
    /// every query and key is not for a quick run at length, unless it is asked for. A single
    /// query is decoded alone, and every suite is attention and models.
    #[test]
    fn what_cannot_be_or_takes_too_long_is_left_out() {
        for (flags, extent, name, is_there) in [
            ("", Quick, "retention layer-causal 1024", true),
            ("", Quick, "additive layer-causal 256", true),
            ("", Quick, "additive layer-causal 1024", false),
            (
                "--mechanism additive",
                Quick,
                "additive layer-causal 1024",
                true,
            ),
            ("", Full, "linear layer 1024", true),
            ("", Full, "retention layer 1024", false),
            ("--suite decode", Quick, "linear", true),
            ("--suite decode", Quick, "bigbird", false),
            ("--suite all", Quick, "flash layer-causal", true),
            ("--suite all", Quick, "flash decode-step", true),
            ("--suite all", Quick, "flash gpt-small", true),
            (
                "--suite all --mechanism flash",
                Quick,
                "flash han-small",
                false,
            ),
        ] {
            let names = names(&planned(flags, extent));
            let found = names.iter().any(|planned| planned.starts_with(name));
            assert_eq!(found, is_there, "{name} of {flags:?} in {names:?}");
        }
        let decode = planned("--suite decode", Quick).cases;
        assert!(decode.iter().all(|case| case.pass == Pass::Decode));
    }

    /// Every mechanism of the catalogue is a case or named among those that are none, at every
    /// length and in every pass, with a reason.
    #[test]
    fn nothing_is_left_out_in_silence() {
        for (flags, extent) in [
            ("", Quick),
            ("", Full),
            ("--suite decode", Full),
            ("--suite all --pass decode", Quick),
            ("--suite all --pass train", Quick),
        ] {
            let selection = selected(flags, extent);
            let plan = selection.plan().expect("cases");
            let problems = selection.sized_problems().expect("they are there");
            let passes = |problem| selection.passes.or(passes_of(problem)).len();
            let of_attention: usize = problems.iter().map(passes).sum();
            let is_attention = |name: &str| find(name).is_some();
            let run = plan.cases.iter().filter(|case| is_attention(&case.name()));
            let skipped = plan.skipped.iter();
            let skipped = skipped.filter(|case| is_attention(&case.problem));
            assert_eq!(
                run.count() + skipped.count(),
                of_attention * Mechanism::ALL.len(),
                "{flags}"
            );
            assert!(plan.skipped.iter().all(|case| !case.reason.is_empty()));
        }
    }

    #[test]
    fn what_is_skipped_is_said_with_the_reason() {
        let decode = "bigbird in decode-step at n = 1,024 and 8,192, decode: it has no incremental";
        let attention = [
            "additive in layer at n = 4,096, 8,192 and 16,384, forward: it takes",
            "retention in layer at n = 128, ",
            "16,384, forward: it is causal alone",
        ];
        let train = "linear in han-small at n = 128, train: its attention is additive";
        let generate = [
            "linear in han-small at n = 128, generate: its attention is additive",
            "lsh in gpt-small at n = 64, generate: this attention cannot go",
            "lsh in classifier-small at n = 256, generate: it generates nothing",
        ];
        let models = "--suite models --mechanism linear,lsh --pass";
        for (flags, extent, says) in [
            ("--suite decode", Quick, &[decode][..]),
            ("", Full, &attention),
            (&format!("{models} train"), Quick, &[train]),
            (&format!("{models} generate"), Quick, &generate),
        ] {
            let lines = skipped_lines(&planned(flags, extent).skipped).join("\n");
            for said in says {
                assert!(lines.contains(said), "{said} of {flags:?} in {lines}");
            }
        }
    }

    #[test]
    fn a_choice_that_leaves_nothing_or_cannot_be_says_why() {
        let [models, han] = [
            "the models named have no generate case",
            "--model han --pass generate",
        ];
        for (flags, says) in [
            ("--problem bert-base --seq 512", "bert-base"),
            (
                "--suite decode --pass train",
                "suite decode has no train case",
            ),
            (
                "--model gpt-tiny --seq 7",
                "gpt-tiny cannot be measured at n = 7",
            ),
            (han, models),
            (han, "it generates nothing"),
        ] {
            let error = selected(flags, Quick).cases().unwrap_err();
            assert!(error.to_string().contains(says), "{flags}: {error}");
        }
    }
}
