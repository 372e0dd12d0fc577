//! The training loss since it was last logged.

use std::time::Instant;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// The sum of the losses since the last log line, on the device: reading it synchronises a GPU.
pub(super) struct RunningLoss {
    loss: Option<Tensor<1>>,
    /// The sum in the checkpoint that the run was resumed from.
    resumed: Option<f64>,
    pub(super) steps: usize,
    pub(super) grad_norm: Option<Tensor<1>>,
    pub(super) tokens: usize,
    pub(super) start: Instant,
}

/// The sum in a checkpoint, so that a resumed run logs the same means as an uninterrupted one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnloggedLoss {
    /// None if the sum is not finite.
    loss: Option<f64>,
    steps: usize,
}

impl RunningLoss {
    pub(super) fn new(unlogged: Option<UnloggedLoss>) -> Self {
        Self {
            loss: None,
            resumed: unlogged.map(|it| it.loss.unwrap_or(f64::NAN)),
            steps: unlogged.map_or(0, |it| it.steps),
            grad_norm: None,
            tokens: 0,
            start: Instant::now(),
        }
    }

    pub(super) fn add(&mut self, loss: Tensor<1>, grad_norm: Option<Tensor<1>>) {
        // In the order and the dtype of an uninterrupted run.
        let sum = match (self.loss.take(), self.resumed.take()) {
            (None, Some(resumed)) => Some(loss.full_like(resumed)),
            (sum, _) => sum,
        };
        self.loss = Some(match sum {
            Some(sum) => sum + loss,
            None => loss,
        });
        self.grad_norm = grad_norm;
        self.steps += 1;
    }

    pub(super) fn take_mean(&mut self) -> Option<f64> {
        let total = self.loss.take().map(read)?;
        Some(total / self.steps as f64)
    }

    pub(super) fn unlogged(&self) -> Option<UnloggedLoss> {
        let loss = self.loss.clone().map(read).or(self.resumed)?;
        Some(UnloggedLoss {
            loss: loss.is_finite().then_some(loss),
            steps: self.steps,
        })
    }
}

pub(super) fn read(tensor: Tensor<1>) -> f64 {
    f64::from(tensor.into_scalar::<f32>())
}
