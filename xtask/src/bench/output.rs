//! Output of the benchmark results, after a run or from its files (`bench report RUN` and
//! `bench compare A B`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use zoo_bench_core::compare;
use zoo_bench_core::findings::{families, findings};
use zoo_bench_core::pool::{distinct, group, pool};
use zoo_bench_core::record::{CaseLine, Outcome, Results, Skipped};
use zoo_bench_core::table;
use zoo_bench_core::{report, units};

use crate::print;

/// Output options.
#[derive(Args)]
pub(super) struct Show {
    /// Compare with an earlier run (its folder or results file)
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Output format
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
    /// The cases of the baseline, if any.
    pub(super) fn baseline(&self) -> Result<Option<Vec<CaseLine>>> {
        let results = self.baseline.as_deref().map(Results::read).transpose()?;
        Ok(results.map(|results| pool(&results.cases)))
    }

    /// Writes the report of a run into its folder, and prints its results, findings and failures.
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
            let remarks = table::failures(&cases);
            let skipped = table::skipped_lines(skipped);
            for line in findings.iter().chain(&remarks).chain(&skipped) {
                let _ = writeln!(text, "{line}");
            }
        }
        if self.format == Format::Table {
            let _ = writeln!(text, "{}", table::LEGEND);
        }
        print(&text);
        eprintln!("report:  {}", page.display());
        Ok(())
    }
}

/// Devices, kernels, matmul throughput and model sizes.
fn devices(cases: &[CaseLine]) -> String {
    let mut text = String::new();
    for device in distinct(cases.iter().filter_map(|case| case.report.device.as_ref())) {
        let _ = writeln!(text, "device: {device}");
    }
    let kernels = cases
        .iter()
        .filter_map(|case| Some((case, case.report.kernel.as_ref()?)));
    for ((backend, kernel), cases) in group(kernels, |(case, kernel)| (&case.id.backend, *kernel)) {
        let mechanisms = distinct(cases.iter().map(|(case, _)| case.id.subject.as_str()));
        let mechanisms = mechanisms.join(", ");
        let _ = writeln!(
            text,
            "kernel: {backend} computes {mechanisms} with {kernel}"
        );
    }
    for case in cases.iter().filter(|case| case.is_matmul()) {
        if let Some(rate) = case.flops_per_second() {
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

/// The cases as JSON; skipped ones have a reason instead of a result.
fn summary(cases: &[CaseLine], skipped: &[Skipped]) -> Vec<serde_json::Value> {
    let to_json = |case: &CaseLine| {
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
                "flops_per_second": case.flops_per_second(),
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
    cases.iter().map(to_json).chain(skipped).collect()
}

/// Width of the terminal, if stdout is one.
fn terminal_width() -> Option<usize> {
    console::Term::stdout()
        .size_checked()
        .map(|(_, columns)| usize::from(columns))
}

#[derive(Args)]
pub(super) struct Report {
    /// Folder or results file of the run
    run: PathBuf,

    #[command(flatten)]
    show: Show,
}

impl Report {
    pub(super) fn run(&self) -> Result<()> {
        let results = Results::read(&self.run)?;
        let folder = if self.run.is_dir() {
            self.run.as_path()
        } else {
            self.run.parent().unwrap_or(Path::new("."))
        };
        let baseline = self.show.baseline()?;
        self.show.results(folder, &results, baseline.as_deref())
    }
}

#[derive(Args)]
pub(super) struct Compare {
    /// Folder or results file of the earlier run
    before: PathBuf,

    /// Folder or results file of the later run
    after: PathBuf,

    /// Exit with an error if a case is significantly slower or fails
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
        print(&compare::render(&changes));
        let regressions = changes
            .iter()
            .filter(|change| change.verdict.is_regression())
            .count();
        if self.fail_on_regression && regressions > 0 {
            bail!("{regressions} of {} cases regressed", changes.len());
        }
        Ok(())
    }
}
