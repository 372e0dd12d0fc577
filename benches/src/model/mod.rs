//! A model: a step of training, a forward pass, or the generation of a batch of texts.

mod kinds;
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

use self::kinds::Kind;
use crate::Setting;
use crate::timing::{peak_of, samples, wait_for};

/// The batch that a model is measured on.
struct Sample<M: Kind> {
    setup: Setup,
    batch: M::Batch,
    /// What should be said of it.
    targets: Tokens,
}

impl<M: Kind> Sample<M> {
    /// Makes the model, and draws its batch.
    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<(M, Self)> {
        let model = M::new(setup, attention, device)?;
        let (batch, targets) = model.draw(setup, device)?;
        let sample = Self {
            setup: setup.clone(),
            batch,
            targets,
        };
        Ok((model, sample))
    }

    /// The cross-entropy of what a model says: `[1]`.
    fn loss(&self, model: &M) -> Tensor<1> {
        token_loss(model.logits(&self.batch), &self.targets, 0.0)
    }

    /// The numbers that a model has learned, and floating-point operations of the matmuls of a
    /// pass.
    fn counted(&self, model: &M, pass: Pass) -> (u64, f64) {
        let (parameters, forward) = model.counted(&self.setup);
        let work = match pass {
            Pass::Train => 3.0 * forward,
            Pass::Forward | Pass::Decode => forward,
            Pass::Generate => model.work_of_generation(&self.setup),
        };
        (parameters as u64, work)
    }
}

/// The usual one. PyTorch's models are trained with the same.
const LEARNING_RATE: f64 = 1e-3;

/// Steps after which the loss must have fallen.
const STEPS: usize = 8;

/// Measures a model: memory first, on a process that has done nothing yet but load the code;
/// then whether it is right, and then the time; in the end its results are compared with those of
/// a reference.
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
        Model::Han => measurement.of::<Han>(),
        Model::Transformer => measurement.of::<Transformer>(),
        Model::Seq2Seq => measurement.of::<Seq2Seq>(),
        Model::Gpt => measurement.of::<Gpt>(),
        Model::Classifier => measurement.of::<Classifier>(),
    }
}

#[derive(Clone, Copy)]
struct Measurement<'a> {
    setup: &'a Setup,
    attention: Mechanism,
    setting: Setting<'a>,
}

impl Measurement<'_> {
    fn of<M: Kind>(self) -> Result<Report> {
        let Setting { pass, opened, .. } = self.setting;
        let device = self.setting.device();
        // The same weights in every round.
        device.seed(0);
        // Start threads, load kernels, let the backend set itself up.
        let tiny = Setup::new(self.setup.model, Size::Tiny);
        self.work::<M>(&tiny, &device)?.run()?;
        wait_for(&device)?;

        let make = || self.work::<M>(self.setup, &device);
        // The second step finds an optimizer that has its moments.
        let (work, peak) = peak_of(opened, &device, make, Work::run, 2)?;
        let (parameters, flops) = work.sample.counted(work.model()?, pass);
        Ok(Report {
            parameters: Some(parameters),
            work: Some(flops),
            ..self.outcome(work, peak, &device)?.into()
        })
    }

    /// Checks the results and takes the time.
    fn outcome<M: Kind>(
        &self,
        mut work: Work<M>,
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
            return Ok(Outcome::wrong(format!("the loss came to {last}")));
        }
        drop(work);
        // Last, as it takes memory and time of its own.
        Ok(match self.against_reference::<M>(device)? {
            Ok((error, compared)) => Outcome::Measured(Measured {
                seconds,
                peak,
                error,
                checked: Some(format!("{checked}; {compared}")),
            }),
            Err(wrong) => wrong,
        })
    }

    fn work<M: Kind>(&self, setup: &Setup, device: &Device) -> Result<Work<M>> {
        let (model, sample) = Sample::new(setup, self.attention, device)?;
        Ok(Work {
            sample,
            model: Some(model),
            optimizer: AdamConfig::new(AdamKind::Adam).init(),
            loss: None,
            pass: self.setting.pass,
            fault: self.setting.fault,
        })
    }
}

/// What is run again and again. Training goes on from step to step.
struct Work<M: Kind> {
    sample: Sample<M>,
    /// Taken out for a step: an optimizer that has it alone writes in place.
    model: Option<M>,
    optimizer: ModuleOptimizer,
    loss: Option<Tensor<1>>,
    pass: Pass,
    fault: Option<Fault>,
}

