//! The training loop: steps, validations, checkpoints, and an end.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Bytes;
use zoo_config::{Clipping, Metric};
use zoo_models::Strategy;
use zoo_models::weights::Weights;

use super::gradients::{clipped, norm};
use super::optimizer::optimizer;
use super::pass::{Passed, Passes};
use super::precision::{Scaling, burn_dtype};
use super::schedule::Rates;
use super::sum::{Sum, read};
use super::{Ending, Finished, Started};
use crate::evaluate::{Judge, Judgement, bleu_of};
use crate::generate::generate_config;
use crate::run::{Best, Checkpoint, Numbers, Progress, Row, TEST, resumed, write_atomic};
use crate::show::Interval;
use crate::task::{Example, Task, evaluate_examples};
use crate::trained::{Which, weights_of};
use crate::{Result, TrainError};

pub(super) struct Trainer<'a, T: Task> {
    started: Started<'a, T>,
    optimizer: ModuleOptimizer,
    rates: Rates,
    passes: Passes,
    scaling: Scaling,
    progress: Progress,
    numbers: Numbers,
    sum: Sum,
    first: usize,
    last_step: usize,
    /// Seconds of earlier parts of the run.
    before: f64,
    start: Instant,
}

impl<'a, T: Task> Trainer<'a, T> {
    /// A run that begins, or that goes on from a checkpoint, and its model.
    pub(super) fn new(
        mut started: Started<'a, T>,
        mut model: T::Model,
    ) -> Result<(Self, T::Model)> {
        let config = started.config;
        let training = &config.training;
        let a_step = training.accumulate * started.devices.len();
        let last_step = match training.steps {
            Some(steps) => steps,
            None => {
                // A config that was read says one of them.
                let batches = started.batches.batches_of(training.epochs.unwrap_or(1));
                batches.div_ceil(a_step)
            }
        };
        let mut optimizer = optimizer(&config.optimizer);
        let mut progress = Progress::default();
        if started.options.resume {
            let checkpoints = started.folder.checkpoints();
            let newest = checkpoints.last()?;
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
            let about = resumed(started.folder.about()?, &started.about, progress.step);
            started.folder.describe(&about)?;
            started.batches.go_to(progress.position);
            checkpoints.forget_after(progress.step)?;
            if let Some(best) = &progress.best {
                checkpoints.set_best(best)?;
            }
        }
        progress.data = Some(started.data.clone());
        let numbers = Numbers::open(&started.folder, progress.step)?;
        let trainer = Self {
            rates: Rates::of(config, last_step),
            passes: Passes {
                devices: started.devices.clone(),
                smoothing: training.label_smoothing,
                precision: burn_dtype(config.precision()),
                kept: burn_dtype(config.backend.dtype),
                seed: config.run.seed,
            },
            scaling: Scaling::of(config, progress.scale),
            before: progress.seconds,
            first: progress.step,
            sum: Sum::new(progress.unshown),
            started,
            optimizer,
            progress,
            numbers,
            last_step,
            start: Instant::now(),
        };
        Ok((trainer, model))
    }

    /// Trains to the last step, or to where the run is stopped.
    pub(super) fn run(&mut self, mut model: T::Model) -> Result<Finished> {
        let config = self.started.config;
        self.announce();
        let mut ending = Ending::Complete;
        while self.progress.step < self.last_step && ending == Ending::Complete {
            // Forward, backward, and a step of the optimizer.
            let batches = self.next_batches();
            let passed = self.pass(&model, &batches)?;
            model = self.update(model, passed)?;

            let step = self.progress.step;
            let is_last = step == self.last_step;
            let is_due = |every: usize| step.is_multiple_of(every) || is_last;
            self.started.show.step(step);
            if is_due(config.training.log_every) {
                self.log()?;
            }
            let is_best = is_due(config.validation.every) && self.validate(&model)?;
            if !is_last && self.started.options.interrupter.should_stop() {
                ending = Ending::Interrupted;
            } else if !is_last && self.is_enough() {
                ending = Ending::Early;
            }
            if is_due(config.training.checkpoint_every) || is_best || ending != Ending::Complete {
                self.save(&model, is_best)?;
            }
        }
        self.numbers.finish(config.metric())?;
        self.conclude(&model, ending)
    }

    fn announce(&mut self) {
        let first = self.progress.step;
        let show = &mut self.started.show;
        if first > 0 {
            show.note(&format!("goes on after step {first}"));
        }
        if let Some(zoo_config::Strategy::Beam(beam)) = self.started.config.strategy()
            && !self.started.valid.is_empty()
        {
            show.note(&format!(
                "validation: by greedy decoding, beams = {} are for the test and for use",
                beam.beams
            ));
        }
        show.start(first, self.last_step);
        self.sum.start = Instant::now();
    }

    /// The batches of a step, for all devices.
    fn next_batches(&mut self) -> Vec<Vec<T::Example>> {
        let count = self.started.config.training.accumulate * self.passes.devices.len();
        let batches: Vec<Vec<T::Example>> =
            (0..count).map(|_| self.started.batches.next()).collect();
        self.sum.tokens += batches.iter().flatten().map(Example::tokens).sum::<usize>();
        batches
    }

    /// The gradients of the mean loss of these batches.
    fn pass(&self, model: &T::Model, batches: &[Vec<T::Example>]) -> Result<Passed> {
        let step = self.progress.step + 1;
        self.passes
            .make::<T>(model, batches, step, self.scaling.scale())
            .map_err(TrainError::model(format!("step {step}")))
    }

