//! The training loop: steps, validation, checkpoints and the final test.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Bytes;
use zoo_config::{Clipping, Metric};
use zoo_models::Strategy;
use zoo_models::weights::Weights;

use super::forward_backward::{ForwardBackward, StepGradients};
use super::gradients::{clip, grad_norm};
use super::optimizer::init_optimizer;
use super::precision::{LossScaler, burn_dtype};
use super::running_loss::{RunningLoss, read};
use super::schedule::LrSchedule;
use super::{StopReason, TrainOutput, TrainSetup};
use crate::evaluate::{Evaluator, Metrics};
use crate::memory::is_cpu;
use crate::report::summary::summary_lines;
use crate::report::{Interval, TrainingStart};
use crate::run::{
    BestCheckpoint, Checkpoint, MEMORY, MetricsLog, Progress, Row, TEST, add_finish, add_resume,
    write_atomic,
};
use crate::task::{Example, Task, evaluate_examples};
use crate::trained::{CheckpointChoice, load_weights};
use crate::{Result, TrainError};

pub(super) struct Trainer<'a, T: Task> {
    setup: TrainSetup<'a, T>,
    optimizer: ModuleOptimizer,
    schedule: LrSchedule,
    forward_backward: ForwardBackward,
    loss_scaler: LossScaler,
    progress: Progress,
    metrics_log: MetricsLog,
    running_loss: RunningLoss,
    first_step: usize,
    last_step: usize,
    previous_seconds: f64,
    start: Instant,
}

impl<'a, T: Task> Trainer<'a, T> {
    pub(super) fn new(
        mut setup: TrainSetup<'a, T>,
        mut model: T::Model,
    ) -> Result<(Self, T::Model)> {
        let config = setup.config;
        let training = &config.training;
        let mut optimizer = init_optimizer(&config.optimizer);
        let mut progress = Progress::default();
        if setup.options.resume {
            let checkpoints = setup.folder.checkpoints();
            let last = checkpoints.last()?;
            let step = setup.options.step.unwrap_or(last);
            let usage = |step: usize| format!("use --step {step}");
            let checkpoint = checkpoints.read_or_suggest(step, usage)?;
            setup.check_data(&checkpoint.progress)?;
            model = checkpoint.weights.apply(model)?;
            let state = Bytes::from_bytes_vec(checkpoint.optimizer);
            optimizer = optimizer
                .from_bytes(state)
                .map_err(|error| TrainError::Damaged {
                    folder: checkpoints.checkpoint_dir(step),
                    reason: error.to_string(),
                    fallback: checkpoints.nearest_intact(step, usage),
                })?;
            progress = checkpoint.progress;
            let metadata = add_resume(setup.folder.metadata()?, &setup.metadata, progress.step);
            setup.folder.write_metadata(&metadata)?;
            setup.batches.seek(progress.position);
            checkpoints.remove_after(progress.step)?;
            if let Some(best) = &progress.best {
                checkpoints.set_best(best)?;
            }
        }
        progress.data = Some(setup.data.clone());
        let metrics_log = MetricsLog::open(&setup.folder, progress.step, config.run.tensorboard)?;
        let trainer = Self {
            schedule: LrSchedule::new(config, setup.last_step),
            forward_backward: ForwardBackward {
                devices: setup.devices.clone(),
                reduction: setup.reduction.clone(),
                label_smoothing: training.label_smoothing,
                compute_dtype: burn_dtype(config.precision().dtype()),
                param_dtype: burn_dtype(config.backend.dtype),
                seed: config.run.seed,
            },
            loss_scaler: LossScaler::new(config, progress.scale),
            previous_seconds: progress.seconds,
            first_step: progress.step,
            running_loss: RunningLoss::new(progress.unlogged),
            last_step: setup.last_step,
            setup,
            optimizer,
            progress,
            metrics_log,
            start: Instant::now(),
        };
        Ok((trainer, model))
    }

