//! `zoo inspect`: summary of a run, a checkpoint, a model folder or a weights file.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use zoo_backend::OpenDevice;
use zoo_config::{Backend, Config, Metric, wrap};
use zoo_models::weights::Weights;
use zoo_models::weights::hugging_face::ModelFolder;
use zoo_spec::{Printable, closest_run};
use zoo_viz::units::{bytes, count, number};

use super::terminal::width;
use super::{Command, print};
use crate::pretrained::{is_model_folder, tokenizer};
use crate::report::format::{duration, metric_value};
use crate::run::{MEMORY, Row, WEIGHTS, last_rows, read_rows};
use crate::trained::{load, load_weights};
use crate::{AVERAGE, CheckpointChoice, Result, RunFolder, TrainError};

/// Show a run, a checkpoint, a model folder of Hugging Face or a weights file
#[derive(Debug, Args)]
pub struct Inspect {
    /// Show this run folder, checkpoint folder, model folder of Hugging Face's transformers or weights
    /// file (.safetensors, .bpk, .pt)
    #[arg(value_name = "RUN|CHECKPOINT")]
    path: PathBuf,

    /// Show the run's config with all defaults, or the model folder's config.json
    #[arg(long)]
    config: bool,

    /// List every tensor with shape and dtype
    #[arg(long)]
    weights: bool,

    /// List the tensors of this checkpoint with --weights: best, last, average, or a step
    #[arg(long, value_name = "CHECKPOINT", default_value = "best")]
    checkpoint: CheckpointChoice,
}

impl Command for Inspect {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        if !self.path.exists() {
            let help = match closest_run(&self.path, Path::exists) {
                Some(closest) => format!("did you mean {}?", closest.display()),
                None => "give a run folder, a checkpoint folder or a weights file".to_owned(),
            };
            return Err(TrainError::Refused(format!(
                "{} does not exist\n  help: {help}",
                self.path.display()
            )));
        }
        if let Some((folder, step)) = RunFolder::from_checkpoint(&self.path) {
            return print(out, &self.describe_checkpoint(&folder, step)?);
        }
        if is_model_folder(&self.path) {
            return print(out, &self.describe_model_folder()?);
        }
        let path = match self.path.join(WEIGHTS) {
            weights if weights.is_file() => weights,
            _ => self.path.clone(),
        };
        let text = if path.is_file() {
            self.describe_file(&path)?
        } else {
            self.describe_run(&RunFolder::open(&self.path)?)?
        };
        print(out, &text)
    }
}

impl Inspect {
    fn describe_file(&self, path: &Path) -> Result<String> {
        if self.config {
            return Err(TrainError::Refused(format!(
                "--config: {} is a weights file, which has no config\n  help: give the run folder",
                path.display()
            )));
        }
        let tensors = self.tensors(&Weights::read(path)?);
        Ok(format!("{}, {}\n{tensors}", path.display(), size(path)))
    }

    fn tensors(&self, weights: &Weights) -> String {
        if self.weights {
            all_tensors(weights)
        } else {
            tensors_by_module(weights)
        }
    }

    /// A folder of pretrained weights, which are read completely and checked.
    fn describe_model_folder(&self) -> Result<String> {
        let folder = ModelFolder::open(&self.path)?;
        let tokens = count(tokenizer(&self.path)?.vocab_size());
        let context = count(folder.config().spec.context);
        let ends = folder.end_tokens().iter().map(ToString::to_string);
        let ends = match folder.end_tokens() {
            [] => "none".to_owned(),
            _ => ends.collect::<Vec<_>>().join(", "),
        };
        let family = folder.family().name();
        let rows = [
            ("model", format!("{family}, pretrained, context {context}")),
            (
                "tokens",
                format!("{tokens} in the tokenizer, end tokens: {ends}"),
            ),
        ];
        let mut parts = vec![table(&self.path.display().to_string(), &rows)];
        if self.config {
            let path = self.path.join("config.json");
            let text = std::fs::read_to_string(&path).map_err(TrainError::file(&path))?;
            parts.push(text.trim_end().to_owned() + "\n");
        }
        let weights = folder.weights()?;
        let opened = any_backend(Backend::default())?;
        let model = folder.config().try_init(&opened.device)?;
        parts.push(model.summary().to_string() + "\n");
        parts.push(self.tensors(&weights));
        Ok(parts.join("\n"))
    }

