//! One step of Adam, as the kernels are told it.

use serde::{Deserialize, Serialize};

/// What weight decay is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdamKind {
    /// It is part of the gradient.
    Adam,
    /// It is taken from the parameter, whatever the gradient is.
    Adamw,
}

/// One step in numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// What was asked for.
    #[cfg(feature = "tch")]
    pub(crate) asked: Asked,
    pub(crate) beta_1: f32,
    pub(crate) beta_2: f32,
    /// `1 - β1`, of which `f32` would lose digits.
    pub(crate) new_1: f32,
    /// `1 - β2`
    pub(crate) new_2: f32,
    /// How much of the parameter is added to its gradient.
    pub(crate) in_gradient: f32,
    /// What the parameter is multiplied by.
    pub(crate) stays: f32,
    /// What `m / (sqrt(v) + epsilon)` is multiplied by.
    pub(crate) rate: f32,
    /// Epsilon for a `v` that is not divided by `1 - β2^t`.
    pub(crate) epsilon: f32,
}

/// A step as it was asked for, for those who work the rest out themselves.
#[cfg(feature = "tch")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) kind: AdamKind,
    pub(crate) betas: [f64; 2],
    pub(crate) epsilon: f64,
    pub(crate) weight_decay: f64,
    pub(crate) rate: f64,
    pub(crate) time: usize,
}
