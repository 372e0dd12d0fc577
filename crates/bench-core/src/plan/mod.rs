//! Which cases a person's choice comes to.

mod extent;
#[cfg(test)]
mod tests;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use zoo_oracle::Problem;
use zoo_spec::Mechanism;

pub use self::extent::{Extent, Sampling, Suite};
use crate::case::{Case, Pass, Task, length, problem};
use crate::model::{ModelName, Setup};
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
    #[arg(long = "pass", value_name = "PASS", value_parser = passes(), default_value = "both")]
    pub passes: Passes,

    #[arg(skip)]
    pub extent: Extent,
}

/// The pass that is measured; `None`, or `both` on a command line, is the usual ones.
type Passes = Option<Pass>;

fn passes() -> impl TypedValueParser<Value = Passes> {
    let help = "Those of each problem: forward and train, or decode; of each model: train, and \
                generate or forward";
    let passes = Pass::ALL.iter().filter_map(ValueEnum::to_possible_value);
    let words = passes.chain([PossibleValue::new("both").help(help)]);
    PossibleValuesParser::new(words).map(|word| word.parse().ok())
}

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

impl Selection {
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

    /// The cases it comes to, and what it does not come to.
    pub fn plan(&self) -> Result<Plan> {
        let mut plan = self.attention_cases()?;
        self.add_models(&mut plan)?;
        let what = match (self.problems.is_empty(), self.models.is_empty()) {
            (true, true) => format!("suite {} has", self.suite),
            (false, true) => "the problems named have".to_owned(),
            (_, false) => "the models named have".to_owned(),
        };
        ensure!(
            !plan.cases.is_empty(),
            "{what} no {} case\n  do: choose another --suite, --pass or --mechanism; --list shows \
             what there is\n  {}",
            self.passes.map_or("such", Pass::word),
            skipped_lines(&plan.skipped).join("\n  ")
        );
        Ok(plan)
    }

    fn attention_cases(&self) -> Result<Plan> {
        let mechanisms = some_or(&self.mechanisms, &Mechanism::ALL);
        let mut plan = Plan::default();
        for problem in self.sized_problems()? {
            let usual = passes_of(&problem);
            for pass in self.passes_or(usual) {
                // Only what comes after others is decoded, and nobody trains on it, unless
                // it was asked for by name.
                let is_asked_for = pass != Pass::Decode && !self.problems.is_empty();
                let unusual = (!usual.contains(&pass) && !is_asked_for).then(|| {
                    let usual: Vec<_> = usual.iter().map(|pass| pass.word()).collect();
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

    /// The pass that is asked for, or those that are usual.
    fn passes_or(&self, usual: &[Pass]) -> Vec<Pass> {
        self.passes
            .map_or_else(|| usual.to_vec(), |pass| vec![pass])
    }

    fn add_models(&self, plan: &mut Plan) -> Result<()> {
        for setup in self.sized_models()? {
            let usual = [setup.model.usual_attention()];
            for &attention in some_or(&self.mechanisms, &usual) {
                for pass in self.passes_or(setup.model.usual_passes()) {
                    let case = Case::model(setup.clone(), attention, pass);
                    let reason = case.refusal();
                    plan.add(case, reason);
                }
            }
        }
        Ok(())
    }

    fn sized_models(&self) -> Result<Vec<Setup>> {
        let of_suite = match self.problems.is_empty() {
            true => self.suite.models(),
            false => &[],
        };
        let of_suite = of_suite
            .iter()
            .map(|&model| ModelName { model, size: None });
        let of_suite: Vec<ModelName> = of_suite.collect();
        let mut sized = Vec::new();
        for name in some_or(&self.models, &of_suite) {
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
        const SLOW: Mechanism = Mechanism::Additive;
        let longest = match self.extent {
            Extent::Quick => 256,
            Extent::Full => 2048,
        };
        let Task::Attention { mechanism, problem } = &case.task else {
            return None;
        };
        let is_too_slow = *mechanism == SLOW && problem.seq_q > longest;
        (self.mechanisms.is_empty() && is_too_slow).then(|| {
            format!("it takes too long above n = {longest}; do: name it, --mechanism {SLOW}")
        })
    }

    fn sized_problems(&self) -> Result<Vec<Problem>> {
        let of_suite = match self.models.is_empty() {
            true => self.suite.problems(self.extent),
            false => vec![],
        };
        let named: Vec<&str> = self.problems.iter().map(String::as_str).collect();
        let mut sized = Vec::new();
        for name in some_or(&named, &of_suite) {
            let own = problem(name, None)?;
            // A problem named without a length is meant as the catalogue has it.
            let usual = match named.is_empty() {
                true => self.extent.lengths(&own),
                false => &[own.seq_k],
            };
            for &n in some_or(&self.lengths, usual) {
                sized.push(problem(name, Some(n))?);
            }
        }
        Ok(sized)
    }
}

fn passes_of(problem: &Problem) -> &'static [Pass] {
    match problem.seq_q {
        1 => &[Pass::Decode],
        _ => &[Pass::Forward, Pass::Train],
    }
}

fn some_or<'a, T>(chosen: &'a [T], otherwise: &'a [T]) -> &'a [T] {
    if chosen.is_empty() { otherwise } else { chosen }
}
