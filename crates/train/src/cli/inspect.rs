//! `zoo inspect`: what a run or a file of weights is.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use zoo_config::{Config, Metric};
use zoo_models::weights::Weights;
use zoo_spec::Printable;
use zoo_viz::units::{count, number};

use super::{Command, print};
use crate::run::{WEIGHTS, last_rows};
use crate::show::line;
use crate::trained::{load, weights_of};
use crate::{AVERAGE, Result, RunFolder, TrainError, Which};

/// Shows what a run is made of, or what is in a file of weights
#[derive(Debug, Args)]
pub struct Inspect {
    /// The folder of a run or of a checkpoint, or a file: .safetensors, .bpk, .pt
    #[arg(value_name = "RUN|CHECKPOINT")]
    path: PathBuf,

    /// Shows the run's config, with every default in it
    #[arg(long)]
    config: bool,

    /// Lists every tensor with its shape and numbers
    #[arg(long)]
    weights: bool,

    /// Whose tensors: best, last, average, or the number of a step
    #[arg(long, value_name = "WHICH", default_value = "best")]
    checkpoint: Which,
}

impl Command for Inspect {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        if !self.path.exists() {
            return Err(TrainError::Refused(format!(
                "there is no {}: give the folder of a run or of a checkpoint, or a file of weights",
                self.path.display()
            )));
        }
        if let Some((folder, step)) = RunFolder::of_checkpoint(&self.path) {
            return print(out, &self.of_checkpoint(&folder, step)?);
        }
        let path = match self.path.join(WEIGHTS) {
            of_checkpoint if of_checkpoint.is_file() => of_checkpoint,
            _ => self.path.clone(),
        };
        let text = match path.is_file() {
            true => self.of_file(&path)?,
            false => self.of_run(&RunFolder::existing(&self.path)?)?,
        };
        print(out, &text)
    }
}

impl Inspect {
    fn of_file(&self, path: &Path) -> Result<String> {
        if self.config {
            return Err(TrainError::Refused(format!(
                "--config: {} is a file of weights, which has none; give the folder of its run",
                path.display()
            )));
        }
        let tensors = self.tensors(&Weights::read(path)?);
        Ok(format!("{}, {}\n{tensors}", path.display(), size(path)))
    }

    fn tensors(&self, weights: &Weights) -> String {
        match self.weights {
            true => all_tensors(weights),
            false => tensors_by_part(weights),
        }
    }

    fn of_checkpoint(&self, folder: &RunFolder, step: usize) -> Result<String> {
        let config = folder.config()?;
        let checkpoints = folder.checkpoints();
        let place = |step: usize| checkpoints.folder_of(step).display().to_string();
        let checkpoint = checkpoints.read_or(step, |whole| format!("it is {}", place(whole)))?;
        let path = checkpoints.folder_of(step);
        let progress = &checkpoint.progress;
        let best = match &progress.best {
            Some(best) => {
                let value = value(&best.metric, best.value);
                format!("{} {value}, after step {}", best.metric, count(best.step))
            }
            None => "none was validated".to_owned(),
        };
        let come = format!(
            "{}, in epoch {}, after {}",
            count(step),
            count(progress.position.epoch + 1),
            line::time(progress.seconds)
        );
        let rows = [
            ("model", kinds(&config)),
            ("run", folder.path().display().to_string()),
            ("step", come),
            ("best", best),
        ];
        let title = format!("{}, {}", path.display(), size(&path));
        let mut parts = vec![described(&title, &rows)];
        if self.config {
            parts.push(config.to_toml());
        }
        parts.push(summary(folder, &config)? + "\n");
        parts.extend(numbers(folder, step));
        parts.push(self.tensors(&checkpoint.weights));
        Ok(parts.join("\n"))
    }

    fn of_run(&self, folder: &RunFolder) -> Result<String> {
        let config = folder.config()?;
        let mut parts = vec![about(folder, &config)];
        if self.config {
            parts.push(config.to_toml());
        }
        parts.push(summary(folder, &config)? + "\n");
        parts.push(checkpoints(folder)?);
        parts.extend(numbers(folder, usize::MAX));
        if self.weights {
            let (weights, _) = weights_of(folder, self.checkpoint)?;
            parts.push(all_tensors(&weights));
        }
        Ok(parts.join("\n"))
    }
}

/// What the run was made with.
fn about(folder: &RunFolder, config: &Config) -> String {
    // One that is not there, or that somebody changed, says nothing; the rest still does.
    let said = folder.about().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let commit = match (said["commit"].as_str(), said["changed"].as_bool()) {
        (Some(commit), Some(true)) => format!("{commit}, with changes"),
        (Some(commit), _) => commit.to_owned(),
        (None, _) => "none".to_owned(),
    };
    let started = match said["resumed"].as_array().map_or(0, Vec::len) {
        0 => text(&said["started"]),
        1 => format!("{}, gone on with once", text(&said["started"])),
        times => format!("{}, gone on with {times} times", text(&said["started"])),
    };
    let device = format!(
        "{} on {}, {}",
        text(&said["backend"]),
        text(&said["device"]),
        text(&said["precision"])
    );
    let versions = ["zoo", "burn", "system"].map(|name| text(&said["versions"][name]));
    let [zoo, burn, system] = versions;
    let config_file = folder.file("config.toml");
    let rows = [
        ("model", kinds(config)),
        ("device", device),
        ("made by", format!("zoo {zoo}, Burn {burn}, {system}")),
        ("commit", commit),
        ("seed", config.run.seed.to_string()),
        ("started", started),
        (
            "config",
            format!("{}; --config shows it", config_file.display()),
        ),
    ];
    described(&folder.path().display().to_string(), &rows)
}

