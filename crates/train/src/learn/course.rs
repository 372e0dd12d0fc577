//! The loop: steps, validations, checkpoints, and an end.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::optim::ModuleOptimizer;
use burn::tensor::Bytes;
use zoo_config::{Clipping, Metric};
use zoo_models::Strategy;
use zoo_models::weights::Weights;

use super::gradients::{clipped, norm};
use super::optimizer::optimizer;
use super::pass::Passes;
use super::precision::{Scaling, burn_dtype};
use super::schedule::Rates;
use super::sum::{Sum, read};
use super::{Ending, Example, Finished, Lesson, Started};
use crate::TrainError;
use crate::judge::{Exam, Judge, Judged, Judgement, Speech, bleu_of};
use crate::learn::lesson::Part;
use crate::run::{Best, Checkpoint, Numbers, Progress, Row, TEST, write_atomic};
use crate::show::Interval;
use crate::trained::{Which, weights_of};
use crate::write::generate_config;

/// A run on its way.
pub(super) struct Course<'a, M: Judged> {
    started: Started<'a>,
    speech: Speech<'a>,
    lesson: Lesson<M>,
    /// Taken out for a step: an optimizer that has it alone writes in place.
    model: Option<M>,
    optimizer: ModuleOptimizer,
    rates: Rates,
    passes: Passes,
    scaling: Scaling,
    progress: Progress,
    numbers: Numbers,
    first: usize,
    last_step: usize,
    /// Seconds of earlier parts of the run.
    before: f64,
    start: Instant,
}

impl<'a, M: Judged> Course<'a, M> {
    pub(super) fn new(
        mut started: Started<'a>,
        model: M,
        mut lesson: Lesson<M>,
        speech: Speech<'a>,
    ) -> Result<Self, TrainError> {
        let config = started.config;
        let training = &config.training;
        let a_step = training.accumulate * started.devices.len();
        let last_step = match (training.steps, training.epochs) {
            (Some(steps), _) => steps,
            (None, Some(epochs)) => lesson.batches.batches_of(epochs).div_ceil(a_step),
            (None, None) => unreachable!("a config that was read says how long"),
        };
        let mut optimizer = optimizer(&config.optimizer);
        let mut model = model;
        let mut progress = Progress::default();
        if started.options.resume {
            let checkpoints = started.folder.checkpoints();
            let newest = checkpoints.steps()?.last().copied();
            let newest = newest.ok_or_else(|| TrainError::NoCheckpoint {
                folder: started.folder.path().into(),
            })?;
            let step = started.options.step.unwrap_or(newest);
            let goes_on = |whole: usize| format!("--step {whole} goes on from it");
            let checkpoint = checkpoints.read_or(step, goes_on)?;
            started.check_data(&checkpoint.progress)?;
            model = checkpoint.weights.apply(model)?;
            let memory = Bytes::from_bytes_vec(checkpoint.optimizer);
            optimizer = optimizer
                .from_bytes(memory)
                .map_err(|error| TrainError::Damaged {
                    folder: checkpoints.folder_of(step),
                    why: error.to_string(),
                    instead: checkpoints.nearest(step, goes_on),
                })?;
            progress = checkpoint.progress;
            let about = started.about.clone();
            let about = about.resumed(started.folder.about()?, progress.step);
            started.folder.describe(&about)?;
            lesson.batches.go_to(progress.position);
            checkpoints.forget_after(progress.step)?;
            if let Some(best) = &progress.best {
                checkpoints.set_best(best)?;
            }
        }
        progress.data = Some(started.data.clone());
        let numbers = Numbers::open(&started.folder, progress.step)?;
        Ok(Self {
            rates: Rates::of(config, last_step),
            passes: Passes {
                devices: started.devices.clone(),
                smoothing: training.label_smoothing,
                precision: burn_dtype(config.precision()),
                kept: burn_dtype(config.backend.dtype),
                seed: config.run.seed,
            },
            scaling: Scaling::of(config).resumed(progress.scale),
            before: progress.seconds,
            first: progress.step,
            model: Some(model),
            started,
            speech,
            lesson,
            optimizer,
            progress,
            numbers,
            last_step,
            start: Instant::now(),
        })
    }

