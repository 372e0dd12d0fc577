//! `[optimizer]` and `[schedule]`.

use crate::keys::{
    NOT_NEGATIVE, POSITIVE, PROBABILITY, Presence, Range, STEPS, STEPS_OR_NONE, Values, choice,
    keys, kinds,
};

kinds! {
    /// Optimizer.
    pub enum Optimizer {
        /// Kingma and Ba, [Adam](https://arxiv.org/abs/1412.6980), 2014.
        Adam(Adam) = "adam",
        /// Loshchilov and Hutter, [Decoupled Weight Decay](https://arxiv.org/abs/1711.05101), 2017.
        AdamW(AdamW) = "adamw",
        /// Stochastic gradient descent with momentum.
        Sgd(Sgd) = "sgd",
    }

    /// Gradient clipping.
    pub enum Clipping {
        /// No clipping.
        None = "none",
        /// Clip the global gradient norm.
        Norm(ClipThreshold) = "norm",
        /// Clip each gradient element.
        Value(ClipThreshold) = "value",
    }

    /// Learning rate schedule.
    pub enum Schedule {
        /// Constant learning rate.
        Constant(ConstantSchedule) = "constant",
        /// `learning_rate · d^-0.5 · min(step^-0.5, step · warmup^-1.5)`, as in the original
        /// Transformer; d is `d_model` (`seq2seq`: `d_hidden`, `han`: `d_word`).
        Noam(NoamSchedule) = "noam",
        /// Inverse square root decay: `learning_rate · sqrt(warmup / step)`.
        InverseSquareRoot(InverseSquareRootSchedule) = "inverse-square-root",
        /// Cosine decay.
        Cosine(CosineSchedule) = "cosine",
        /// Reduce the learning rate when the validation metric stops improving.
        Plateau(PlateauSchedule) = "plateau",
    }
}

keys! {
    /// Keys of Adam.
    pub struct Adam {
        /// Learning rate, multiplied by the schedule.
        learning_rate: f64 = 1e-3, POSITIVE;
        /// Adam beta1 (momentum decay).
        beta_1: f64 = 0.9, PROBABILITY;
        /// Adam beta2 (decay of the squared gradients).
        beta_2: f64 = 0.999, PROBABILITY;
        /// Adam epsilon.
        epsilon: f64 = 1e-8, POSITIVE;
        /// L2 regularisation, added to the gradient.
        weight_decay: f64 = 0.0, NOT_NEGATIVE;
        /// Gradient clipping.
        clipping: Clipping = Clipping::default(), CLIPPING;
    }

    /// Keys of AdamW.
    pub struct AdamW {
        /// Learning rate, multiplied by the schedule.
        learning_rate: f64 = 1e-3, POSITIVE;
        /// Adam beta1 (momentum decay).
        beta_1: f64 = 0.9, PROBABILITY;
        /// Adam beta2 (decay of the squared gradients).
        beta_2: f64 = 0.999, PROBABILITY;
        /// Adam epsilon.
        epsilon: f64 = 1e-8, POSITIVE;
        /// Decoupled weight decay.
        weight_decay: f64 = 0.01, NOT_NEGATIVE;
        /// Gradient clipping.
        clipping: Clipping = Clipping::default(), CLIPPING;
    }

    /// Keys of stochastic gradient descent.
    pub struct Sgd {
        /// Learning rate, multiplied by the schedule.
        learning_rate: f64 = 0.1, POSITIVE;
        /// Momentum.
        momentum: f64 = 0.9, PROBABILITY;
        /// Nesterov momentum.
        nesterov: bool = false, Values::Bool;
        /// L2 regularisation, added to the gradient.
        weight_decay: f64 = 0.0, NOT_NEGATIVE;
        /// Gradient clipping.
        clipping: Clipping = Clipping::default(), CLIPPING;
    }

    /// Keys of gradient clipping.
    pub struct ClipThreshold {
        /// Maximum norm or absolute value.
        threshold: f64 = 1.0, POSITIVE;
    }

    /// Keys of `constant`.
    pub struct ConstantSchedule {
        /// Linear warmup steps.
        warmup: usize = 100, STEPS_OR_NONE;
    }

    /// Keys of `noam`.
    pub struct NoamSchedule {
        /// Linear warmup steps.
        warmup: usize = 4000, STEPS;
    }

    /// Keys of `inverse-square-root`.
    pub struct InverseSquareRootSchedule {
        /// Linear warmup steps.
        warmup: usize = 1000, STEPS;
    }

    /// Keys of `cosine`.
    pub struct CosineSchedule {
        /// Linear warmup steps.
        warmup: usize = 100, STEPS_OR_NONE;
        /// Step at which the minimum is reached.
        steps: Option<usize> = None, STEPS, Presence::Optional("the last step of training");
        /// Final learning rate, as a fraction of `learning_rate`.
        min_lr_ratio: f64 = 0.1, Values::Number(Range::UNIT_INTERVAL);
    }

    /// Keys of `plateau`.
    pub struct PlateauSchedule {
        /// Linear warmup steps.
        warmup: usize = 100, STEPS_OR_NONE;
        /// Factor by which the learning rate is reduced.
        factor: f64 = 0.5, Values::Number(Range::DECAY);
        /// Validations without improvement before a reduction.
        patience: usize = 2, STEPS;
        /// Minimum learning rate, as a fraction of `learning_rate`.
        min_lr_ratio: f64 = 0.01, Values::Number(Range::UNIT_INTERVAL);
    }
}

const CLIPPING: Values = choice("clipping", Clipping::KINDS);

impl Default for Clipping {
    fn default() -> Self {
        Self::Norm(ClipThreshold::default())
    }
}

impl Schedule {
    /// Linear warmup steps.
    pub fn warmup(&self) -> usize {
        match self {
            Self::Constant(schedule) => schedule.warmup,
            Self::Noam(schedule) => schedule.warmup,
            Self::InverseSquareRoot(schedule) => schedule.warmup,
            Self::Cosine(schedule) => schedule.warmup,
            Self::Plateau(schedule) => schedule.warmup,
        }
    }
}

impl Optimizer {
    /// Base learning rate, before the schedule.
    pub fn learning_rate(&self) -> f64 {
        match self {
            Self::Adam(adam) => adam.learning_rate,
            Self::AdamW(adam) => adam.learning_rate,
            Self::Sgd(sgd) => sgd.learning_rate,
        }
    }

    /// Gradient clipping.
    pub fn clipping(&self) -> &Clipping {
        match self {
            Self::Adam(adam) => &adam.clipping,
            Self::AdamW(adam) => &adam.clipping,
            Self::Sgd(sgd) => &sgd.clipping,
        }
    }
}
