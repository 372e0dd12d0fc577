//! Learning: from a config to a run's folder with a trained model in it.
//!
//! The loop counts steps, not epochs as Burn's `SupervisedTraining` does, for three reasons: a
//! run must go on bit for bit from any of its steps; gradients of several batches are those of
//! one large batch, by what there is to be said in each; and clipping takes all gradients
//! together. Burn's optimizers, accumulator and dashboard are used as they are.

mod fingerprint;
mod gradients;
mod optimizer;
mod pass;
mod precision;
mod schedule;
mod sum;
mod trainer;

use std::time::Instant;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn_train::Interrupter;
use zoo_backend::{BackendWord, Opened};
use zoo_config::{Config, DataSizes};
use zoo_data::Parts;

pub(crate) use self::fingerprint::{Checksum, DataFingerprint, PartFingerprint};
pub(crate) use self::schedule::Falls;
pub(crate) use self::sum::Unshown;
use self::trainer::Trainer;
use crate::memory::{check_training, is_cpu, sizes};
use crate::run::{Best, Lock, Opening, Progress, RunFolder, about, write_atomic};
use crate::show::Show;
use crate::task::{Batches, Ids, Section, Task, TaskModel, check_lengths, read_texts, with_task};
use crate::trained::build;
use crate::{DataPart, Judgement, Result, TrainError};

/// How a run is started, beside its config.
#[derive(Clone, Default)]
pub struct TrainOptions {
    /// Goes on with the run that is there.
    pub resume: bool,
    /// Goes on from this step, not from the last one there is.
    pub step: Option<usize>,
    /// Resumes also if the data has changed since the checkpoint.
    pub accept_changed_data: bool,
    /// Begins anew in the place of the run that is there.
    pub overwrite: bool,
    /// Lines instead of the dashboard.
    pub plain: bool,
    /// Shows nothing.
    pub quiet: bool,
    /// What can ask for an end: the run writes a checkpoint and stops after its step.
    pub interrupter: Interrupter,
}

/// A run that is over.
#[derive(Debug)]
pub struct Finished {
    /// Its folder.
    pub folder: RunFolder,
    /// Steps that were made, those before it was gone on with counted.
    pub steps: usize,
    /// Which checkpoint was best.
    pub best: Option<Best>,
    /// What came of the test, with the best weights, if there is something to test with.
    pub test: Option<Judgement>,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Why there are no more steps.
    pub ending: Ending,
}

/// Why there are no more steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All were made.
    Complete,
    /// Validation got no better.
    Early,
    /// Somebody asked for it.
    Interrupted,
}

/// Trains what a config says, and leaves a run's folder.
///
/// # Errors
///
/// [`TrainError`], before anything slow starts where that can be told; checkpoints that were
/// written are kept.
pub fn train(config: &Config, options: &TrainOptions) -> Result<Finished> {
    with_task!(config, |T, section| train_task::<T>(
        config, section, options
    ))
}

fn train_task<T: Task>(
    config: &Config,
    section: &Section<T>,
    options: &TrainOptions,
) -> Result<Finished> {
    let opening = match (options.resume, options.overwrite) {
        (true, _) => Opening::Resume,
        (false, true) => Opening::Overwrite,
        (false, false) => Opening::New,
    };
    check_training(config, DataSizes::default())?;
    let folder = RunFolder::of(config);
    folder.check(opening, config)?;
    let lock = folder.lock()?;
    let mut show = Show::new(
        options.plain,
        options.quiet,
        config.metric(),
        &options.interrupter,
    );

    let opened = open_all(config)?;
    let first = &opened[0];
    show.note(&format!("device: {first}"));
    check_precision(config, first)?;

    let start = Instant::now();
    let note = &mut |line: &str| show.note(line);
    let texts: Parts<T::Texts> = read_texts(config, note)?;
    // What was learned before is taken again: a text may be cut in more ways than one.
    let task = match opening {
        Opening::Resume => T::load(folder.path())?,
        Opening::New | Opening::Overwrite => T::prepare(config, &texts.train)?,
    };
    let mut encode = |part, texts| task.encode(config, part, texts, note);
    let ids = Parts {
        train: encode(DataPart::Train, &texts.train)?,
        valid: encode(DataPart::Valid, &texts.valid)?,
        test: encode(DataPart::Test, &texts.test)?,
    };
    check_training(config, sizes(&task, &ids.train))?;
    let vocabulary = match task.vocabularies() {
        (source, Some(target)) => format!("{source} and {target} tokens"),
        (one, None) => format!("{one} tokens"),
    };
    show.note(&format!(
        "vocabulary: {vocabulary}, made in {:.1} s",
        start.elapsed().as_secs_f64()
    ));

    let device = first.device.clone().autodiff();
    device.seed(config.run.seed);
    let model = build(config, section, &task, &device)?;
    check_lengths::<T>(&model, DataPart::Train, &ids.train)?;
    check_lengths::<T>(&model, DataPart::Valid, &ids.valid)?;
    check_lengths::<T>(&model, DataPart::Test, &ids.test)?;
    let data = DataFingerprint::of(&ids);
    let context = model.context();
    let batches = ids.train.batches(config, context)?;
    let mut started = Started {
        config,
        options,
        opening,
        folder,
        lock,
        about: about(config, first),
        devices: opened
            .iter()
            .map(|it| it.device.clone().autodiff())
            .collect(),
        on_cpu: is_cpu(first.word.backend),
        show,
        data,
        batches,
        valid: ids.valid.examples(context, config.validation.max_examples),
        test: ids.test.examples(context, None),
        texts,
        task,
    };
    started.prepare(&model.to_string())?;
    // Weights are drawn when they are first asked for: now, in their order.
    model.visit(&mut Draw);
    let (mut trainer, model) = Trainer::new(started, model)?;
    trainer.run(model)
}