    /// Clips the gradients, and takes a step of the optimizer, which has the model alone and so
    /// writes in place.
    fn update(&mut self, model: T::Model, passed: Passed) -> Result<T::Model> {
        let step = self.progress.step + 1;
        let clipping = self.started.config.optimizer.clipping();
        let watches = self.scaling.watches();
        let size = match matches!(clipping, Clipping::Norm(_)) || watches {
            true => norm(&model, &passed.gradients),
            false => None,
        };
        let known = match self.started.on_cpu || watches {
            true => size.clone().map(read),
            false => None,
        };
        let is_finite = !watches || known.is_some_and(f64::is_finite);
        if !self.scaling.watched(is_finite) {
            return Err(self.diverged(format!(
                "gradients overflow at step {step} even with a loss scale of {}: compute in bf16 or \
                 f32 (training.precision)",
                self.scaling.scale()
            )));
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
        self.progress.step = step;
        self.progress.position = self.started.batches.position();
        self.progress.scale = self.scaling.state();
        self.sum.add(passed.loss, size);
        Ok(model)
    }

    fn log(&mut self) -> Result<()> {
        let sum = &mut self.sum;
        let Some(loss) = sum.take_mean() else {
            return Ok(());
        };
        let norm = sum.norm.take().map(read);
        let tokens_per_second = sum.tokens as f64 / sum.start.elapsed().as_secs_f64().max(1e-9);
        let step = self.progress.step;
        let seconds = self.seconds();
        let so_far = self.start.elapsed().as_secs_f64();
        let made = (step - self.first) as f64;
        let interval = Interval {
            step,
            epoch: self.progress.position.epoch,
            loss,
            rate: self.rates.at(step, self.progress.falls),
            norm,
            tokens_per_second,
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
        self.sum = Sum::new(None);
        match loss.is_finite() {
            true => Ok(()),
            false => Err(self.diverged(format!("the loss is {loss} after step {step}"))),
        }
    }

    /// Evaluates what was learned. Returns whether it is the best so far.
    fn validate(&mut self, model: &T::Model) -> Result<bool> {
        let Started {
            config,
            task,
            valid,
            texts,
            ..
        } = &self.started;
        if valid.is_empty() {
            return Ok(false);
        }
        let mut judge = self.judge(config.validation.samples);
        // Beams would take several times as long, and every model is asked in the same way.
        if let Some(generate) = &mut judge.generate
            && matches!(generate.strategy, Strategy::Beam { .. })
        {
            generate.strategy = Strategy::Greedy;
        }
        let judgement = evaluate_examples(task, &model.valid(), valid, &texts.valid, &judge)?;
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
        // What is measured is learning.
        self.sum.start = Instant::now();
        self.sum.tokens = 0;
        Ok(is_best)
    }

    fn note(&mut self, part: &str, judgement: &Judgement) -> Result<()> {
        self.numbers.add(Row {
            part: part.to_owned(),
            step: self.progress.step,
            values: judgement.by_name(),
        })
    }

    fn judge(&self, samples: usize) -> Judge {
        let config = self.started.config;
        Judge {
            generate: generate_config(config).ok(),
            bleu: bleu_of(config),
            samples,
            device: self.passes.devices[0].clone().inner(),
        }
    }

    /// Whether validation has got no better for long enough.
    fn is_enough(&self) -> bool {
        let patience = self.started.config.validation.patience;
        patience.is_some_and(|patience| self.progress.waited >= patience)
    }

    fn save(&mut self, model: &T::Model, is_best: bool) -> Result<()> {
        self.progress.seconds = self.seconds();
        self.progress.unshown = self.sum.unshown();
        let weights = Weights::of(model);
        // What is not written cannot take the place of a good checkpoint.
        if let Some(tensor) = weights.first_non_finite() {
            return Err(self.diverged(format!(
                "the weights are no longer finite after step {} ({tensor}), and were not saved",
                self.progress.step
            )));
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
    fn conclude(&mut self, model: &T::Model, ending: Ending) -> Result<Finished> {
        let folder = self.started.folder.clone();
        let best = folder.checkpoints().best()?;
        let mut tested = None;
        if ending != Ending::Interrupted && !self.started.test.is_empty() {
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
            let Started {
                task, test, texts, ..
            } = &self.started;
            let judgement = evaluate_examples(task, &model, test, &texts.test, &self.judge(0))?;
            self.note(TEST, &judgement)?;
            self.write_result(&judgement, step)?;
            tested = Some(judgement);
        }
        Ok(Finished {
            folder,
            steps: self.progress.step,
            best,
            test: tested,
            seconds: self.seconds(),
            ending,
        })
    }

    fn write_result(&self, judgement: &Judgement, step: Option<usize>) -> Result<()> {
        let result = serde_json::json!({
            "part": "test",
            "checkpoint": step,
            "examples": self.started.test.len(),
            "values": judgement.by_name(),
        });
        let path = self.started.folder.file("result.json");
        write_atomic(&path, format!("{result:#}\n").as_bytes())
    }

    /// Seconds of the run, its earlier parts counted.
    fn seconds(&self) -> f64 {
        self.before + self.start.elapsed().as_secs_f64()
    }

    /// The error of a run that has diverged: what was seen, what to do, and the newest checkpoint
    /// that can be read and has finite weights.
    fn diverged(&self, what: String) -> TrainError {
        let checkpoints = self.started.folder.checkpoints();
        let mut steps = checkpoints.steps().unwrap_or_default().into_iter().rev();
        let usable = match steps.find(|step| checkpoints.is_whole(*step)) {
            Some(step) => format!(
                "the checkpoint of step {step} can be used: --checkpoint {step} evaluates it, \
                 --resume --step {step} goes on from it"
            ),
            None => "there is no checkpoint that can be used".to_owned(),
        };
        TrainError::Refused(format!(
            "{what}.\n  do: begin a run with a smaller optimizer.learning_rate, a longer \
             schedule.warmup or optimizer.clipping; {usable}"
        ))
    }
}