    /// Gives the terminal back.
    pub(super) fn end(&mut self) {
        self.started.show.end();
    }

    /// Goes to the end, or to where it is stopped.
    pub(super) fn run(&mut self) -> Result<Finished, TrainError> {
        let config = self.started.config;
        let [log_every, validate_every, checkpoint_every] = [
            config.training.log_every,
            config.validation.every,
            config.training.checkpoint_every,
        ];
        let first = self.progress.step;
        if first > 0 {
            self.started
                .show
                .note(&format!("goes on after step {first}"));
        }
        if let Some(zoo_config::Strategy::Beam(beam)) = config.strategy()
            && !self.lesson.valid.examples.is_empty()
        {
            self.started.show.note(&format!(
                "validation: by greedy decoding, beams = {} are for the test and for use",
                beam.beams
            ));
        }
        self.started.show.start(first, self.last_step);
        let mut ending = Ending::Complete;
        let mut sum = Sum::new(self.progress.unshown);
        while self.progress.step < self.last_step {
            self.step(&mut sum)?;
            let step = self.progress.step;
            let is_last = step == self.last_step;
            self.started.show.step(step);
            if step.is_multiple_of(log_every) || is_last {
                self.log(&mut sum)?;
            }
            let mut is_best = false;
            if step.is_multiple_of(validate_every) || is_last {
                is_best = self.validate()?;
                // What is measured is learning.
                sum.start = Instant::now();
                sum.tokens = 0;
            }
            let is_asked = self.started.options.interrupter.should_stop() && !is_last;
            let is_enough = self.is_enough() && !is_last;
            if step.is_multiple_of(checkpoint_every) || is_last || is_best || is_asked || is_enough
            {
                self.progress.unshown = sum.unshown();
                self.save(is_best)?;
            }
            if is_asked {
                ending = Ending::Interrupted;
                break;
            }
            if is_enough {
                ending = Ending::Early;
                break;
            }
        }
        self.numbers.finish(config.metric())?;
        self.conclude(ending)
    }

    /// One step of the optimizer.
    fn step(&mut self, sum: &mut Sum) -> Result<(), TrainError> {
        let config = self.started.config;
        let step = self.progress.step + 1;
        let count = config.training.accumulate * self.passes.devices.len();
        let batches: Vec<Vec<M::Example>> =
            (0..count).map(|_| self.lesson.batches.next()).collect();
        sum.tokens += batches.iter().flatten().map(Example::tokens).sum::<usize>();
        let Some(model) = self.model.take() else {
            unreachable!("a model is there between steps");
        };
        let passed = self
            .passes
            .make(&model, &batches, step, self.scaling.scale())
            .map_err(TrainError::model(format!("step {step}")))?;

        let clipping = config.optimizer.clipping();
        let needs_norm = matches!(clipping, Clipping::Norm(_)) || self.scaling.watches();
        let size = match needs_norm {
            true => norm(&model, &passed.gradients),
            false => None,
        };
        let reads = self.started.on_cpu || self.scaling.watches();
        let known = match reads {
            true => size
                .clone()
                .map(|norm| f64::from(norm.into_scalar::<f32>())),
            false => None,
        };
        let is_finite = !self.scaling.watches() || known.is_some_and(f64::is_finite);
        if !self.scaling.watched(is_finite) {
            return Err(TrainError::Overflow {
                step,
                scale: self.scaling.scale(),
                usable: self.newest_usable(),
            });
        }
        let model = match is_finite {
            true => {
                let rate = self.rates.at(step, self.progress.falls);
                let gradients = clipped(&model, passed.gradients, clipping, size.as_ref(), known);
                self.optimizer.step(rate, model, gradients)
            }
            // Too large for their numbers: the next step has a smaller scale.
            false => model,
        };
        self.model = Some(model);
        self.progress.step = step;
        self.progress.position = self.lesson.batches.position();
        self.progress.scale = self.scaling.state();
        sum.add(passed.loss, size);
        Ok(())
    }

