//! What a run comes to, printed: at its end, or from what it left (`bench report RUN` and
//! `bench compare A B`).

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use zoo_bench_core::compare;
use zoo_bench_core::findings::{families, findings};
use zoo_bench_core::pool::{distinct, group, pool};
use zoo_bench_core::record::{CaseLine, Outcome, Results, Skipped};
use zoo_bench_core::table;
use zoo_bench_core::{report, units};

/// How a run is shown.
#[derive(Args)]
pub(super) struct Show {
    /// An earlier run (its folder or file) to set the times against
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// How the answer is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    #[default]
    Table,
    Markdown,
    Json,
}

impl Show {
    /// The cases of the earlier run, if one is named.
    pub(super) fn baseline(&self) -> Result<Option<Vec<CaseLine>>> {
        let results = self.baseline.as_deref().map(Results::read).transpose()?;
        Ok(results.map(|results| pool(&results.cases)))
    }

    /// Writes the report of a run into its folder, and prints its tables or numbers, what they
    /// show, and what went wrong.
    pub(super) fn results(
        &self,
        folder: &Path,
        results: &Results,
        baseline: Option<&[CaseLine]>,
    ) -> Result<()> {
        let page = report::write(folder, results, baseline)
            .with_context(|| format!("cannot write the report into {}", folder.display()))?;
        let (cases, skipped) = (pool(&results.cases), &results.skipped);
        let sections = table::sections(&cases, baseline);
        let mut text = match self.format {
            Format::Table => devices(&cases) + &table::terminal(&sections, terminal_width()),
            Format::Markdown => report::markdown(&sections)?,
            Format::Json => serde_json::to_string_pretty(&summary(&cases, skipped))? + "\n",
        };
        if self.format != Format::Json {
            let findings = findings(&families(&cases));
            let remarks = table::remarks(&cases);
            let skipped = table::skipped_lines(skipped);
            for line in findings.iter().chain(&remarks).chain(&skipped) {
                let _ = writeln!(text, "{line}");
            }
        }
        if self.format == Format::Table {
            let _ = writeln!(text, "{}", table::LEGEND);
        }
        // A reader that has seen enough (`| head`) is no failure of ours.
        let _ = std::io::stdout().write_all(text.as_bytes());
        eprintln!("report:  {}", page.display());
        Ok(())
    }
}

/// On what, by what and how fast it was computed, and how large the models are.
fn devices(cases: &[CaseLine]) -> String {
    let mut text = String::new();
    for device in distinct(cases.iter().filter_map(|case| case.report.device.as_ref())) {
        let _ = writeln!(text, "device: {device}");
    }
    let bodies = cases
        .iter()
        .filter_map(|case| Some((case, case.report.body.as_ref()?)));
    for ((backend, body), cases) in group(bodies, |(case, body)| (&case.id.backend, *body)) {
        let mechanisms = distinct(cases.iter().map(|(case, _)| case.id.subject.as_str()));
        let mechanisms = mechanisms.join(", ");
        let _ = writeln!(text, "body: {backend} computes {mechanisms} by {body}");
    }
    for case in cases.iter().filter(|case| case.is_matmul()) {
        if let Some(rate) = case.rate() {
            let (n, backend) = (units::count(case.id.n), &case.id.backend);
            let rate = units::three_digits(rate / 1e9);
            let _ = writeln!(
                text,
                "matmul: {backend} multiplies {n} x {n} at {rate} GFLOP/s"
            );
        }
    }
    let ours = cases.iter().filter(|case| case.id.backend != "pytorch");
    let models = ours.filter_map(|case| {
        let parameters = case.report.parameters?;
        Some((&case.id.problem, &case.id.subject, parameters))
    });
    for (model, attention, parameters) in distinct(models) {
        let parameters = units::count(parameters as usize);
        let _ = writeln!(
            text,
            "model: {model} with {attention} has {parameters} parameters"
        );
    }
    text.push('\n');
    text
}

/// The cases as JSON: what the table shows, as numbers; those that were not run have a reason in
/// place of a result.
fn summary(cases: &[CaseLine], skipped: &[Skipped]) -> Vec<serde_json::Value> {
    let of = |case: &CaseLine| {
        let mut value = serde_json::json!({
            "case": case.id,
            "device": case.report.device,
            "work": case.report.work,
            "minimum_bytes": case.minimum_bytes,
            "parameters": case.report.parameters,
        });
        value["result"] = match &case.report.outcome {
            Outcome::Measured(samples) => serde_json::json!({
                "median": samples.median(),
                "p10": samples.quantile(0.1),
                "p90": samples.quantile(0.9),
                "samples": samples.seconds.len(),
                "flops_per_second": case.rate(),
                "tokens_per_second": case.tokens_per_second(),
                "peak": samples.peak,
                "error": samples.error,
                "checked": samples.checked,
            }),
            outcome => serde_json::json!({ "outcome": outcome }),
        };
        value
    };
    let skipped = skipped
        .iter()
        .map(|case| serde_json::json!({ "skipped": case }));
    cases.iter().map(of).chain(skipped).collect()
}

/// Characters in a line, if there is a terminal to show them.
fn terminal_width() -> Option<usize> {
    console::Term::stdout()
        .size_checked()
        .map(|(_, columns)| usize::from(columns))
}

#[derive(Args)]
pub(super) struct Again {
    /// The run: its folder, or the results file in it
    run: PathBuf,

    #[command(flatten)]
    show: Show,
}

impl Again {
    pub(super) fn run(&self) -> Result<()> {
        let results = Results::read(&self.run)?;
        let folder = match self.run.is_dir() {
            true => self.run.as_path(),
            false => self.run.parent().unwrap_or(Path::new(".")),
        };
        let baseline = self.show.baseline()?;
        self.show.results(folder, &results, baseline.as_deref())
    }
}

#[derive(Args)]
pub(super) struct Compare {
    /// The run before: its folder, or the results file in it
    before: PathBuf,

    /// The run after
    after: PathBuf,

    /// Exit with an error if a case is slower beyond the noise, or broken
    #[arg(long)]
    fail_on_regression: bool,
}

impl Compare {
    pub(super) fn run(&self) -> Result<()> {
        let [before, after] = [Results::read(&self.before)?, Results::read(&self.after)?];
        if before.run.machine != after.run.machine {
            eprintln!(
                "note: the runs are from different machines: {} and {}",
                before.run.machine.cpu, after.run.machine.cpu
            );
        }
        let changes = compare::compare(&pool(&before.cases), &pool(&after.cases));
        print!("{}", compare::show(&changes));
        let is_worse = changes
            .iter()
            .filter(|change| change.verdict.is_regression());
        let worse = is_worse.count();
        if self.fail_on_regression && worse > 0 {
            bail!("{worse} of {} cases got worse", changes.len());
        }
        Ok(())
    }
}
