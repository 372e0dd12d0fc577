//! What is known about a run: from its config, `run.json`, metrics and checkpoints.

use std::path::Path;

use serde::Serialize;
use zoo_config::{Config, Metric, Model};
use zoo_spec::{Alignment, Mechanism, MechanismConfig};

use crate::run::{FINISHED, Lock, MEMORY, Progress, Row, TEST, read_rows};
use crate::{BestCheckpoint, Result, RunFolder};

/// A run as shown in a list.
#[derive(Debug, Serialize)]
pub(crate) struct RunRecord {
    pub(crate) run: String,
    pub(crate) model: &'static str,
    pub(crate) mechanisms: Vec<&'static str>,
    pub(crate) best: Option<Best>,
    pub(crate) steps_done: usize,
    /// The number of steps of a complete run, if it is known.
    pub(in crate::cli) steps: Option<usize>,
    /// Training time.
    pub(in crate::cli) seconds: f64,
    /// Training time of a step, with its share of the validations.
    pub(in crate::cli) seconds_per_step: Option<f64>,
    /// Peak memory in bytes. None in runs of earlier versions, and where it cannot be measured.
    pub(in crate::cli) memory: Option<f64>,
    /// None in runs of earlier versions.
    pub(in crate::cli) parameters: Option<usize>,
    pub(in crate::cli) state: State,
}

/// The best validation.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Best {
    pub(crate) metric: Metric,
    pub(crate) value: f64,
    pub(crate) step: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Finished,
    Interrupted,
    Running,
    /// Running or interrupted, on a filesystem without locks.
    Unfinished,
}

impl State {
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
            Self::Running => "running",
            Self::Unfinished => "unfinished",
        }
    }
}

/// The content of a run folder.
#[derive(Debug)]
pub(crate) struct RunContent {
    pub(crate) record: RunRecord,
    pub(crate) config: Config,
    pub(crate) rows: Vec<Row>,
    /// The number of epochs of a complete run, unless it is a number of steps.
    pub(in crate::cli) epochs: Option<usize>,
}

impl RunContent {
    /// Reads a run. `best` is the best validation by this metric, or by the run's own.
    pub(crate) fn read(name: &str, path: &Path, metric: Option<Metric>) -> Result<Self> {
        let folder = RunFolder::open(path)?;
        let config = folder.config()?;
        let metadata = folder.metadata()?;
        let rows = read_rows(&folder)?;
        let checkpoints = folder.checkpoints();
        let last = checkpoints.steps()?.pop();
        let progress = last.map(|step| checkpoints.progress(step)).transpose()?;
        let own_best = checkpoints.best()?;
        let (metric, best) = match metric {
            Some(metric) => (metric, best_validation(&rows, metric)),
            None => (config.metric(), own_best),
        };
        let number = |key: &str| metadata[key].as_u64().and_then(|it| it.try_into().ok());
        let steps = number("steps").or(config.training.steps);
        let epochs = match metadata.get("epochs") {
            Some(_) => number("epochs"),
            None => config.training.epochs,
        };
        let is_finished = match metadata.get(FINISHED) {
            Some(finished) => finished.is_string(),
            None => has_ended(&config, &rows, progress.as_ref(), steps),
        };
        let logged = rows.iter().map(|row| row.step).max().unwrap_or(0);
        let steps_done = logged.max(progress.as_ref().map_or(0, |it| it.step));
        let logged = rows.iter().filter_map(|row| row.values.get("seconds"));
        let saved = progress.as_ref().map_or(0.0, |it| it.seconds);
        let seconds = logged.copied().fold(saved, f64::max);
        // A resumed run has a peak for each of its processes.
        let memory = rows.iter().filter_map(|row| row.values.get(MEMORY));
        let memory = memory.copied().filter(|it| it.is_finite());
        let record = RunRecord {
            run: name.to_owned(),
            model: config.model.name(),
            mechanisms: mechanisms(&config.model)
                .iter()
                .map(|it| it.name())
                .collect(),
            best: best.map(|best| Best {
                metric,
                value: best.value,
                step: best.step,
            }),
            steps_done,
            steps,
            seconds,
            seconds_per_step: (steps_done > 0).then(|| seconds / steps_done as f64),
            memory: memory.reduce(f64::max),
            parameters: number("parameters"),
            state: match Lock::is_held(path) {
                Some(true) => State::Running,
                _ if is_finished => State::Finished,
                Some(false) => State::Interrupted,
                None => State::Unfinished,
            },
        };
        Ok(Self {
            record,
            config,
            rows,
            epochs,
        })
    }
}

/// Whether a run of an earlier version, which did not record its end, is finished.
fn has_ended(
    config: &Config,
    rows: &[Row],
    progress: Option<&Progress>,
    steps: Option<usize>,
) -> bool {
    // The test comes after the last step, and resuming removes it.
    rows.iter().any(|row| row.part == TEST)
        || progress.is_some_and(|progress| {
            let patience = config.validation.patience;
            steps.is_some_and(|steps| progress.step >= steps)
                || patience.is_some_and(|patience| progress.bad_validations >= patience)
        })
}

/// The best validation by a metric, as in training.
fn best_validation(rows: &[Row], metric: Metric) -> Option<BestCheckpoint> {
    let mut best: Option<BestCheckpoint> = None;
    for row in rows.iter().filter(|row| row.part == "valid") {
        let value = row.values.get(metric.name()).copied();
        let Some(value) = value.filter(|value| value.is_finite()) else {
            continue;
        };
        let loss = row.values.get(Metric::Loss.name()).copied();
        if best
            .as_ref()
            .is_none_or(|best| best.is_beaten_by(metric, value, loss))
        {
            best = Some(BestCheckpoint {
                step: row.step,
                metric: metric.name().to_owned(),
                value,
                loss,
            });
        }
    }
    best
}

/// The distinct mechanisms of a model. A HAN has an attention of its own.
fn mechanisms(model: &Model) -> Vec<Mechanism> {
    let kinds = |configs: &[MechanismConfig]| configs.iter().map(|it| it.mechanism()).collect();
    let mechanisms: Vec<Mechanism> = match model {
        Model::Transformer(model) => {
            let (encoder, decoder) = (&model.encoder_attention, &model.decoder_attention);
            kinds(&[encoder.list(), decoder.list(), &[model.cross_attention]].concat())
        }
        Model::Gpt(model) => kinds(model.attention.list()),
        Model::Classifier(model) => kinds(model.attention.list()),
        Model::Seq2Seq(model) => vec![match model.attention {
            Alignment::Additive => Mechanism::Additive,
            Alignment::Dot => Mechanism::Dot,
            Alignment::General => Mechanism::Multiplicative,
            Alignment::LocalM(_) => Mechanism::LocalM,
            Alignment::LocalP(_) => Mechanism::LocalP,
        }],
        Model::Han(_) => vec![],
    };
    let mut distinct = vec![];
    for mechanism in mechanisms {
        if !distinct.contains(&mechanism) {
            distinct.push(mechanism);
        }
    }
    distinct
}
