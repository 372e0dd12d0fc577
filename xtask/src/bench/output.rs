//! Benchmark results, after a run or from its files: `bench report RUN` and `bench compare A B`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use zoo_bench_core::compare;
use zoo_bench_core::findings::{families, findings};
use zoo_bench_core::pool::{distinct, group, pool};
use zoo_bench_core::record::{CaseLine, Outcome, Results, Skipped};
use zoo_bench_core::screen::{MAX_WIDTH, screen};
use zoo_bench_core::table;
use zoo_bench_core::{report, units};

use crate::print;

#[derive(Args)]
pub(super) struct Show {
    /// Compare with an earlier run (its folder or results file)
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// Print the full tables and all findings instead of one screen
    #[arg(long)]
    wide: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    #[default]
    Table,
    Markdown,
    Json,
}

impl Show {
    pub(super) fn baseline(&self) -> Result<Option<Vec<CaseLine>>> {
        let results = self.baseline.as_deref().map(Results::read).transpose()?;
        Ok(results.map(|results| pool(&results.cases)))
    }

    /// Writes the report of a run into its folder, and prints its results.
    pub(super) fn results(
        &self,
        folder: &Path,
        results: &Results,
        baseline: Option<&[CaseLine]>,
    ) -> Result<()> {
        let page = report::write(folder, results, baseline)
            .with_context(|| format!("cannot write the report into {}", folder.display()))?;
        // The width is unknown unless stdout is a terminal.
        let size = console::Term::stdout().size_checked();
        let width = size.map(|(_, columns)| usize::from(columns));
        let (cases, skipped) = (pool(&results.cases), &results.skipped);
        let sections = table::sections(&cases, baseline);
        let mut text = match self.format {
            Format::Table if self.wide => devices(&cases) + &table::terminal(&sections, width),
            Format::Table => screen(results, baseline, width.unwrap_or(MAX_WIDTH)),
            Format::Markdown => report::markdown(&sections)?,
            Format::Json => serde_json::to_string_pretty(&summary(&cases, skipped))? + "\n",
        };
        let is_wide_table = self.wide && self.format == Format::Table;
        if is_wide_table || self.format == Format::Markdown {
            let findings = findings(&families(&cases));
            let remarks = table::failures(&cases);
            let skipped = table::skipped_lines(skipped);
            for line in findings.iter().chain(&remarks).chain(&skipped) {
                let _ = writeln!(text, "{line}");
            }
        }
        if is_wide_table {
            for line in table::legend(&sections, "*") {
                let _ = writeln!(text, "{line}");
            }
        }
        print(&text);
        if self.format == Format::Table && !self.wide {
            let folder = relative(folder).display();
            eprintln!("tables:  cargo xtask bench report {folder} --wide");
        }
        eprintln!("report:  {}", relative(&page).display());
        Ok(())
    }
}

/// A path in the current folder without that folder.
pub(super) fn relative(path: &Path) -> &Path {
    let folder = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(folder).unwrap_or(path)
}

/// Devices, kernels, matmul throughput and model sizes.
fn devices(cases: &[CaseLine]) -> String {
    let devices = distinct(cases.iter().filter_map(|case| case.report.device.as_ref()));
    let devices = devices.iter().map(|device| format!("device: {device}"));
    let mut lines: Vec<String> = devices.collect();
    let kernels = group(cases, |case| {
        (&case.id.backend, case.report.kernel.as_ref())
    });
    for ((backend, kernel), cases) in kernels {
        let mechanisms = distinct(cases.iter().map(|case| case.id.subject.as_str())).join(", ");
        if let Some(kernel) = kernel {
            lines.push(format!(
                "kernel: {backend} computes {mechanisms} with {kernel}"
            ));
        }
    }
    for case in cases.iter().filter(|case| case.is_matmul()) {
        if let Some(rate) = case.flops_per_second() {
            let (n, backend) = (units::count(case.id.n), &case.id.backend);
            let rate = units::three_digits(rate / 1e9);
            lines.push(format!(
                "matmul: {backend} multiplies {n} x {n} at {rate} GFLOP/s"
            ));
        }
    }
    let ours = cases.iter().filter(|case| case.id.is_ours());
    let models = ours.filter_map(|case| {
        let parameters = case.report.parameters?;
        Some((&case.id.problem, &case.id.subject, parameters))
    });
    for (model, attention, parameters) in distinct(models) {
        let parameters = units::count(parameters as usize);
        lines.push(format!(
            "model: {model} with {attention} has {parameters} parameters"
        ));
    }
    lines.push(String::new());
    lines.join("\n") + "\n"
}

/// The cases as JSON; skipped ones have a reason instead of a result.
fn summary(cases: &[CaseLine], skipped: &[Skipped]) -> Vec<Value> {
    let to_json = |case: &CaseLine| {
        let result = match &case.report.outcome {
            Outcome::Measured(samples) => json!({
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
            outcome => json!({ "outcome": outcome }),
        };
        json!({
            "case": case.id,
            "device": case.report.device,
            "work": case.report.work,
            "minimum_bytes": case.minimum_bytes,
            "parameters": case.report.parameters,
            "result": result,
        })
    };
    let skipped = skipped.iter().map(|case| json!({ "skipped": case }));
    cases.iter().map(to_json).chain(skipped).collect()
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
        let mut folder = self.run.clone();
        if !folder.is_dir() {
            folder.pop();
        }
        let baseline = self.show.baseline()?;
        self.show.results(&folder, &results, baseline.as_deref())
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
        let verdicts = changes.iter().map(|change| change.verdict);
        let regressions = verdicts.filter(|verdict| verdict.is_regression()).count();
        let (is_accepted, all) = (!self.fail_on_regression, changes.len());
        ensure!(
            regressions == 0 || is_accepted,
            "{regressions} of {all} cases regressed"
        );
        Ok(())
    }
}