    pub(super) fn run(&mut self, mut model: T::Model) -> Result<TrainOutput> {
        let config = self.setup.config;
        self.announce();
        let mut stop_reason = StopReason::Completed;
        while self.progress.step < self.last_step && stop_reason == StopReason::Completed {
            let step = self.progress.step + 1;
            let batches = self.next_batches();
            let loss_scale = self.loss_scaler.scale();
            let pass = &self.forward_backward;
            let gradients = pass.compute::<T>(&model, &batches, step, loss_scale);
            let gradients = gradients.map_err(TrainError::model(format!("step {step}")))?;
            model = self.update(model, gradients)?;

            let is_last = step == self.last_step;
            let is_due = |every: usize| step.is_multiple_of(every) || is_last;
            self.setup.reporter.step(step);
            if is_due(config.training.log_every) {
                self.log()?;
            }
            let is_best = is_due(config.validation.every) && self.validate(&model)?;
            if !is_last && self.setup.options.interrupter.should_stop() {
                stop_reason = StopReason::Interrupted;
            } else if !is_last && self.is_out_of_patience() {
                stop_reason = StopReason::EarlyStopping;
            }
            let is_stopping = stop_reason != StopReason::Completed;
            if is_due(config.training.checkpoint_every) || is_best || is_stopping {
                self.save(&model, is_best)?;
            }
        }
        self.metrics_log.write_tables_and_plots(config.metric())?;
        self.finish(&model, stop_reason)
    }

    fn announce(&mut self) {
        let first = self.progress.step;
        let reporter = &mut self.setup.reporter;
        if first > 0 {
            reporter.note(&format!("resuming after step {first}"));
        }
        if let Some(zoo_config::Strategy::Beam(beam)) = self.setup.config.strategy()
            && !self.setup.valid.is_empty()
        {
            reporter.note(&format!(
                "validation uses greedy decoding; the test and inference use {} beams",
                beam.beams
            ));
        }
        let config = self.setup.config;
        let backend = self.setup.metadata["backend"].as_str();
        let best = self.progress.best.as_ref();
        reporter.start(&TrainingStart {
            name: config.run.name.as_deref().unwrap_or_default(),
            folder: self.setup.folder.path(),
            setup: format!("{} on {}", config.model.name(), backend.unwrap_or_default()),
            metric: config.metric(),
            first_step: first,
            last_step: self.last_step,
            previous_seconds: self.previous_seconds,
            history: self.metrics_log.rows(),
            best: best.map(|best| (best.step, best.value)),
        });
        self.running_loss.start = Instant::now();
    }

    /// The batches of a step, for all devices.
    fn next_batches(&mut self) -> Vec<Vec<T::Example>> {
        let devices = self.setup.devices.len();
        let count = self.setup.config.training.gradient_accumulation * devices;
        let batches: Vec<Vec<T::Example>> = (0..count).map(|_| self.setup.batches.next()).collect();
        self.running_loss.tokens += batches.iter().flatten().map(Example::tokens).sum::<usize>();
        batches
    }

    /// Clips the gradients and updates the parameters. Takes the model by value, so that the
    /// optimizer can update in place.
    fn update(&mut self, model: T::Model, step_gradients: StepGradients) -> Result<T::Model> {
        let StepGradients { gradients, loss } = step_gradients;
        let step = self.progress.step + 1;
        let clipping = self.setup.config.optimizer.clipping();
        let checks_overflow = self.loss_scaler.is_dynamic;
        let mut norm = None;
        if matches!(clipping, Clipping::Norm(_)) || checks_overflow {
            norm = grad_norm(&model, &gradients);
        }
        let mut norm_value = None;
        // Reading a scalar synchronises a GPU.
        if is_cpu(self.setup.config.backend.name.backend) || checks_overflow {
            norm_value = norm.clone().map(read);
        }
        let is_finite = !checks_overflow || norm_value.is_some_and(f64::is_finite);
        if !self.loss_scaler.update(is_finite) {
            return Err(self.diverged(format!(
                "gradients overflow at step {step} even with a loss scale of {} (use bf16 or f32 as \
                 training.precision)",
                self.loss_scaler.scale()
            )));
        }
        let model = if is_finite {
            let lr = self.schedule.lr(step, self.progress.plateau);
            let gradients = clip(&model, gradients, clipping, norm.as_ref(), norm_value);
            self.optimizer.step(lr, model, gradients)
        } else {
            // The step is skipped; the next one has a smaller loss scale.
            model
        };
        self.progress.step = step;
        self.progress.position = self.setup.batches.position();
        self.progress.scale = self.loss_scaler.state();
        self.running_loss.add(loss, norm);
        Ok(model)
    }

