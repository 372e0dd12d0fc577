//! Benchmarks of a model: training step, forward pass or generation.

mod bench_model;
mod reference;

use anyhow::{Context, Result};
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor};
use zoo_bench_core::case::{Fault, Pass};
use zoo_bench_core::model::{Model, Setup, Size};
use zoo_bench_core::record::{Measured, Outcome, Peak, Report};
use zoo_kernels::{AdamConfig, AdamKind};
use zoo_models::{Classifier, Gpt, Han, Seq2Seq, Tokens, Transformer, token_loss};
use zoo_spec::Mechanism;

use self::bench_model::{Batch, BenchModel};
use crate::Setting;
use crate::timing::{peak_memory, samples, sync};

struct BenchBatch<M: BenchModel> {
    setup: Setup,
    batch: M::Batch,
    targets: Tokens,
}

impl<M: BenchModel> BenchBatch<M> {
    /// Initialises a model and samples its batch.
    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<(M, Self)> {
        let model = M::new(setup, attention, device)?;
        let (batch, targets) = model.sample_batch(setup, device)?;
        let batch = Self {
            setup: setup.clone(),
            batch,
            targets,
        };
        Ok((model, batch))
    }

    /// Cross-entropy loss: `[1]`.
    fn loss(&self, model: &M) -> Tensor<1> {
        token_loss(model.logits(&self.batch), &self.targets, 0.0)
    }
}

/// Also used by the PyTorch models.
const LEARNING_RATE: f64 = 1e-3;

/// Steps after which the loss must have fallen.
const STEPS: usize = 8;

/// Measures a model. Peak memory comes first, while the process has only run a warm-up; then the
/// results are checked, the time is sampled, and the results are compared with a reference.
pub(crate) fn measure_model(
    setup: &Setup,
    attention: Mechanism,
    setting: Setting<'_>,
) -> Result<Report> {
    let measurement = Measurement {
        setup,
        attention,
        setting,
    };
    match setup.model {
        Model::Han => measurement.run::<Han>(),
        Model::Transformer => measurement.run::<Transformer>(),
        Model::Seq2Seq => measurement.run::<Seq2Seq>(),
        Model::Gpt => measurement.run::<Gpt>(),
        Model::Classifier => measurement.run::<Classifier>(),
    }
}

#[derive(Clone, Copy)]
struct Measurement<'a> {
    setup: &'a Setup,
    attention: Mechanism,
    setting: Setting<'a>,
}

impl Measurement<'_> {
    fn run<M: BenchModel>(self) -> Result<Report> {
        let Setting { pass, opened, .. } = self.setting;
        let device = self.setting.device();
        // Equal weights in every round.
        device.seed(0);
        // Warm-up: starts threads and initialises backend and kernels.
        let tiny = Setup::new(self.setup.model, Size::Tiny);
        self.workload::<M>(&tiny, &device)?.run()?;
        sync(&device)?;

        let make = || self.workload::<M>(self.setup, &device);
        // The optimizer has its moments from the second step on.
        let (work, peak) = peak_memory(opened, &device, make, Workload::run, 2)?;
        let model = work.model()?;
        let (parameters, forward) = model.count(self.setup);
        let flops = match pass {
            Pass::Train => 3.0 * forward,
            Pass::Forward | Pass::Decode => forward,
            Pass::Generate => model.generation_flops(self.setup),
        };
        Ok(Report {
            parameters: Some(parameters as u64),
            work: Some(flops),
            ..self.outcome(work, peak, &device)?.into()
        })
    }

    /// Checks the results and samples the time.
    fn outcome<M: BenchModel>(
        &self,
        mut work: Workload<M>,
        peak: Option<Peak>,
        device: &Device,
    ) -> Result<Outcome> {
        let checked = match work.check()? {
            Ok(checked) => checked,
            Err(detail) => return Ok(Outcome::wrong(detail)),
        };
        let seconds = samples(device, self.setting.sampling, || work.run())?;
        let last = work.last_loss();
        if self.setting.pass == Pass::Train && !last.is_finite() {
            return Ok(Outcome::wrong(format!("the loss is {last}")));
        }
        drop(work);
        // Last, because it needs additional memory and time.
        Ok(match self.check_reference::<M>(device)? {
            Ok((error, compared)) => Outcome::Measured(Measured {
                seconds,
                peak,
                error,
                checked: Some(format!("{checked}; {compared}")),
            }),
            Err(wrong) => wrong,
        })
    }

    fn workload<M: BenchModel>(&self, setup: &Setup, device: &Device) -> Result<Workload<M>> {
        let (model, batch) = BenchBatch::new(setup, self.attention, device)?;
        Ok(Workload {
            batch,
            model: Some(model),
            optimizer: AdamConfig::new(AdamKind::Adam).init(),
            loss: None,
            pass: self.setting.pass,
            fault: self.setting.fault,
        })
    }
}

