//! A model: a step of training, a forward pass, or the generation of a batch of texts.

mod batch;
mod classify;
mod gpt;
mod han;
mod reference;
mod seq2seq;
mod transformer;

use std::cell::RefCell;

use anyhow::{Context, Result, bail};
use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor};
use zoo_backend::{Meter, Opened};
use zoo_bench_core::case::Pass;
use zoo_bench_core::fault::Fault;
use zoo_bench_core::model::{Model, Setup, Size};
use zoo_bench_core::record::{Counted, Measured, Outcome};
use zoo_fused::{AdamConfig, AdamKind};
use zoo_spec::Mechanism;

use crate::attention::peak;
use crate::timing::{Sampling, samples, wait_for};

/// The batch that a kind of model is measured on, and what is done with it.
trait Specimen: Sized {
    /// The model.
    type Model: Module;

    /// Makes both.
    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<(Self::Model, Self)>;

    /// What it comes to.
    fn counted(&self, model: &Self::Model, pass: Pass) -> Counted;

    /// What the model says of its batch: `[batch, places, tokens]`, or one place of classes.
    fn logits(&self, model: &Self::Model) -> Tensor<3>;

    /// How far that is from what should be said: `[1]`.
    fn loss(&self, logits: Tensor<3>) -> Tensor<1>;

    /// A text for each sequence of the batch, the likeliest token each time.
    fn generate(&self, _: &Self::Model) -> Result<Vec<Vec<u32>>> {
        bail!("it generates nothing")
    }

    /// What a forward pass says where those tokens came: `[batch, generated, tokens]`.
    fn said_of(&self, _: &Self::Model, _: &[Vec<u32>]) -> Result<Tensor<3>> {
        bail!("it generates nothing")
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
    pass: Pass,
    opened: &Opened,
    sampling: Sampling,
    fault: Option<Fault>,
) -> Result<(Outcome, Counted)> {
    let measurement = Measurement {
        setup,
        attention,
        pass,
        opened,
        sampling,
        fault,
    };
    match setup.model {
        Model::Han => measurement.of::<han::Judged>(),
        Model::Transformer => measurement.of::<transformer::Pairs>(),
        Model::Seq2Seq => measurement.of::<seq2seq::Pairs>(),
        Model::Gpt => measurement.of::<gpt::Texts>(),
        Model::Classifier => measurement.of::<classify::Labelled>(),
    }
}

#[derive(Clone, Copy)]
struct Measurement<'a> {
    setup: &'a Setup,
    attention: Mechanism,
    pass: Pass,
    opened: &'a Opened,
    sampling: Sampling,
    fault: Option<Fault>,
}