/// The kinds of the model and of the data.
fn kinds(config: &Config) -> String {
    format!("{} on {}", config.model.word(), config.data.word())
}

/// A title, and a line for each row.
fn described(title: &str, rows: &[(&str, String)]) -> String {
    let row = |(name, value): &(&str, String)| format!("  {name:<8}  {value}\n");
    format!("{title}\n{}", rows.iter().map(row).collect::<String>())
}

/// What the model is made of: for that any device will do.
fn summary(folder: &RunFolder, config: &Config) -> Result<String> {
    let own = zoo_backend::open(config.backend.word, config.backend.dtype);
    let opened = own.or_else(|error| {
        let others = zoo_backend::compiled().into_iter();
        let words = others.filter_map(|word| word.parse().ok());
        let mut opened =
            words.filter_map(|word| zoo_backend::open(word, config.backend.dtype).ok());
        opened.next().ok_or(error)
    })?;
    let model = load(config, folder, &opened.device, None)?;
    Ok(model.summary())
}

fn checkpoints(folder: &RunFolder) -> Result<String> {
    let checkpoints = folder.checkpoints();
    let steps = checkpoints.steps()?;
    let best = checkpoints.best()?;
    if steps.is_empty() {
        return Ok("no checkpoint yet\n".to_owned());
    }
    let mut rows: Vec<[String; 3]> = vec![];
    for step in &steps {
        let note = match &best {
            Some(best) if best.step == *step => {
                format!("best: {} {}", best.metric, value(&best.metric, best.value))
            }
            _ => String::new(),
        };
        let of_folder = size(&checkpoints.folder_of(*step));
        rows.push([format!("step {}", count(*step)), of_folder, note]);
    }
    let average = folder.file(AVERAGE);
    if average.is_file() {
        rows.push(["average".to_owned(), size(&average), AVERAGE.to_owned()]);
    }
    Ok("checkpoints\n".to_owned() + &aligned(&rows))
}

/// The last numbers of each part, up to a step.
fn numbers(folder: &RunFolder, up_to: usize) -> Option<String> {
    let rows = last_rows(folder, up_to);
    if rows.is_empty() {
        return None;
    }
    let rows: Vec<[String; 3]> = rows
        .into_iter()
        .map(|row| {
            let values = row.values.iter();
            let values = values.map(|(name, number)| format!("{name} {}", value(name, *number)));
            let values = values.collect::<Vec<_>>().join("  ");
            [row.part, format!("step {}", count(row.step)), values]
        })
        .collect();
    Some("last numbers\n".to_owned() + &aligned(&rows))
}

/// A number of a metric, or of something else.
fn value(name: &str, value: f64) -> String {
    let shares = [Metric::Exact, Metric::Accuracy, Metric::MacroF1];
    match shares.into_iter().find(|metric| metric.word() == name) {
        Some(share) => line::number(share, value),
        None => number(value),
    }
}

fn all_tensors(weights: &Weights) -> String {
    let rows: Vec<[String; 3]> = tensors(weights)
        .map(|(key, shape, dtype)| {
            let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
            [Printable(key).to_string(), shape.join(" x "), dtype]
        })
        .collect();
    format!("{}{}\n", aligned(&rows), total(weights))
}

/// Sums of what belongs together, by the first word of its name.
fn tensors_by_part(weights: &Weights) -> String {
    // By name, and in the order of names: there may be as many parts as tensors.
    let mut parts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (key, shape, _) in tensors(weights) {
        let name = key.split('.').next().unwrap_or(key);
        let (count, sum) = parts.entry(name).or_default();
        *count += 1;
        *sum += shape.iter().product::<usize>();
    }
    let rows: Vec<[String; 3]> = parts
        .into_iter()
        .map(|(name, (tensors, numbers))| {
            let tensors = match tensors {
                1 => "1 tensor".to_owned(),
                tensors => format!("{} tensors", count(tensors)),
            };
            [
                Printable(name).to_string(),
                tensors,
                format!("{} numbers", count(numbers)),
            ]
        })
        .collect();
    format!(
        "{}{}; --weights lists them\n",
        aligned(&rows),
        total(weights)
    )
}

fn total(weights: &Weights) -> String {
    let numbers: usize = tensors(weights)
        .map(|(_, shape, _)| shape.iter().product::<usize>())
        .sum();
    let tensors = weights.keys().count();
    format!("  {} numbers in {} tensors", count(numbers), count(tensors))
}

fn tensors(weights: &Weights) -> impl Iterator<Item = (&str, Vec<usize>, String)> {
    weights.keys().filter_map(|key| {
        let data = weights.get(key)?;
        let dtype = format!("{:?}", data.dtype()).to_lowercase();
        Some((key, data.shape().to_vec(), dtype))
    })
}

/// Rows whose columns stand under each other.
fn aligned(rows: &[[String; 3]]) -> String {
    let width = |at: usize| {
        let widths = rows.iter().map(|row| row[at].chars().count());
        widths.max().unwrap_or(0)
    };
    let [first, second] = [width(0), width(1)];
    let line = |row: &[String; 3]| {
        let line = format!("  {:first$}  {:second$}  {}", row[0], row[1], row[2]);
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// How large a file is, or all files of a folder.
fn size(path: &Path) -> String {
    let bytes = match path.is_dir() {
        true => {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            let sizes = entries.filter_map(|entry| entry.metadata().ok());
            sizes.map(|it| it.len()).sum()
        }
        false => std::fs::metadata(path).map_or(0, |it| it.len()),
    };
    match bytes as f64 {
        bytes if bytes < 1024.0 => format!("{bytes} B"),
        bytes if bytes < 1024.0 * 1024.0 => format!("{:.1} KiB", bytes / 1024.0),
        bytes => format!("{:.1} MiB", bytes / 1024.0 / 1024.0),
    }
}