/// A repeatable pass of a model. Training steps continue from each other.
struct Workload<M: BenchModel> {
    batch: BenchBatch<M>,
    /// Moved out for a step: the optimizer updates uniquely owned tensors in place.
    model: Option<M>,
    optimizer: ModuleOptimizer,
    loss: Option<Tensor<1>>,
    pass: Pass,
    fault: Option<Fault>,
}

enum PassOutput {
    Step,
    Logits(Box<Tensor<3>>),
    Generated(Vec<Vec<u32>>),
}

impl<M: BenchModel> Workload<M> {
    fn run(&mut self) -> Result<PassOutput> {
        let is_wrong = self.fault == Some(Fault::Wrong);
        let batch = &self.batch;
        match self.pass {
            Pass::Train => {
                // A negative learning rate increases the loss.
                let lr = LEARNING_RATE * if is_wrong { -1.0 } else { 1.0 };
                let model = self.model.take().context("a step has failed before")?;
                let loss = batch.loss(&model);
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                self.model = Some(self.optimizer.step(lr, model, gradients));
                self.loss = Some(loss.detach());
                Ok(PassOutput::Step)
            }
            Pass::Generate => {
                let mut generated = self.model()?.generate(&batch.setup, &batch.batch)?;
                if let (true, Some(tokens)) = (is_wrong, generated.first_mut()) {
                    tokens.pop();
                }
                Ok(PassOutput::Generated(generated))
            }
            Pass::Forward | Pass::Decode => {
                let logits = self.model()?.logits(&batch.batch);
                let logits = if is_wrong { logits / 0.0 } else { logits };
                Ok(PassOutput::Logits(Box::new(logits)))
            }
        }
    }

    fn model(&self) -> Result<&M> {
        self.model.as_ref().context("a step has failed before")
    }

    /// `Ok` with what was checked, or `Err` with what is wrong.
    fn check(&mut self) -> Result<Result<String, String>> {
        match self.run()? {
            PassOutput::Step => self.check_training(),
            PassOutput::Logits(logits) => check_logits(*logits),
            PassOutput::Generated(tokens) => self.check_generated(&tokens),
        }
    }

    fn check_training(&mut self) -> Result<Result<String, String>> {
        let first = self.last_loss();
        for _ in 0..STEPS {
            self.run()?;
        }
        let last = self.last_loss();
        let losses = format!("loss {first:.3} -> {last:.3} in {STEPS} steps");
        let is_learning = first.is_finite() && last < first;
        Ok(is_learning.then(|| losses.clone()).ok_or(losses))
    }

    /// Checks the lengths, and that each token is the argmax of a full forward pass.
    fn check_generated(&self, generated: &[Vec<u32>]) -> Result<Result<String, String>> {
        // Near ties may be broken differently because of rounding.
        const TOLERANCE: f32 = 1e-3;
        let setup = &self.batch.setup;
        let (batch, new) = (setup.batch, setup.generated_len());
        let lengths: Vec<usize> = generated.iter().map(Vec::len).collect();
        if lengths != vec![new; batch] {
            return Ok(Err(format!(
                "generated {lengths:?} tokens, expected {batch} x {new}"
            )));
        }
        let inputs = self.batch.batch.with_generated(generated)?;
        let logits = self.model()?.logits(&inputs);
        let [_, positions, vocabulary] = logits.dims();
        // Without the logits within the prompt.
        let logits = to_vec(logits.slice_dim(1, positions - new..positions))?;
        let max = logits.iter().copied().fold(f32::MIN, f32::max);
        let min = logits.iter().copied().fold(f32::MAX, f32::min);
        let mut gap = 0.0_f32;
        for (logits, token) in logits.chunks(vocabulary).zip(generated.iter().flatten()) {
            let best = logits.iter().copied().fold(f32::MIN, f32::max);
            gap = gap.max((best - logits[*token as usize]) / (max - min));
        }
        if gap < TOLERANCE {
            let checked = format!("{batch} x {new} tokens, each the argmax of a forward pass");
            return Ok(Ok(checked));
        }
        Ok(Err(format!(
            "a token is {gap:.1e} of the logits' range below the argmax of a forward pass"
        )))
    }

    /// Loss of the last step; NaN before the first.
    fn last_loss(&self) -> f32 {
        let loss = self.loss.clone();
        loss.map_or(f32::NAN, |loss| loss.into_scalar::<f32>())
    }
}

fn check_logits(logits: Tensor<3>) -> Result<Result<String, String>> {
    let [batch, _, classes] = logits.dims();
    let are_finite = to_vec(logits)?.iter().all(|logit| logit.is_finite());
    let checked = are_finite.then(|| format!("{batch} x {classes} finite logits"));
    Ok(checked.ok_or_else(|| "a logit is not finite".to_owned()))
}

fn to_vec(tensor: Tensor<3>) -> Result<Vec<f32>> {
    let values = tensor.try_into_vec_as();
    values.map_err(|error| anyhow::anyhow!("cannot read from the device: {error:?}"))
}
