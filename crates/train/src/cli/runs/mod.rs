//! `zoo runs`: a table of runs, and a page that compares some of them.

pub(super) mod compare;
pub(super) mod record;

use std::cmp::Ordering;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde::Serialize;
use zoo_config::{Metric, TEMPLATES, wrap};
use zoo_spec::{Mechanism, Printable, UnknownName};
use zoo_viz::units::{self, count};

pub(crate) use self::compare::plots;
pub(crate) use self::record::{RunContent, RunRecord};
use super::terminal::{table, width};
use super::{Command, print};
use crate::files::write_output;
use crate::report::format::{duration, metric_value, thousands};
use crate::{Result, TrainError};

const PAGE: &str = "compare.html";

/// List the runs in a folder, or compare some of them on an HTML page
#[derive(Debug, Args)]
pub struct Runs {
    /// List the runs in this folder and in its subfolders
    #[arg(default_value = "runs")]
    folder: PathBuf,

    /// List only runs of this model
    #[arg(long, value_name = "MODEL", value_parser = PossibleValuesParser::new(TEMPLATES))]
    model: Option<String>,

    /// List only runs with this attention mechanism
    #[arg(long, value_name = "MECHANISM")]
    mechanism: Option<Mechanism>,

    /// Show the best value of this metric, such as bleu, of runs that have it
    #[arg(long, value_name = "METRIC")]
    metric: Option<Metric>,

    /// Sort in ascending order, or with the best metric first
    #[arg(long, value_enum, value_name = "KEY", default_value = "name")]
    sort: Sort,

    /// Print a JSON array
    #[arg(long)]
    json: bool,

    /// Write a page with the curves of these runs, given as folders or as names in FOLDER
    #[arg(
        long,
        value_name = "RUN",
        num_args = 2..,
        conflicts_with_all = ["model", "mechanism", "metric", "sort", "json"]
    )]
    compare: Vec<PathBuf>,

    /// Write the page to this file [default: compare.html]
    #[arg(long, value_name = "FILE", requires = "compare")]
    to: Option<PathBuf>,

    /// Replace an existing page
    #[arg(long, requires = "compare")]
    overwrite: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Name,
    Metric,
    Time,
    Steps,
}

/// A run that cannot be read.
#[derive(Debug, Serialize)]
struct DamagedRun {
    run: String,
    error: String,
}

impl Command for Runs {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        if !self.compare.is_empty() {
            return self.write_comparison(out);
        }
        let (mut runs, mut damaged) = (vec![], vec![]);
        for (run, path) in find(&self.folder)? {
            match RunContent::read(&run, &path, self.metric) {
                Ok(content) => runs.push(content.record),
                Err(error) => {
                    let error = error.to_string();
                    damaged.push(DamagedRun { run, error });
                }
            }
        }
        runs.retain(|run| self.is_listed(run));
        self.sort(&mut runs);
        let text = if self.json {
            to_json(&runs, &damaged)
        } else {
            self.to_text(&runs, &damaged)
        };
        print(out, &text)
    }
}

impl Runs {
    fn is_listed(&self, run: &RunRecord) -> bool {
        let mechanism = self.mechanism.map(Mechanism::name);
        self.model.as_ref().is_none_or(|model| run.model == model)
            && mechanism.is_none_or(|name| run.mechanisms.contains(&name))
            && (self.metric.is_none() || run.best.is_some())
    }

    fn sort(&self, runs: &mut [RunRecord]) {
        match self.sort {
            // In the order in which they were found.
            Sort::Name => {}
            Sort::Metric => runs.sort_by(by_quality),
            Sort::Time => runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds)),
            Sort::Steps => runs.sort_by_key(|run| run.steps_done),
        }
    }

    fn to_text(&self, runs: &[RunRecord], damaged: &[DamagedRun]) -> String {
        let width = width();
        let mut text = String::new();
        if !runs.is_empty() {
            let columns = [
                ("run", None),
                ("model\nattention", Some(15)),
                ("best\nat step", Some(16)),
                ("state\nsteps", Some(17)),
                ("time\nparameters", Some(10)),
            ];
            let rows: Vec<_> = runs.iter().map(cells).collect();
            text = table(columns, &rows, width);
        } else if self.model.is_some() || self.mechanism.is_some() || self.metric.is_some() {
            text = format!("no matching runs in {}\n", self.folder.display());
        } else if damaged.is_empty() {
            text = format!("no runs in {}\n", self.folder.display());
        }
        for DamagedRun { run, error } in damaged {
            let reason = error.lines().next().unwrap_or_default();
            text += &wrap(&format!("{run} cannot be read: {reason}"), width);
        }
        text
    }

    fn write_comparison(&self, out: &mut dyn Write) -> Result<()> {
        let path = self.to.as_deref().unwrap_or(Path::new(PAGE));
        if path.is_file() && !self.overwrite {
            return Err(TrainError::Refused(format!(
                "{} already exists\n  help: --overwrite replaces it, --to FILE writes another file",
                path.display()
            )));
        }
        let read = |run: &PathBuf| {
            let name = run.display().to_string();
            RunContent::read(&name, &self.resolve(run)?, None)
        };
        let runs: Vec<RunContent> = self.compare.iter().map(read).collect::<Result<_>>()?;
        write_output(path, compare::page(&runs, &[]).as_bytes())?;
        print(out, &format!("{}\n", path.display()))
    }

    /// The folder of a run that is given as a path or as a name.
    fn resolve(&self, run: &Path) -> Result<PathBuf> {
        let candidates = [run.to_owned(), self.folder.join(run)];
        if let Some(found) = candidates.into_iter().find(|path| is_run(path)) {
            return Ok(found);
        }
        let names = find(&self.folder).unwrap_or_default();
        let names = names.into_iter().map(|(name, _)| name);
        let unknown = UnknownName::new("run", run.to_string_lossy(), names);
        let nearest = unknown.nearest();
        let nearest = nearest.map_or(String::new(), |name| format!(": did you mean {name}?"));
        Err(TrainError::Refused(format!(
            "no run at {}{nearest}\n  help: `zoo runs {}` lists the runs",
            run.display(),
            self.folder.display()
        )))
    }
}