/// Everything that a run learns with but its model.
struct Started<'a, T: Task> {
    config: &'a Config,
    options: &'a TrainOptions,
    opening: Opening,
    folder: RunFolder,
    /// Held until the run is over.
    lock: Option<Lock>,
    /// What `run.json` says.
    about: serde_json::Value,
    /// With gradients; the weights are on the first.
    devices: Vec<burn::tensor::Device>,
    /// Whether reading a number costs nothing, for nothing is computed ahead.
    on_cpu: bool,
    show: Show,
    data: DataFingerprint,
    batches: Box<dyn Batches<Example = T::Example>>,
    valid: Vec<T::Example>,
    test: Vec<T::Example>,
    texts: Parts<T::Texts>,
    task: T,
}

impl<T: Task> Started<'_, T> {
    /// That the data is what the checkpoint's run was trained with.
    fn check_data(&mut self, progress: &Progress) -> Result<()> {
        let Some(then) = &progress.data else {
            self.show.note(
                "the data is not checked: the checkpoint is of an earlier version, and does not \
                 say what it was trained with",
            );
            return Ok(());
        };
        let Some((source, what)) = then.change(&self.data, self.config) else {
            return Ok(());
        };
        if self.options.accept_changed_data {
            self.show
                .note(&format!("{source} has changed, which is accepted: {what}"));
            return Ok(());
        }
        Err(TrainError::Refused(format!(
            "{} was trained with other data: {source} has changed since the checkpoint of step {}: \
             {what}\n  do: restore it, or begin a new run; --accept-changed-data resumes with it as \
             it is now",
            self.folder.path().display(),
            progress.step
        )))
    }

    /// Writes what is to be known before the first step. Until here nothing was wrong.
    fn prepare(&mut self, summary: &str) -> Result<()> {
        let folder = &self.folder;
        if self.opening != Opening::Resume {
            let lock = self.lock.take();
            let lock = folder.create(self.opening, self.config, &self.about, lock)?;
            self.lock = Some(lock);
            for (name, text) in self.task.files()? {
                write_atomic(&folder.file(name), text.as_bytes())?;
            }
        }
        self.show.log_to(&folder.file("log.txt"))?;
        if let Some(warning) = self.lock.as_ref().and_then(Lock::warning) {
            self.show.note(&warning);
        }
        self.show.note(&format!("run: {}", folder.path().display()));
        self.show.note(summary);
        Ok(())
    }
}

struct Draw;

impl ModuleVisitor for Draw {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.val();
    }
}

/// The devices that learn together.
fn open_all(config: &Config) -> Result<Vec<Opened>> {
    let backend = &config.backend;
    let word = |index: usize| BackendWord {
        index: Some(index),
        ..backend.word
    };
    let words: Vec<BackendWord> = match backend.devices.as_slice() {
        [] => vec![backend.word],
        several => several.iter().map(|index| word(*index)).collect(),
    };
    let open = |word: BackendWord| Ok(zoo_backend::open(word, backend.dtype)?);
    words.into_iter().map(open).collect()
}

fn check_precision(config: &Config, opened: &Opened) -> Result<()> {
    let precision = config.precision();
    if opened.dtypes.contains(&precision) {
        return Ok(());
    }
    let supported: Vec<String> = opened.dtypes.iter().map(ToString::to_string).collect();
    Err(TrainError::Refused(format!(
        "training.precision = \"{precision}\" is nothing that {opened} computes in; it has {}",
        supported.join(", ")
    )))
}