impl Measurement<'_> {
    fn of<S: Specimen>(self) -> Result<(Outcome, Counted)> {
        let device = match self.pass {
            Pass::Train => self.opened.device.clone().autodiff(),
            Pass::Forward | Pass::Decode | Pass::Generate => self.opened.device.clone(),
        };
        // The same weights in every round.
        device.seed(0);
        // Start threads, load kernels, let the backend set itself up.
        let tiny = Setup::new(self.setup.model, Size::Tiny);
        self.work::<S>(&tiny, &device)?.run()?;
        wait_for(&device)?;

        let mut meter = Meter::start(self.opened);
        let work = self.work::<S>(self.setup, &device)?;
        let counted = work.with_model(|model| Ok(work.specimen.counted(model, self.pass)))?;
        wait_for(&device)?;
        meter.inputs_are_there();
        // The second step finds an optimizer that has its moments.
        for _ in 0..2 {
            work.run()?;
            wait_for(&device)?;
        }
        let peak = peak(&meter);

        let checked = match work.check(self.setup)? {
            Ok(checked) => checked,
            Err(detail) => return Ok((wrong(detail), counted)),
        };
        // A generation that fails here did not fail before: what it says is not lost.
        let mut failed = None;
        let seconds = samples(&device, self.sampling, || match work.run() {
            Ok(result) => Some(result),
            Err(error) => {
                failed = Some(error);
                None
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if let Err(detail) = work.is_still_right() {
            return Ok((wrong(detail), counted));
        }
        drop(work);
        // Last, as it takes memory and time of its own.
        let (error, compared) = match self.against_reference::<S>(&device)? {
            Ok(compared) => compared,
            Err((error, detail)) => {
                let error = error.is_finite().then_some(error);
                return Ok((Outcome::Wrong { error, detail }, counted));
            }
        };
        let measured = Measured {
            seconds,
            peak,
            error,
            checked: Some(format!("{checked}; {compared}")),
        };
        Ok((Outcome::Measured(measured), counted))
    }

    fn work<S: Specimen>(&self, setup: &Setup, device: &Device) -> Result<Work<S>> {
        let (model, specimen) = S::new(setup, self.attention, device)?;
        Ok(Work {
            specimen,
            model: RefCell::new(Some(model)),
            optimizer: RefCell::new(AdamConfig::new(AdamKind::Adam).init()),
            loss: RefCell::new(None),
            pass: self.pass,
            fault: self.fault,
        })
    }
}

fn wrong(detail: String) -> Outcome {
    Outcome::Wrong {
        error: None,
        detail,
    }
}

/// What is run again and again. Training goes on from step to step.
struct Work<S: Specimen> {
    specimen: S,
    /// Taken out for a step: an optimizer that has it alone writes in place.
    model: RefCell<Option<S::Model>>,
    optimizer: RefCell<ModuleOptimizer>,
    loss: RefCell<Option<Tensor<1>>>,
    pass: Pass,
    fault: Option<Fault>,
}

/// The result of a pass.
enum Done {
    Step,
    Said(Box<Tensor<3>>),
    Texts(Vec<Vec<u32>>),
}

impl<S: Specimen> Work<S> {
    /// Runs it once.
    fn run(&self) -> Result<Done> {
        let is_wrong = self.fault == Some(Fault::Wrong);
        match self.pass {
            Pass::Train => {
                // The other way, the loss goes up.
                let rate = if is_wrong {
                    -LEARNING_RATE
                } else {
                    LEARNING_RATE
                };
                let model = self.model.take().context("its model is lost")?;
                let loss = self.specimen.loss(self.specimen.logits(&model));
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                let stepped = self.optimizer.borrow_mut().step(rate, model, gradients);
                self.model.replace(Some(stepped));
                self.loss.replace(Some(loss.detach()));
                Ok(Done::Step)
            }
            Pass::Generate => {
                let mut texts = self.with_model(|model| self.specimen.generate(model))?;
                if let (true, Some(text)) = (is_wrong, texts.first_mut()) {
                    text.pop();
                }
                Ok(Done::Texts(texts))
            }
            Pass::Forward | Pass::Decode => {
                let said = self.with_model(|model| Ok(self.specimen.logits(model)))?;
                let said = if is_wrong { said / 0.0 } else { said };
                Ok(Done::Said(Box::new(said)))
            }
        }
    }

    fn with_model<T>(&self, look: impl FnOnce(&S::Model) -> Result<T>) -> Result<T> {
        let model = self.model.borrow();
        look(model.as_ref().context("its model is lost")?)
    }

    /// What was looked at and found right, or what is wrong.
    fn check(&self, setup: &Setup) -> Result<Result<String, String>> {
        match self.run()? {
            Done::Step => self.check_training(),
            Done::Said(said) => check_numbers(*said),
            Done::Texts(texts) => self.check_texts(setup, &texts),
        }
    }

    fn check_training(&self) -> Result<Result<String, String>> {
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
    fn check_texts(&self, setup: &Setup, texts: &[Vec<u32>]) -> Result<Result<String, String>> {
        // Where two are as likely but for rounding, either may be taken.
        const ROUNDING: f32 = 1e-3;
        let (batch, new) = (setup.batch, setup.generated());
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        if lengths != vec![new; batch] {
            return Ok(Err(format!(
                "texts of {lengths:?} tokens, not {batch} of {new}"
            )));
        }
        let said = self.with_model(|model| self.specimen.said_of(model, texts))?;
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

    /// After all samples, too.
    fn is_still_right(&self) -> Result<(), String> {
        let last = self.last_loss();
        match self.pass == Pass::Train && !last.is_finite() {
            true => Err(format!("the loss came to {last}")),
            false => Ok(()),
        }
    }

    /// The loss of the last step; NaN of none.
    fn last_loss(&self) -> f32 {
        let loss = self.loss.borrow().clone();
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