    fn log(&mut self) -> Result<()> {
        let running = &mut self.running_loss;
        let Some(loss) = running.take_mean() else {
            return Ok(());
        };
        let grad_norm = running.grad_norm.take().map(read);
        let interval_seconds = running.start.elapsed().as_secs_f64().max(1e-9);
        let tokens_per_second = running.tokens as f64 / interval_seconds;
        let step = self.progress.step;
        let seconds = self.seconds();
        let steps_done = (step - self.first_step) as f64;
        let seconds_per_step = self.start.elapsed().as_secs_f64() / steps_done.max(1.0);
        let interval = Interval {
            step,
            epoch: self.progress.position.epoch,
            loss,
            lr: self.schedule.lr(step, self.progress.plateau),
            grad_norm,
            tokens_per_second,
            seconds,
            eta: seconds_per_step * (self.last_step - step) as f64,
        };
        self.setup.reporter.log_interval(&interval);
        let mut values = BTreeMap::from([
            ("epoch".to_owned(), interval.epoch as f64),
            ("loss".to_owned(), loss),
            ("rate".to_owned(), interval.lr),
            ("tokens_per_second".to_owned(), interval.tokens_per_second),
            ("seconds".to_owned(), seconds),
        ]);
        if let Some(grad_norm) = interval.grad_norm {
            values.insert("norm".to_owned(), grad_norm);
        }
        // The peak so far, in bytes, including validations.
        if let Some((memory, _)) = self.setup.meter.peak() {
            values.insert(MEMORY.to_owned(), memory as f64);
        }
        if let Some(scale) = self.progress.scale {
            values.insert("loss_scale".to_owned(), scale.scale);
        }
        self.metrics_log.add(Row {
            part: "train".to_owned(),
            step,
            values,
        })?;
        self.running_loss = RunningLoss::new(None);
        if !loss.is_finite() {
            return Err(self.diverged(format!("the loss is {loss} at step {step}")));
        }
        Ok(())
    }

    /// Evaluates the model on the validation set. Returns whether it is the best so far.
    fn validate(&mut self, model: &T::Model) -> Result<bool> {
        let TrainSetup {
            config,
            task,
            valid,
            texts,
            ..
        } = &self.setup;
        if valid.is_empty() {
            return Ok(false);
        }
        let mut evaluator = self.evaluator(config.validation.samples);
        // Beam search takes several times as long and is not needed to compare checkpoints.
        if let Some(generate) = &mut evaluator.generate
            && matches!(generate.strategy, Strategy::Beam { .. })
        {
            generate.strategy = Strategy::Greedy;
        }
        let metrics = evaluate_examples(task, &model.valid(), valid, &texts.valid, &evaluator)?;
        let metric = config.metric();
        let value = metrics.value(metric).unwrap_or(f64::NAN);
        let loss = metrics.value(Metric::Loss);
        let is_best = match &self.progress.best {
            Some(best) => best.is_beaten_by(metric, value, loss),
            None => value.is_finite() && loss.is_none_or(f64::is_finite),
        };
        let progress = &mut self.progress;
        progress.bad_validations += 1;
        if is_best {
            progress.bad_validations = 0;
            progress.best = Some(BestCheckpoint {
                step: progress.step,
                metric: metric.name().to_owned(),
                value,
                loss,
            });
        }
        self.schedule.update_plateau(is_best, &mut progress.plateau);
        self.setup.reporter.log_validation(&metrics, is_best);
        self.add_metrics("valid", &metrics)?;
        self.metrics_log.write_tables_and_plots(metric)?;
        // Throughput is measured without validation.
        self.running_loss.start = Instant::now();
        self.running_loss.tokens = 0;
        Ok(is_best)
    }

    fn add_metrics(&mut self, split: &str, metrics: &Metrics) -> Result<()> {
        self.metrics_log.add(Row {
            part: split.to_owned(),
            step: self.progress.step,
            values: metrics.to_map(),
        })
    }

    fn evaluator(&self, samples: usize) -> Evaluator {
        let device = self.setup.devices[0].clone().inner();
        Evaluator::new(self.setup.config, samples, device)
    }

