//! Learning: from a config to a run's folder with a trained model in it.
//!
//! The loop counts steps, not epochs as Burn's `SupervisedTraining` does, for three reasons: a
//! run must go on bit for bit from any of its steps; gradients of several batches are those of
//! one large batch, by what there is to be said in each; and clipping takes all gradients
//! together. Burn's optimizers, accumulator and dashboard are used as they are.

mod batches;
mod course;
mod example;
mod fingerprint;
mod gradients;
mod lesson;
mod model;
mod optimizer;
mod pass;
mod precision;
mod schedule;
mod sum;

use std::time::Instant;

use burn::module::{ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn_train::Interrupter;
use zoo_backend::{BackendWord, Opened};
use zoo_config::Config;
use zoo_models::{Classifier, Gpt, Han, Seq2Seq, Transformer};

use self::batches::Batches;
pub(crate) use self::batches::pieces_of;
use self::course::Course;
pub use self::example::{Example, TextWindow};
use self::fingerprint::DataChange;
pub(crate) use self::fingerprint::DataFingerprint;
use self::lesson::Lesson;
pub(crate) use self::lesson::check_lengths;
pub use self::model::Learns;
pub(crate) use self::schedule::Falls;
pub(crate) use self::sum::Unshown;
use crate::memory::check_training;
use crate::run::{About, Best, Lock, Opening, Progress, RunFolder};
use crate::show::Show;
use crate::{AnyModel, Examples, Judged, Judgement, Tokenizers, TrainError, read_texts};

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
pub fn train(config: &Config, options: &TrainOptions) -> Result<Finished, TrainError> {
    let opening = match (options.resume, options.overwrite) {
        (true, _) => Opening::Resume,
        (false, true) => Opening::Overwrite,
        (false, false) => Opening::New,
    };
    check_training(config, None)?;
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
    let [first, ..] = opened.as_slice() else {
        unreachable!("there is a device");
    };
    show.note(&format!("device: {first}"));
    check_precision(config, first)?;

    let start = Instant::now();
    let read = read_texts(config)?;
    read.notes.iter().for_each(|note| show.note(note));
    // What was learned before is taken again: a text may be cut in more ways than one.
    let tokenizers = match opening {
        Opening::Resume => Tokenizers::load(config, folder.path())?,
        Opening::New | Opening::Overwrite => Tokenizers::prepare(config, &read.texts)?,
    };
    let (examples, notes) = tokenizers.encode(config, &read.texts)?;
    notes.iter().for_each(|note| show.note(note));
    check_lengths(config, &examples)?;
    check_training(config, Some((&tokenizers, &examples)))?;
    let vocabulary = match tokenizers.sizes() {
        (source, Some(target)) => format!("{source} and {target} tokens"),
        (one, None) => format!("{one} tokens"),
    };
    show.note(&format!(
        "vocabulary: {vocabulary}, made in {:.1} s",
        start.elapsed().as_secs_f64()
    ));

    let device = first.device.clone().autodiff();
    device.seed(config.run.seed);
    let model = AnyModel::build(config, &tokenizers, &device)?;
    let started = Started {
        config,
        options,
        opening,
        folder,
        lock,
        about: About::now(config, first),
        tokenizers: &tokenizers,
        data: DataFingerprint::of(&examples),
        devices: opened
            .iter()
            .map(|it| it.device.clone().autodiff())
            .collect(),
        on_cpu: is_cpu(first.word),
        show,
    };
    let texts = &read.texts;
    match (model, examples) {
        (AnyModel::Transformer(model), Examples::Pairs(parts)) => {
            let lesson = Lesson::<Transformer>::of_examples(config, parts, texts)?;
            started.learn(model, lesson)
        }
        (AnyModel::Seq2Seq(model), Examples::Pairs(parts)) => {
            let lesson = Lesson::<Seq2Seq>::of_examples(config, parts, texts)?;
            started.learn(model, lesson)
        }
        (AnyModel::Classifier(model), Examples::Labelled(parts)) => {
            let lesson = Lesson::<Classifier>::of_examples(config, parts, texts)?;
            started.learn(model, lesson)
        }
        (AnyModel::Han(model), Examples::Documents(parts)) => {
            let lesson = Lesson::<Han>::of_examples(config, parts, texts)?;
            started.learn(model, lesson)
        }
        (AnyModel::Gpt(model), Examples::Plain(parts)) => {
            let lesson = Lesson::<Gpt>::of_text(config, parts)?;
            started.learn(model, lesson)
        }
        _ => unreachable!("the config was checked: its model takes its data"),
    }
}

/// Everything but a model and its examples.
struct Started<'a> {
    config: &'a Config,
    options: &'a TrainOptions,
    opening: Opening,
    folder: RunFolder,
    /// Held until the run is over.
    lock: Option<Lock>,
    about: About,
    tokenizers: &'a Tokenizers,
    data: DataFingerprint,
    /// With gradients.
    devices: Vec<burn::tensor::Device>,
    on_cpu: bool,
    show: Show,
}

impl Started<'_> {
    fn learn<M: Judged>(mut self, model: M, lesson: Lesson<M>) -> Result<Finished, TrainError> {
        self.prepare(&model.to_string())?;
        let speech = self.tokenizers.speech();
        // Weights are drawn when they are first asked for: now, in their order.
        model.visit(&mut Draw);
        let mut course = Course::new(self, model, lesson, speech)?;
        let result = course.run();
        course.end();
        result
    }

    /// That the data is what the checkpoint's run was trained with.
    fn check_data(&mut self, progress: &Progress) -> Result<(), TrainError> {
        let Some(then) = &progress.data else {
            self.show.note(
                "the data is not checked: the checkpoint is of an earlier version, and does not \
                 say what it was trained with",
            );
            return Ok(());
        };
        let Some(change) = then.change(&self.data, self.config) else {
            return Ok(());
        };
        if self.options.accept_changed_data {
            let DataChange { source, what } = change;
            self.show
                .note(&format!("{source} has changed, which is accepted: {what}"));
            return Ok(());
        }
        Err(TrainError::OtherData {
            folder: self.folder.path().into(),
            step: progress.step,
            source_of_data: change.source,
            what: change.what,
        })
    }

    /// Writes what is to be known before the first step. Until here nothing was wrong.
    fn prepare(&mut self, summary: &str) -> Result<(), TrainError> {
        let folder = &self.folder;
        if self.opening != Opening::Resume {
            let lock = self.lock.take();
            let lock = folder.create(self.opening, self.config, &self.about, lock)?;
            self.lock = Some(lock);
            self.tokenizers.save(folder.path())?;
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
fn open_all(config: &Config) -> Result<Vec<Opened>, TrainError> {
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

fn check_precision(config: &Config, opened: &Opened) -> Result<(), TrainError> {
    let precision = config.precision();
    match opened.dtypes.contains(&precision) {
        true => Ok(()),
        false => Err(TrainError::Precision {
            precision,
            device: opened.to_string(),
            supported: opened.dtypes.clone(),
        }),
    }
}

/// Whether reading a number costs nothing, for nothing is computed ahead.
fn is_cpu(word: BackendWord) -> bool {
    use zoo_backend::Backend;
    matches!(
        word.backend,
        Backend::Flex | Backend::Ndarray | Backend::TchCpu
    )
}