    /// Shows and notes the numbers since the last time.
    fn log(&mut self, sum: &mut Sum) -> Result<(), TrainError> {
        let Some(loss) = sum.take_mean() else {
            return Ok(());
        };
        let step = self.progress.step;
        let seconds = self.seconds();
        let so_far = self.start.elapsed().as_secs_f64();
        let made = (step - self.first) as f64;
        let interval = Interval {
            step,
            epoch: self.progress.position.epoch,
            loss,
            rate: self.rates.at(step, self.progress.falls),
            norm: sum.norm.take().map(read),
            tokens_per_second: sum.tokens as f64 / sum.start.elapsed().as_secs_f64().max(1e-9),
            seconds,
            left: so_far / made.max(1.0) * (self.last_step - step) as f64,
        };
        self.started.show.trained(&interval);
        let mut values = BTreeMap::from([
            ("epoch".to_owned(), interval.epoch as f64),
            ("loss".to_owned(), loss),
            ("rate".to_owned(), interval.rate),
            ("tokens_per_second".to_owned(), interval.tokens_per_second),
            ("seconds".to_owned(), seconds),
        ]);
        if let Some(norm) = interval.norm {
            values.insert("norm".to_owned(), norm);
        }
        if let Some(scale) = self.progress.scale {
            values.insert("loss_scale".to_owned(), scale.scale);
        }
        self.numbers.add(Row {
            part: "train".to_owned(),
            step,
            values,
        })?;
        *sum = Sum::new(None);
        match loss.is_finite() {
            true => Ok(()),
            false => Err(TrainError::NotANumber {
                loss,
                step,
                usable: self.newest_usable(),
            }),
        }
    }

    /// Asks what was learned. Returns whether it is the best so far.
    fn validate(&mut self) -> Result<bool, TrainError> {
        if self.lesson.valid.examples.is_empty() {
            return Ok(false);
        }
        let config = self.started.config;
        let Some(model) = &self.model else {
            unreachable!("a model is there between steps");
        };
        let mut judge = self.judge(config.validation.samples);
        // Beams would take several times as long, and every model is asked in the same way.
        if let Some(generate) = &mut judge.generate
            && matches!(generate.strategy, Strategy::Beam { .. })
        {
            generate.strategy = Strategy::Greedy;
        }
        let judgement = self.asked(&model.valid(), &self.lesson.valid, judge)?;
        let metric = config.metric();
        let value = judgement.value(metric).unwrap_or(f64::NAN);
        let loss = judgement.value(Metric::Loss);
        let is_best = match &self.progress.best {
            Some(best) => best.is_beaten_by(metric, value, loss),
            None => value.is_finite() && loss.is_none_or(f64::is_finite),
        };
        if is_best {
            self.progress.best = Some(Best {
                step: self.progress.step,
                metric: metric.word().to_owned(),
                value,
                loss,
            });
        }
        self.progress.waited = match is_best {
            true => 0,
            false => self.progress.waited + 1,
        };
        self.progress.falls = self.rates.validated(is_best, self.progress.falls);
        self.started.show.validated(&judgement, is_best);
        self.note("valid", &judgement)?;
        Ok(is_best)
    }

    fn note(&mut self, part: &str, judgement: &Judgement) -> Result<(), TrainError> {
        let values = judgement.values().into_iter();
        self.numbers.add(Row {
            part: part.to_owned(),
            step: self.progress.step,
            values: values
                .map(|(metric, value)| (metric.word().to_owned(), value))
                .collect(),
        })
    }

    fn judge(&self, samples: usize) -> Judge {
        let config = self.started.config;
        Judge {
            generate: config.decoding.as_ref().map(|_| generate_config(config)),
            bleu: bleu_of(config),
            samples,
            device: self.passes.devices[0].clone().inner(),
        }
    }