    fn is_out_of_patience(&self) -> bool {
        let patience = self.setup.config.validation.patience;
        patience.is_some_and(|patience| self.progress.bad_validations >= patience)
    }

    fn save(&mut self, model: &T::Model, is_best: bool) -> Result<()> {
        self.progress.seconds = self.seconds();
        self.progress.unlogged = self.running_loss.unlogged();
        let weights = Weights::from_model(model);
        // A diverged model must not replace a good checkpoint.
        if let Some(tensor) = weights.first_non_finite() {
            return Err(self.diverged(format!(
                "the weights at step {} are not finite ({tensor}) and were not saved",
                self.progress.step
            )));
        }
        self.progress.parameters = weights.param_ids();
        let state = self.optimizer.into_bytes();
        let state = state.map_err(|error| TrainError::Refused(error.to_string()))?;
        let checkpoints = self.setup.folder.checkpoints();
        checkpoints.write(&Checkpoint {
            weights,
            optimizer: state.to_vec(),
            progress: self.progress.clone(),
        })?;
        if is_best && let Some(best) = &self.progress.best {
            checkpoints.set_best(best)?;
        }
        checkpoints.prune(self.setup.config.training.keep_checkpoints)
    }

    fn finish(&mut self, model: &T::Model, stop_reason: StopReason) -> Result<TrainOutput> {
        let folder = self.setup.folder.clone();
        let best = folder.checkpoints().best()?;
        let mut test_metrics = None;
        if stop_reason != StopReason::Interrupted && !self.setup.test.is_empty() {
            let mut model = model.valid();
            let mut step = Some(self.progress.step);
            match load_weights(&folder, CheckpointChoice::Best) {
                Ok((best, best_step)) => {
                    model = best.apply(model)?;
                    step = best_step;
                }
                // A damaged file must not fail a run that has completed all steps.
                Err(TrainError::Damaged { folder, reason, .. }) => {
                    let folder = folder.display();
                    let note = format!(
                        "{folder} is damaged: {reason}\nthe last weights are tested instead"
                    );
                    self.setup.reporter.note(&note);
                }
                Err(error) => return Err(error),
            }
            let TrainSetup {
                task, test, texts, ..
            } = &self.setup;
            let metrics = evaluate_examples(task, &model, test, &texts.test, &self.evaluator(0))?;
            self.add_metrics(TEST, &metrics)?;
            self.write_result(&metrics, step)?;
            test_metrics = Some(metrics);
        }
        if stop_reason != StopReason::Interrupted {
            folder.write_metadata(&add_finish(folder.metadata()?))?;
        }
        let output = TrainOutput {
            folder,
            steps: self.progress.step,
            best,
            test: test_metrics,
            seconds: self.seconds(),
            stop_reason,
        };
        self.setup.reporter.close();
        for line in summary_lines(&output, self.setup.config) {
            self.setup.reporter.note(&line);
        }
        Ok(output)
    }

    fn write_result(&self, metrics: &Metrics, step: Option<usize>) -> Result<()> {
        let result = serde_json::json!({
            "part": "test",
            "checkpoint": step,
            "examples": self.setup.test.len(),
            "values": metrics.to_map(),
        });
        let path = self.setup.folder.file("result.json");
        write_atomic(&path, format!("{result:#}\n").as_bytes())
    }

    /// Training time in seconds, including the time before a resume.
    fn seconds(&self) -> f64 {
        self.previous_seconds + self.start.elapsed().as_secs_f64()
    }

    /// The error of a diverged run, with the newest intact checkpoint.
    fn diverged(&self, what: String) -> TrainError {
        let checkpoints = self.setup.folder.checkpoints();
        let mut steps = checkpoints.steps().unwrap_or_default().into_iter().rev();
        let intact = match steps.find(|step| checkpoints.is_intact(*step)) {
            Some(step) => format!(
                "the checkpoint of step {step} is intact: evaluate it with --checkpoint {step}, or \
                 continue from it with --resume --step {step}"
            ),
            None => "there is no intact checkpoint".to_owned(),
        };
        TrainError::Refused(format!(
            "{what}\n  help: start a run with a lower optimizer.learning_rate, a longer \
             schedule.warmup or optimizer.clipping; {intact}"
        ))
    }
}
