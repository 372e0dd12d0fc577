//! The training loop, from a config to a run folder with a trained model.
//!
//! The loop counts steps, not epochs as Burn's `SupervisedTraining` does, for three reasons: a run
//! must resume bit for bit from any step; gradient accumulation must equal one large batch,
//! weighted by the number of predictions; and clipping uses the global gradient norm. Burn's
//! optimizers and gradient accumulator are used unchanged.

mod dry_run;
mod fingerprint;
mod forward_backward;
mod gradients;
mod optimizer;
mod precision;
mod reduction;
mod running_loss;
mod schedule;
mod trainer;

use std::time::Instant;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use zoo_backend::{BackendId, Meter, OpenDevice};
use zoo_config::{Config, DataSizes};
use zoo_data::Splits;
use zoo_spec::Precision;
use zoo_viz::units::count;

pub(crate) use self::dry_run::dry_run;
pub(crate) use self::fingerprint::{Checksum, DataFingerprint, SplitFingerprint};
use self::precision::{HalfInstructions, slow_precision};
use self::reduction::Reduction;
pub(crate) use self::running_loss::UnloggedLoss;
pub(crate) use self::schedule::PlateauState;
use self::trainer::Trainer;
use crate::memory::{check_training, sizes};
use crate::report::Reporter;
use crate::run::{BestCheckpoint, Lock, OpenMode, Progress, RunFolder, run_metadata, write_atomic};
use crate::task::{
    BoxedBatches, Note, Section, Task, TaskModel, TokenData, check_lengths, read_texts, with_task,
};
use crate::trained::build;
use crate::{DataSplit, Interrupter, Metrics, Result, TrainError};

/// Options of a training run that are not part of its config.
#[derive(Clone, Default)]
pub struct TrainOptions {
    /// Continue from a checkpoint.
    pub resume: bool,
    /// The step to resume from instead of the last checkpoint.
    pub step: Option<usize>,
    /// Resume even if the data has changed since the checkpoint.
    pub accept_changed_data: bool,
    /// Delete the existing run and start over.
    pub overwrite: bool,
    /// Log plain lines instead of the dashboard.
    pub plain: bool,
    /// Print nothing.
    pub quiet: bool,
    /// Stops the run with a checkpoint after the current step.
    pub interrupter: Interrupter,
}

impl TrainOptions {
    pub(crate) fn mode(&self) -> OpenMode {
        match (self.resume, self.overwrite) {
            (true, _) => OpenMode::Resume,
            (false, true) => OpenMode::Overwrite,
            (false, false) => OpenMode::New,
        }
    }
}

/// The result of a training run.
#[derive(Debug)]
pub struct TrainOutput {
    /// The run folder.
    pub folder: RunFolder,
    /// Number of steps, including those before a resume.
    pub steps: usize,
    /// The best checkpoint.
    pub best: Option<BestCheckpoint>,
    /// Test metrics of the best weights, if there is test data.
    pub test: Option<Metrics>,
    /// Training time in seconds.
    pub seconds: f64,
    /// Why training stopped.
    pub stop_reason: StopReason,
}

/// Why training stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// All steps were completed.
    Completed,
    /// Validation did not improve.
    EarlyStopping,
    /// The interrupter was triggered.
    Interrupted,
}

/// Trains the model of a config and writes a run folder. An error comes before anything slow starts
/// where possible; written checkpoints remain.
pub fn train(config: &Config, options: &TrainOptions) -> Result<TrainOutput> {
    with_task!(config, |T, section| train_task::<T>(
        config, section, options
    ))
}

