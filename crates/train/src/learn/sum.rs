//! Losses since they were last shown.

use std::time::Instant;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Losses since they were last shown, added up where they are: reading one makes a GPU wait.
pub(super) struct Sum {
    loss: Option<Tensor<1>>,
    /// What was there of it when the run was stopped.
    before: Option<f64>,
    pub(super) steps: usize,
    /// The norm of the last step's gradients.
    pub(super) norm: Option<Tensor<1>>,
    pub(super) tokens: usize,
    pub(super) start: Instant,
}

/// The same in a checkpoint: a run that goes on shows the mean of all steps since it was last
/// shown, those before it was stopped counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Unshown {
    /// The losses' sum; nothing if it is no number.
    loss: Option<f64>,
    steps: usize,
}

impl Sum {
    /// Nothing yet, but for what a run was stopped with.
    pub(super) fn new(unshown: Option<Unshown>) -> Self {
        Self {
            loss: None,
            before: unshown.map(|it| it.loss.unwrap_or(f64::NAN)),
            steps: unshown.map_or(0, |it| it.steps),
            norm: None,
            tokens: 0,
            start: Instant::now(),
        }
    }

    /// One more step.
    pub(super) fn add(&mut self, loss: Tensor<1>, norm: Option<Tensor<1>>) {
        // In the order and the numbers of a run that was not stopped.
        let so_far = match (self.loss.take(), self.before.take()) {
            (None, Some(before)) => Some(loss.full_like(before)),
            (sum, _) => sum,
        };
        self.loss = Some(match so_far {
            Some(sum) => sum + loss,
            None => loss,
        });
        self.norm = norm;
        self.steps += 1;
    }

    /// The mean loss, and nothing if there was no step.
    pub(super) fn take_mean(&mut self) -> Option<f64> {
        let total = self.loss.take().map(read)?;
        Some(total / self.steps as f64)
    }

    /// What is to be kept of it in a checkpoint.
    pub(super) fn unshown(&self) -> Option<Unshown> {
        let loss = self.loss.clone().map(read).or(self.before)?;
        Some(Unshown {
            loss: loss.is_finite().then_some(loss),
            steps: self.steps,
        })
    }
}

pub(super) fn read(tensor: Tensor<1>) -> f64 {
    f64::from(tensor.into_scalar::<f32>())
}
