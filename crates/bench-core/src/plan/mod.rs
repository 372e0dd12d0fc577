//! Benchmark plan: the cases selected by command-line flags.

mod extent;
#[cfg(test)]
mod tests;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use zoo_oracle::Problem;
use zoo_spec::Mechanism;

pub use self::extent::{Extent, Sampling, Suite};
use crate::case::{Case, Pass, parse_length, problem};
use crate::model::{ModelName, Setup};
use crate::record::Skipped;
use crate::table::skipped_lines;

/// Flags of `cargo xtask bench` that select cases.
#[derive(Debug, Clone, PartialEq, Default, clap::Args)]
pub struct Selection {
    /// Suite: attention, decode, models or all
    #[arg(long, default_value_t)]
    pub suite: Suite,

    /// Mechanisms, comma-separated [default: all; in a model, its default attention]
    #[arg(long = "mechanism", value_name = "NAME,...", value_delimiter = ',')]
    pub mechanisms: Vec<Mechanism>,

    /// Problems from the catalogue instead of a suite, comma-separated
    #[arg(long = "problem", value_name = "NAME,...", value_delimiter = ',')]
    pub problems: Vec<String>,

    /// Models instead of a suite, comma-separated: gpt, gpt-base
    #[arg(long = "model", value_name = "NAME,...", value_delimiter = ',')]
    pub models: Vec<ModelName>,

    /// Sequence lengths, comma-separated
    #[arg(long = "seq", value_name = "N,...", value_delimiter = ',', value_parser = parse_length)]
    pub lengths: Vec<usize>,

    /// Pass to measure
    #[arg(long = "pass", value_name = "PASS", value_parser = passes(), default_value = "both")]
    pub passes: Passes,

    #[arg(skip)]
    pub extent: Extent,
}

/// The pass to measure; `None` (`both` on the command line) is the default passes.
type Passes = Option<Pass>;

fn passes() -> impl TypedValueParser<Value = Passes> {
    let help = "Default passes. Problems: forward and train, or decode; models: train, and \
                generate or forward";
    let passes = Pass::ALL.iter().filter_map(ValueEnum::to_possible_value);
    let values = passes.chain([PossibleValue::new("both").help(help)]);
    PossibleValuesParser::new(values).map(|name| name.parse().ok())
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Attention before models, by length, so that cases that are compared run close together.
    pub cases: Vec<Case>,
    pub skipped: Vec<Skipped>,
}

impl Plan {
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

    /// The selected cases; an error if none can be run.
    pub fn plan(&self) -> Result<Plan> {
        let mut plan = self.attention_cases()?;
        self.add_models(&mut plan)?;
        let selected = match (self.problems.is_empty(), self.models.is_empty()) {
            (true, true) => format!("suite {}", self.suite),
            (false, true) => "the selected problems".to_owned(),
            (_, false) => "the selected models".to_owned(),
        };
        ensure!(
            !plan.cases.is_empty(),
            "no {} case in {selected}\n  help: choose another --suite, --pass or --mechanism; \
             --list shows all values\n  {}",
            self.passes.map_or("supported", Pass::name),
            skipped_lines(&plan.skipped).join("\n  ")
        );
        Ok(plan)
    }

    fn attention_cases(&self) -> Result<Plan> {
        let mechanisms = non_empty_or(&self.mechanisms, &Mechanism::ALL);
        let mut plan = Plan::default();
        for problem in self.sized_problems()? {
            let defaults = default_passes(&problem);
            for &pass in self.passes_or(defaults) {
                // Decode needs a single query. Other passes of such a problem run only if the
                // problem is named.
                let is_requested = pass != Pass::Decode && !self.problems.is_empty();
                let excluded = (!defaults.contains(&pass) && !is_requested).then(|| {
                    let names: Vec<_> = defaults.iter().map(|pass| pass.name()).collect();
                    format!("the problem supports only {}", names.join(" and "))
                });
                for &mechanism in mechanisms {
                    let case = Case::attention(mechanism, problem.clone(), pass);
                    let reason = excluded.clone().or(case.unsupported_reason());
                    plan.add(case, reason);
                }
            }
        }
        plan.cases.sort_by_key(Case::n);
        plan.skipped.sort_by_key(|skipped| skipped.n);
        Ok(plan)
    }

    fn passes_or<'a>(&'a self, defaults: &'a [Pass]) -> &'a [Pass] {
        non_empty_or(self.passes.as_slice(), defaults)
    }

    fn add_models(&self, plan: &mut Plan) -> Result<()> {
        for setup in self.sized_models()? {
            let default = [setup.model.default_attention()];
            for &attention in non_empty_or(&self.mechanisms, &default) {
                for &pass in self.passes_or(setup.model.default_passes()) {
                    let case = Case::model(setup.clone(), attention, pass);
                    let reason = case.unsupported_reason();
                    plan.add(case, reason);
                }
            }
        }
        Ok(())
    }

    fn sized_models(&self) -> Result<Vec<Setup>> {
        let suite_models = self.suite.models().iter();
        let suite_models = suite_models.map(|&model| ModelName { model, size: None });
        let mut suite_models: Vec<_> = suite_models.collect();
        suite_models.retain(|_| self.problems.is_empty());
        let mut sized = Vec::new();
        for name in non_empty_or(&self.models, &suite_models) {
            let setup = Setup::new(name.model, name.size.unwrap_or(self.extent.size()));
            for &n in non_empty_or(&self.lengths, &[setup.n]) {
                sized.push(setup.clone().at_length(n)?);
            }
        }
        Ok(sized)
    }

    fn sized_problems(&self) -> Result<Vec<Problem>> {
        let mut suite_problems = self.suite.problems(self.extent);
        suite_problems.retain(|_| self.models.is_empty());
        let named: Vec<&str> = self.problems.iter().map(String::as_str).collect();
        let mut sized = Vec::new();
        for name in non_empty_or(&named, &suite_problems) {
            let own = problem(name, None)?;
            // A named problem has the length of the catalogue by default.
            let defaults = if named.is_empty() {
                self.extent.lengths(&own)
            } else {
                &[own.seq_k]
            };
            for &n in non_empty_or(&self.lengths, defaults) {
                sized.push(problem(name, Some(n))?);
            }
        }
        Ok(sized)
    }
}

fn default_passes(problem: &Problem) -> &'static [Pass] {
    match problem.seq_q {
        1 => &[Pass::Decode],
        _ => &[Pass::Forward, Pass::Train],
    }
}

fn non_empty_or<'a, T>(items: &'a [T], default: &'a [T]) -> &'a [T] {
    if items.is_empty() { default } else { items }
}