fn train_task<T: Task>(
    config: &Config,
    section: &Section<T>,
    options: &TrainOptions,
) -> Result<TrainOutput> {
    let mode = options.mode();
    check_training(config, DataSizes::default())?;
    let folder = RunFolder::from_config(config);
    folder.check(mode, config)?;
    let lock = folder.lock()?;
    let mut reporter = Reporter::new(options);

    let note = &mut |line: &str| reporter.note(line);
    let Preparation {
        opened,
        reduction,
        texts,
        ids,
        task,
        model,
    } = Preparation::<T>::new(config, section, mode, &folder, note)?;
    let data = DataFingerprint::new(&ids);
    let context = model.context();
    let batches = ids.train.batches(config, context)?;
    let last_step = num_steps(config, &batches, opened.len());
    let devices = opened.iter().map(|it| it.device.clone().autodiff());
    // Weights are initialised later, so their memory counts.
    let mut meter = Meter::start(&opened[0]);
    meter.reset_peak();
    let mut setup = TrainSetup {
        config,
        options,
        mode,
        folder,
        lock,
        metadata: run_metadata(config, &opened[0], model.parameters(), last_step),
        devices: devices.collect(),
        meter,
        reduction,
        last_step,
        reporter,
        data,
        batches,
        valid: ids.valid.examples(context, config.validation.max_examples),
        test: ids.test.examples(context, None),
        texts,
        task,
    };
    setup.prepare(&model.to_string())?;
    // Parameters are initialised lazily: do it now, in a fixed order.
    model.visit(&mut InitParams);
    let (mut trainer, model) = Trainer::new(setup, model)?;
    trainer.run(model)
}

/// Everything that a run reads and builds before it writes its first file.
struct Preparation<T: Task> {
    opened: Vec<OpenDevice>,
    reduction: Reduction,
    texts: Splits<T::Texts>,
    ids: Splits<T::TokenData>,
    task: T,
    /// With autodiff on the first device; its parameters are not initialised yet.
    model: T::Model,
}

impl<T: Task> Preparation<T> {
    fn new(
        config: &Config,
        section: &Section<T>,
        mode: OpenMode,
        folder: &RunFolder,
        note: Note<'_>,
    ) -> Result<Self> {
        let opened = open_devices(config)?;
        let first = &opened[0];
        note(&format!("device: {first}"));
        check_precision(config, first)?;
        let reduction = Reduction::select(&opened, !config.backend.devices.is_empty(), note)?;
        let precision = config.precision().dtype();
        // Always set: another training of this process may have used the other precision.
        zoo_kernels::allow_tf32(config.precision() == Precision::Tf32);
        let instructions = HalfInstructions::detect();
        if let Some(reason) = slow_precision(first.id.backend, precision, instructions) {
            note(&format!(
                "warning: training in {precision} on {} is slower than in f32: {reason}",
                first.id
            ));
        }

        let start = Instant::now();
        let texts: Splits<T::Texts> = read_texts(config, note)?;
        // Trained tokenizers are loaded on resume: training is not guaranteed to give the same ones.
        let task = match mode {
            OpenMode::Resume => T::load(folder.path())?,
            OpenMode::New | OpenMode::Overwrite => T::prepare(config, &texts.train)?,
        };
        let mut encode = |split, texts| task.encode(config, split, texts, note);
        let ids = Splits {
            train: encode(DataSplit::Train, &texts.train)?,
            valid: encode(DataSplit::Valid, &texts.valid)?,
            test: encode(DataSplit::Test, &texts.test)?,
        };
        check_training(config, sizes(&task, &ids.train))?;
        let (tokenizer, target) = task.tokenizers();
        let size = count(tokenizer.vocab_size());
        let vocabulary = match target {
            Some(it) => format!("{size} source and {} target tokens", count(it.vocab_size())),
            None => format!("{size} tokens"),
        };
        note(&format!(
            "vocabulary: {vocabulary} ({:.1}s)",
            start.elapsed().as_secs_f64()
        ));

        let device = first.device.clone().autodiff();
        device.seed(config.run.seed);
        let model = build(config, section, &task, &device)?;
        check_lengths::<T>(&model, DataSplit::Train, &ids.train)?;
        check_lengths::<T>(&model, DataSplit::Valid, &ids.valid)?;
        check_lengths::<T>(&model, DataSplit::Test, &ids.test)?;
        Ok(Self {
            opened,
            reduction,
            texts,
            ids,
            task,
            model,
        })
    }
}