    fn asked(&self, model: &M, part: &Part<M>, judge: Judge) -> Result<Judgement, TrainError> {
        let exam = Exam {
            examples: &part.examples,
            texts: &part.texts,
            speech: self.speech,
        };
        model.judge(&exam, &judge)
    }

    /// Whether validation has got no better for long enough.
    fn is_enough(&self) -> bool {
        let patience = self.started.config.validation.patience;
        patience.is_some_and(|patience| self.progress.waited >= patience)
    }

    fn save(&mut self, is_best: bool) -> Result<(), TrainError> {
        self.progress.seconds = self.seconds();
        let Some(model) = &self.model else {
            unreachable!("a model is there between steps");
        };
        let weights = Weights::of(model);
        // What is not written cannot take the place of a good checkpoint.
        if let Some(tensor) = weights.first_non_finite() {
            return Err(TrainError::NonFiniteWeights {
                step: self.progress.step,
                tensor: tensor.to_owned(),
                usable: self.newest_usable(),
            });
        }
        self.progress.parameters = weights.param_ids();
        let memory = self.optimizer.into_bytes();
        let memory = memory.map_err(|error| TrainError::Refused(error.to_string()))?;
        let checkpoints = self.started.folder.checkpoints();
        checkpoints.write(&Checkpoint {
            weights,
            optimizer: memory.to_vec(),
            progress: self.progress.clone(),
        })?;
        if is_best && let Some(best) = &self.progress.best {
            checkpoints.set_best(best)?;
        }
        checkpoints.prune(self.started.config.training.keep)
    }

    /// The test, with the best weights.
    fn conclude(&mut self, ending: Ending) -> Result<Finished, TrainError> {
        let folder = self.started.folder.clone();
        let best = folder.checkpoints().best()?;
        let mut test = None;
        if ending != Ending::Interrupted && !self.lesson.test.examples.is_empty() {
            let Some(model) = &self.model else {
                unreachable!("a model is there between steps");
            };
            let mut model = model.valid();
            let mut step = Some(self.progress.step);
            match weights_of(&folder, Which::Best) {
                Ok((best, of)) => {
                    model = best.apply(model)?;
                    step = of;
                }
                // All steps were made: that is not to be lost with one of its files.
                Err(TrainError::Damaged { folder, why, .. }) => {
                    let folder = folder.display();
                    let note = format!(
                        "{folder} is damaged: {why}\nthe test is of the last weights instead"
                    );
                    self.started.show.note(&note);
                }
                Err(error) => return Err(error),
            }
            let judgement = self.asked(&model, &self.lesson.test, self.judge(0))?;
            self.note(TEST, &judgement)?;
            self.write_result(&judgement, step)?;
            test = Some(judgement);
        }
        Ok(Finished {
            folder,
            steps: self.progress.step,
            best,
            test,
            seconds: self.seconds(),
            ending,
        })
    }

    fn write_result(&self, judgement: &Judgement, step: Option<usize>) -> Result<(), TrainError> {
        let values: BTreeMap<&str, f64> = judgement
            .values()
            .into_iter()
            .map(|(metric, value)| (metric.word(), value))
            .collect();
        let result = serde_json::json!({
            "part": "test",
            "checkpoint": step,
            "examples": self.lesson.test.examples.len(),
            "values": values,
        });
        let path = self.started.folder.file("result.json");
        write_atomic(&path, format!("{result:#}\n").as_bytes())
    }

    /// Seconds of the run, its earlier parts counted.
    fn seconds(&self) -> f64 {
        self.before + self.start.elapsed().as_secs_f64()
    }

    /// The step of the newest checkpoint that can be read and has finite weights.
    fn newest_usable(&self) -> Option<usize> {
        let checkpoints = self.started.folder.checkpoints();
        let mut steps = checkpoints.steps().ok()?.into_iter().rev();
        steps.find(|step| checkpoints.is_whole(*step))
    }
}