    fn describe_checkpoint(&self, folder: &RunFolder, step: usize) -> Result<String> {
        let config = folder.config()?;
        let checkpoints = folder.checkpoints();
        let path = checkpoints.checkpoint_dir(step);
        let usage = |step| format!("use {}", checkpoints.checkpoint_dir(step).display());
        let checkpoint = checkpoints.read_or_suggest(step, usage)?;
        let progress = &checkpoint.progress;
        let best = match &progress.best {
            Some(best) => {
                let value = value(&best.metric, best.value);
                format!("{} {value} at step {}", best.metric, count(best.step))
            }
            None => "not validated yet".to_owned(),
        };
        let epoch = count(progress.position.epoch + 1);
        let elapsed = duration(progress.seconds);
        let position = format!("{}, epoch {epoch}, {elapsed} elapsed", count(step));
        let rows = [
            ("model", kinds(&config)),
            ("run", folder.path().display().to_string()),
            ("step", position),
            ("best", best),
        ];
        let title = format!("{}, {}", path.display(), size(&path));
        let mut parts = vec![table(&title, &rows)];
        parts.extend(self.config.then(|| config.to_toml()));
        parts.push(summary(folder, &config)? + "\n");
        parts.extend(last_metrics(folder, step));
        parts.push(self.tensors(&checkpoint.weights));
        Ok(parts.join("\n"))
    }

    fn describe_run(&self, folder: &RunFolder) -> Result<String> {
        let config = folder.config()?;
        let mut parts = vec![metadata(folder, &config)];
        parts.extend(self.config.then(|| config.to_toml()));
        parts.push(summary(folder, &config)? + "\n");
        parts.push(checkpoints(folder)?);
        parts.extend(last_metrics(folder, usize::MAX));
        if self.weights {
            let (weights, _) = load_weights(folder, self.checkpoint)?;
            parts.push(all_tensors(&weights));
        }
        Ok(parts.join("\n"))
    }
}

fn metadata(folder: &RunFolder, config: &Config) -> String {
    // The rest is shown even if run.json is missing or invalid.
    let metadata = folder.metadata().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let commit = match (metadata["commit"].as_str(), metadata["changed"].as_bool()) {
        (Some(commit), Some(true)) => format!("{commit} (modified)"),
        (Some(commit), _) => commit.to_owned(),
        (None, _) => "none".to_owned(),
    };
    let started = match metadata["resumed"].as_array().map_or(0, Vec::len) {
        0 => text(&metadata["started"]),
        1 => format!("{}, resumed once", text(&metadata["started"])),
        times => format!("{}, resumed {times} times", text(&metadata["started"])),
    };
    let [backend, device, precision] =
        ["backend", "device", "precision"].map(|key| text(&metadata[key]));
    let device = format!("{backend} on {device}, {precision}");
    let versions = ["zoo", "burn", "system"].map(|name| text(&metadata["versions"][name]));
    let [zoo, burn, system] = versions;
    let config_file = folder.file("config.toml").display().to_string();
    let rows = [
        ("model", kinds(config)),
        ("device", device),
        ("versions", format!("zoo {zoo}, Burn {burn}, {system}")),
        ("commit", commit),
        ("seed", config.run.seed.to_string()),
        ("started", started),
        ("config", config_file + " (show with --config)"),
    ];
    table(&folder.path().display().to_string(), &rows)
}

fn kinds(config: &Config) -> String {
    format!("{} on {}", config.model.name(), config.data.name())
}

fn table(title: &str, rows: &[(&str, String)]) -> String {
    let width = width();
    let row = |(name, value): &(&str, String)| wrap(&format!("  {name:<8}  {value}"), width);
    format!("{title}\n{}", rows.iter().map(row).collect::<String>())
}

/// A device of this backend, or if it is not available, of any other one.
fn any_backend(backend: Backend) -> Result<OpenDevice> {
    let own = zoo_backend::open(backend.name, backend.dtype);
    let opened = own.or_else(|error| {
        let others = zoo_backend::compiled_features().into_iter();
        let ids = others.filter_map(|name| name.parse().ok());
        let mut opened = ids.filter_map(|id| zoo_backend::open(id, backend.dtype).ok());
        opened.next().ok_or(error)
    })?;
    Ok(opened)
}

/// The model's summary. If the run's backend is not available, any other one is used.
fn summary(folder: &RunFolder, config: &Config) -> Result<String> {
    let opened = any_backend(config.backend.clone())?;
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
        let size = size(&checkpoints.checkpoint_dir(*step));
        rows.push([format!("step {}", count(*step)), size, note]);
    }
    let average = folder.file(AVERAGE);
    if average.is_file() {
        rows.push(["average".to_owned(), size(&average), AVERAGE.to_owned()]);
    }
    Ok("checkpoints\n".to_owned() + &align_columns(&rows, width()))
}