/// Steps of a run, from `training.steps` or `training.epochs`.
fn num_steps<E>(config: &Config, batches: &BoxedBatches<E>, devices: usize) -> usize {
    let training = &config.training;
    let by_epochs = || {
        // A validated config has one of the two.
        let batches = batches.num_batches(training.epochs.unwrap_or(1));
        batches.div_ceil(training.gradient_accumulation * devices)
    };
    training.steps.unwrap_or_else(by_epochs)
}

struct TrainSetup<'a, T: Task> {
    config: &'a Config,
    options: &'a TrainOptions,
    mode: OpenMode,
    folder: RunFolder,
    lock: Option<Lock>,
    metadata: serde_json::Value,
    /// With autodiff; the parameters are on the first.
    devices: Vec<burn::tensor::Device>,
    /// The memory of training on the first device.
    meter: Meter<'a>,
    reduction: Reduction,
    last_step: usize,
    reporter: Reporter,
    data: DataFingerprint,
    batches: BoxedBatches<T::Example>,
    valid: Vec<T::Example>,
    test: Vec<T::Example>,
    texts: Splits<T::Texts>,
    task: T,
}

impl<T: Task> TrainSetup<'_, T> {
    fn check_data(&mut self, progress: &Progress) -> Result<()> {
        let Some(then) = &progress.data else {
            self.reporter.note(
                "the data is not checked: the checkpoint was written by an earlier version, without \
                 a data fingerprint",
            );
            return Ok(());
        };
        let Some((source, difference)) = then.difference(&self.data, self.config) else {
            return Ok(());
        };
        if self.options.accept_changed_data {
            self.reporter.note(&format!(
                "{source} has changed (--accept-changed-data): {difference}"
            ));
            return Ok(());
        }
        Err(TrainError::Refused(format!(
            "cannot resume {}: {source} has changed since the checkpoint of step {}: {difference}\n  \
             help: restore the data or start a new run; --accept-changed-data resumes with the \
             changed data",
            self.folder.path().display(),
            progress.step
        )))
    }

    /// Writes the files that exist before the first step, after all checks have passed.
    fn prepare(&mut self, summary: &str) -> Result<()> {
        let folder = &self.folder;
        if self.mode != OpenMode::Resume {
            folder.create(self.mode, self.config, &self.metadata, &mut self.lock)?;
            for (name, text) in self.task.files()? {
                write_atomic(&folder.file(name), text.as_bytes())?;
            }
        }
        self.reporter.log_to(&folder.file("log.txt"))?;
        if let Some(warning) = self.lock.as_ref().and_then(Lock::warning) {
            self.reporter.note(&warning);
        }
        self.reporter
            .note(&format!("run: {}", folder.path().display()));
        self.reporter.note(summary);
        Ok(())
    }
}

struct InitParams;

impl ModuleVisitor for InitParams {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.val();
    }
}

/// Opens the data-parallel devices.
fn open_devices(config: &Config) -> Result<Vec<OpenDevice>> {
    let backend = &config.backend;
    let mut ids = vec![backend.name];
    if !backend.devices.is_empty() {
        let indices = backend.devices.iter().copied().map(Some);
        let name = backend.name;
        ids = indices.map(|index| BackendId { index, ..name }).collect();
    }
    let open = |id| Ok(zoo_backend::open(id, backend.dtype)?);
    ids.into_iter().map(open).collect()
}

fn check_precision(config: &Config, opened: &OpenDevice) -> Result<()> {
    let precision = config.precision();
    if opened.dtypes.contains(&precision.dtype()) {
        return Ok(());
    }
    let supported: Vec<String> = opened.dtypes.iter().map(ToString::to_string).collect();
    Err(TrainError::Refused(format!(
        "training.precision = \"{precision}\" is not supported by {opened} (supported: {})",
        supported.join(", ")
    )))
}