/// The run with the better metric first. Values of different metrics are not compared.
pub(super) fn by_quality(a: &RunRecord, b: &RunRecord) -> Ordering {
    let rank = |run: &RunRecord| match run.best {
        Some(best) if best.metric.lower_is_better() => (best.metric as usize, best.value),
        Some(best) => (best.metric as usize, -best.value),
        None => (usize::MAX, 0.0),
    };
    let ((metric, value), (other, other_value)) = (rank(a), rank(b));
    metric.cmp(&other).then(value.total_cmp(&other_value))
}

/// Runs in a folder and one level below, by name. The folder may be a run itself.
pub(crate) fn find(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    if !folder.is_dir() {
        return Err(TrainError::Refused(format!(
            "no folder {}\n  help: `zoo runs FOLDER` lists another folder; `zoo train CONFIG` \
             creates a run in runs",
            folder.display()
        )));
    }
    if is_run(folder) && std::fs::read_dir(folder).is_ok() {
        return Ok(vec![(folder.display().to_string(), folder.into())]);
    }
    let mut runs = vec![];
    for (name, path) in subfolders(folder)? {
        if is_run(&path) {
            runs.push((name, path));
            continue;
        }
        let below = subfolders(&path)?
            .into_iter()
            .filter(|(_, path)| is_run(path));
        runs.extend(below.map(|(run, path)| (format!("{name}/{run}"), path)));
    }
    Ok(runs)
}

/// Whether a folder has files of a run, or is unreadable and may be one.
fn is_run(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    has("config.toml") || has("run.json") || folder.is_dir() && std::fs::read_dir(folder).is_err()
}

/// The subfolders by name.
fn subfolders(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = std::fs::read_dir(folder).map_err(TrainError::file(folder))?;
    let mut folders = vec![];
    for entry in entries {
        let entry = entry.map_err(TrainError::file(folder))?;
        if entry.path().is_dir() {
            let name = Printable(&entry.file_name().to_string_lossy()).to_string();
            folders.push((name, entry.path()));
        }
    }
    folders.sort();
    Ok(folders)
}

fn cells(run: &RunRecord) -> [String; 5] {
    let text = TextCells::new(run);
    let best = match (text.best, run.best) {
        (value, Some(best)) => format!("{value}\nat {}", count(best.step)),
        (none, None) => none,
    };
    let attention = match run.mechanisms.as_slice() {
        [] => "-".to_owned(),
        mechanisms => mechanisms.join(",\n"),
    };
    [
        run.run.clone(),
        format!("{}\n{attention}", run.model),
        best,
        format!("{}\n{}", run.state.name(), text.steps),
        format!("{}\n{}", text.time, text.parameters),
    ]
}

/// The values of a run as text, for tables.
#[derive(Debug, Serialize)]
pub(crate) struct TextCells {
    /// The best metric without its step, or `-`.
    pub(crate) best: String,
    pub(crate) steps: String,
    pub(crate) time: String,
    pub(crate) step_time: String,
    pub(crate) memory: String,
    pub(crate) parameters: String,
}

impl TextCells {
    pub(crate) fn new(run: &RunRecord) -> Self {
        let best = run.best.map(|best| {
            let value = metric_value(best.metric, best.value);
            format!("{} {value}", best.metric)
        });
        Self {
            best: best.unwrap_or_else(|| "-".to_owned()),
            steps: steps(run),
            time: duration(run.seconds),
            step_time: run.seconds_per_step.map_or("-".to_owned(), units::time),
            memory: run.memory.map_or("-".to_owned(), units::bytes),
            parameters: parameters(run),
        }
    }
}

/// `500/2,000`, or `2,000` if all steps are done.
pub(super) fn steps(run: &RunRecord) -> String {
    match run.steps {
        Some(steps) if steps != run.steps_done => {
            format!("{}/{}", count(run.steps_done), count(steps))
        }
        _ => count(run.steps_done),
    }
}

pub(super) fn parameters(run: &RunRecord) -> String {
    run.parameters
        .map_or("-".to_owned(), |it| thousands(it as f64))
}

fn to_json(runs: &[RunRecord], damaged: &[DamagedRun]) -> String {
    let runs = runs.iter().map(serde_json::to_value);
    let damaged = damaged.iter().map(serde_json::to_value);
    // Plain data: serializing it cannot fail.
    let values: Vec<_> = runs.chain(damaged).flatten().collect();
    format!("{:#}\n", serde_json::Value::from(values))
}