/// The result of a pass.
enum Done {
    Step,
    Said(Box<Tensor<3>>),
    Texts(Vec<Vec<u32>>),
}

impl<M: Kind> Work<M> {
    /// Runs it once.
    fn run(&mut self) -> Result<Done> {
        let is_wrong = self.fault == Some(Fault::Wrong);
        let sample = &self.sample;
        match self.pass {
            Pass::Train => {
                // The other way, the loss goes up.
                let rate = LEARNING_RATE * if is_wrong { -1.0 } else { 1.0 };
                let model = self.model.take().context("its model is lost")?;
                let loss = sample.loss(&model);
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                self.model = Some(self.optimizer.step(rate, model, gradients));
                self.loss = Some(loss.detach());
                Ok(Done::Step)
            }
            Pass::Generate => {
                let mut texts = self.model()?.generate(&sample.setup, &sample.batch)?;
                if let (true, Some(text)) = (is_wrong, texts.first_mut()) {
                    text.pop();
                }
                Ok(Done::Texts(texts))
            }
            Pass::Forward | Pass::Decode => {
                let said = self.model()?.logits(&sample.batch);
                let said = if is_wrong { said / 0.0 } else { said };
                Ok(Done::Said(Box::new(said)))
            }
        }
    }

    fn model(&self) -> Result<&M> {
        self.model.as_ref().context("its model is lost")
    }

    /// What was looked at and found right, or what is wrong.
    fn check(&mut self) -> Result<Result<String, String>> {
        match self.run()? {
            Done::Step => self.check_training(),
            Done::Said(said) => check_numbers(*said),
            Done::Texts(texts) => self.check_texts(&texts),
        }
    }

    fn check_training(&mut self) -> Result<Result<String, String>> {
        let first = self.last_loss();
        for _ in 0..STEPS {
            self.run()?;
        }
        let last = self.last_loss();
        let told = format!("loss {first:.3} -> {last:.3} in {STEPS} steps");
        Ok(match first.is_finite() && last < first {
            true => Ok(told),
            false => Err(told),
        })
    }

    /// As many tokens as were asked for, each of them the best of a whole forward pass.
    fn check_texts(&self, texts: &[Vec<u32>]) -> Result<Result<String, String>> {
        // Where two are as likely but for rounding, either may be taken.
        const ROUNDING: f32 = 1e-3;
        let (drawn, setup) = (&self.sample.batch, &self.sample.setup);
        let (batch, new) = (setup.batch, setup.generated());
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        if lengths != vec![new; batch] {
            return Ok(Err(format!(
                "texts of {lengths:?} tokens, not {batch} of {new}"
            )));
        }
        let said = self.model()?.said_of(drawn, texts)?;
        let [.., vocabulary] = said.dims();
        let said = numbers(said)?;
        let largest = said.iter().copied().fold(f32::MIN, f32::max);
        let least = said.iter().copied().fold(f32::MAX, f32::min);
        let mut short = 0.0_f32;
        for (logits, token) in said.chunks(vocabulary).zip(texts.iter().flatten()) {
            let best = logits.iter().copied().fold(f32::MIN, f32::max);
            short = short.max((best - logits[*token as usize]) / (largest - least));
        }
        Ok(match short < ROUNDING {
            true => Ok(format!(
                "{batch} x {new} tokens, each the best of a forward pass"
            )),
            false => Err(format!(
                "a token is {short:.1e} of all logits' spread below the best of a forward pass"
            )),
        })
    }

    /// The loss of the last step; NaN of none.
    fn last_loss(&self) -> f32 {
        let loss = self.loss.clone();
        loss.map_or(f32::NAN, |loss| loss.into_scalar::<f32>())
    }
}

fn check_numbers(said: Tensor<3>) -> Result<Result<String, String>> {
    let [batch, _, classes] = said.dims();
    let are_finite = numbers(said)?.iter().all(|number| number.is_finite());
    Ok(match are_finite {
        true => Ok(format!("{batch} x {classes} finite results")),
        false => Err("a result is not finite".to_owned()),
    })
}

fn numbers(tensor: Tensor<3>) -> Result<Vec<f32>> {
    let numbers = tensor.try_into_vec_as();
    numbers.map_err(|error| anyhow::anyhow!("the device gave nothing back: {error:?}"))
}