/// The last metrics of each split, up to a step.
fn last_metrics(folder: &RunFolder, up_to: usize) -> Option<String> {
    let cells = |row: Row| {
        let values = row.values.iter();
        let values = values.map(|(name, it)| format!("{} {}", label(name), value(name, *it)));
        let values = values.collect::<Vec<_>>().join("  ");
        [row.part, format!("step {}", count(row.step)), values]
    };
    let rows = last_rows(read_rows(folder).unwrap_or_default(), up_to);
    let rows: Vec<_> = rows.into_iter().map(cells).collect();
    (!rows.is_empty()).then(|| "last metrics\n".to_owned() + &align_columns(&rows, width()))
}

fn label(name: &str) -> &str {
    match name {
        "rate" => "lr",
        "norm" => "grad norm",
        "tokens_per_second" => "tokens/s",
        "loss_scale" => "loss scale",
        name => name,
    }
}

fn value(name: &str, value: f64) -> String {
    if name == MEMORY {
        return bytes(value);
    }
    let percentages = [Metric::Exact, Metric::Accuracy, Metric::MacroF1];
    match percentages.into_iter().find(|metric| metric.name() == name) {
        Some(metric) => metric_value(metric, value),
        None => number(value),
    }
}

fn all_tensors(weights: &Weights) -> String {
    let cells = |(key, shape, dtype): (&str, Vec<usize>, String)| {
        let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
        [Printable(key).to_string(), shape.join(" x "), dtype]
    };
    let rows: Vec<_> = tensors(weights).map(cells).collect();
    format!("{}{}\n", align_columns(&rows, width()), total(weights))
}

/// Tensors and parameters of each top-level module.
fn tensors_by_module(weights: &Weights) -> String {
    let mut modules: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (key, shape, _) in tensors(weights) {
        let name = key.split('.').next().unwrap_or(key);
        let (count, sum) = modules.entry(name).or_default();
        *count += 1;
        *sum += shape.iter().product::<usize>();
    }
    let cells = |(name, (tensors, parameters)): (&str, (usize, usize))| {
        let tensors = match tensors {
            1 => "1 tensor".to_owned(),
            tensors => format!("{} tensors", count(tensors)),
        };
        let parameters = format!("{} parameters", count(parameters));
        [Printable(name).to_string(), tensors, parameters]
    };
    let rows: Vec<_> = modules.into_iter().map(cells).collect();
    let (rows, total) = (align_columns(&rows, width()), total(weights));
    format!("{rows}{total} (list with --weights)\n")
}

fn total(weights: &Weights) -> String {
    let sizes = tensors(weights).map(|(_, shape, _)| shape.iter().product::<usize>());
    let parameters = count(sizes.sum());
    let tensors = count(weights.keys().count());
    format!("  {parameters} parameters in {tensors} tensors")
}

fn tensors(weights: &Weights) -> impl Iterator<Item = (&str, Vec<usize>, String)> {
    weights.keys().filter_map(|key| {
        let data = weights.get(key)?;
        let dtype = format!("{:?}", data.dtype()).to_lowercase();
        Some((key, data.shape().to_vec(), dtype))
    })
}

/// Aligns columns. The values of the last one, which two spaces separate, are wrapped to `width`.
fn align_columns(rows: &[[String; 3]], width: usize) -> String {
    let column_width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let [first, second] = [column_width(0), column_width(1)];
    let indent = first + second + 6;
    let lines = |row: &[String; 3]| {
        let mut text = format!("  {:first$}  {:second$}", row[0], row[1]);
        let mut end = indent - 2;
        for value in row[2].split("  ") {
            let columns = 2 + value.chars().count();
            if end + columns > width && end >= indent {
                text += "\n";
                text += &" ".repeat(indent - 2);
                end = indent - 2;
            }
            text += "  ";
            text += value;
            end += columns;
        }
        text.trim_end().to_owned() + "\n"
    };
    rows.iter().map(lines).collect()
}

/// The size of a file, or of all files in a folder.
fn size(path: &Path) -> String {
    let bytes = if path.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let sizes = entries.filter_map(|entry| entry.metadata().ok());
        sizes.map(|it| it.len()).sum()
    } else {
        std::fs::metadata(path).map_or(0, |it| it.len())
    };
    match bytes as f64 {
        bytes if bytes < 1024.0 => format!("{bytes} B"),
        bytes if bytes < 1024.0 * 1024.0 => format!("{:.1} KiB", bytes / 1024.0),
        bytes => format!("{:.1} MiB", bytes / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_wrapped() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [
            row(["train", "step 1,000", "loss 0.5  grad norm 1.25  lr 0.001"]),
            row(["valid", "step 500", ""]),
        ];
        let expected = "  train  step 1,000  loss 0.5  grad norm 1.25\n                     lr \
                        0.001\n  valid  step 500\n";
        assert_eq!(align_columns(&rows, 46), expected);
    }
}
