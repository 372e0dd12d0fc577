//! `[optimizer]` and `[schedule]`.

use crate::keys::{
    Choice, NOT_NEGATIVE, POSITIVE, Presence, Range, SHARE, STEPS, STEPS_OR_NONE, Values, keys,
    kinds,
};

kinds! {
    /// How weights follow their gradients.
    pub enum Optimizer {
        /// Kingma and Ba, [Adam](https://arxiv.org/abs/1412.6980), 2014.
        Adam(Adam) = "adam",
        /// Loshchilov and Hutter, [Decoupled Weight Decay](https://arxiv.org/abs/1711.05101), 2017.
        AdamW(AdamW) = "adamw",
        /// Down the gradient, with momentum.
        Sgd(Sgd) = "sgd",
    }
}

keys! {
    /// Keys of Adam.
    pub struct Adam {
        /// How far a step goes; a schedule takes a share of it.
        learning_rate: f64 = 1e-3, POSITIVE;
        /// How slowly the mean of gradients changes.
        beta_1: f64 = 0.9, SHARE;
        /// How slowly the mean of their squares changes.
        beta_2: f64 = 0.999, SHARE;
        /// What is added where gradients are divided by their size.
        epsilon: f64 = 1e-8, POSITIVE;
        /// The share of a weight that is added to its gradient.
        weight_decay: f64 = 0.0, NOT_NEGATIVE;
        /// What is done to large gradients.
        clipping: Clipping = Clipping::default(), CLIPPING;
    }
}

keys! {
    /// Keys of AdamW.
    pub struct AdamW {
        /// How far a step goes; a schedule takes a share of it.
        learning_rate: f64 = 1e-3, POSITIVE;
        /// How slowly the mean of gradients changes.
        beta_1: f64 = 0.9, SHARE;
        /// How slowly the mean of their squares changes.
        beta_2: f64 = 0.999, SHARE;
        /// What is added where gradients are divided by their size.
        epsilon: f64 = 1e-8, POSITIVE;
        /// The share of a weight that is forgotten in each step, times the learning rate.
        weight_decay: f64 = 0.01, NOT_NEGATIVE;
        /// What is done to large gradients.
        clipping: Clipping = Clipping::default(), CLIPPING;
    }
}

keys! {
    /// Keys of stochastic gradient descent.
    pub struct Sgd {
        /// How far a step goes; a schedule takes a share of it.
        learning_rate: f64 = 0.1, POSITIVE;
        /// The share of the last step that is taken again.
        momentum: f64 = 0.9, SHARE;
        /// Whether the gradient is taken where momentum leads.
        nesterov: bool = false, Values::Flag;
        /// The share of a weight that is added to its gradient.
        weight_decay: f64 = 0.0, NOT_NEGATIVE;
        /// What is done to large gradients.
        clipping: Clipping = Clipping::default(), CLIPPING;
    }
}

const CLIPPING: Values = Values::Choice(&Choice {
    name: "clipping",
    variants: Clipping::KINDS,
});

kinds! {
    /// What is done to large gradients.
    pub enum Clipping {
        /// Nothing.
        None = "none",
        /// All together are made as small as to have this norm.
        Norm(ClipAt) = "norm",
        /// Each number is cut at this.
        Value(ClipAt) = "value",
    }
}

impl Default for Clipping {
    fn default() -> Self {
        Self::Norm(ClipAt::default())
    }
}

keys! {
    /// Where gradients are cut.
    pub struct ClipAt {
        /// How large they may be.
        at: f64 = 1.0, POSITIVE;
    }
}

kinds! {
    /// How the learning rate goes.
    pub enum Schedule {
        /// It stays.
        Constant(ConstantSchedule) = "constant",
        /// `rate · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)`, as the first Transformers had it.
        Noam(NoamSchedule) = "noam",
        /// It falls as `sqrt(warmup / step)`.
        InverseSquareRoot(InverseSquareRootSchedule) = "inverse-square-root",
        /// It falls as half a wave, until training ends.
        Cosine(CosineSchedule) = "cosine",
        /// It falls when validation gets no better.
        Plateau(PlateauSchedule) = "plateau",
    }
}

keys! {
    /// Keys of `constant`.
    pub struct ConstantSchedule {
        /// Steps in which the rate rises from nothing.
        warmup: usize = 100, STEPS_OR_NONE;
    }
}

keys! {
    /// Keys of `noam`.
    pub struct NoamSchedule {
        /// Steps in which the rate rises from nothing.
        warmup: usize = 4000, STEPS;
    }
}

keys! {
    /// Keys of `inverse-square-root`.
    pub struct InverseSquareRootSchedule {
        /// Steps in which the rate rises from nothing.
        warmup: usize = 1000, STEPS;
    }
}

keys! {
    /// Keys of `cosine`.
    pub struct CosineSchedule {
        /// Steps in which the rate rises from nothing.
        warmup: usize = 100, STEPS_OR_NONE;
        /// The step at which the rate is as low as it gets.
        steps: Option<usize> = None, STEPS, Presence::Optional("the last one");
        /// The share of the rate that is left then.
        final_share: f64 = 0.1, Values::Number(Range::PART);
    }
}

keys! {
    /// Keys of `plateau`.
    pub struct PlateauSchedule {
        /// Steps in which the rate rises from nothing.
        warmup: usize = 100, STEPS_OR_NONE;
        /// What the rate is multiplied by.
        factor: f64 = 0.5, Values::Number(Range::SHRINKING);
        /// Validations without anything better until then.
        patience: usize = 2, STEPS;
        /// The share of the rate that is always left.
        final_share: f64 = 0.01, Values::Number(Range::PART);
    }
}

impl Schedule {
    /// Steps in which the rate rises from nothing.
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
    /// How far a step goes before a schedule has its say.
    pub fn learning_rate(&self) -> f64 {
        match self {
            Self::Adam(adam) => adam.learning_rate,
            Self::AdamW(adam) => adam.learning_rate,
            Self::Sgd(sgd) => sgd.learning_rate,
        }
    }

    /// What is done to large gradients.
    pub fn clipping(&self) -> &Clipping {
        match self {
            Self::Adam(adam) => &adam.clipping,
            Self::AdamW(adam) => &adam.clipping,
            Self::Sgd(sgd) => &sgd.clipping,
        }
    }
}
