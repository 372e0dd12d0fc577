//! The recurrent state of a mechanism, whichever recurrence it has.

use burn::tensor::Tensor;

use super::gated::GatedState;
use super::state::LinearState;
use crate::mechanisms::Gates;

/// A state of constant size that replaces a cache of keys and values.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // one for each layer, which is rarely moved
pub(crate) enum RecurrentState {
    /// Linear attention, or constant decays.
    Linear(LinearState),
    /// Decays and strengths that depend on the input.
    Gated(GatedState),
}

impl RecurrentState {
    /// The state of the given batch indices, in this order.
    pub(crate) fn select(&self, examples: &[usize]) -> Self {
        match self {
            Self::Linear(state) => Self::Linear(state.select(examples)),
            Self::Gated(state) => Self::Gated(state.select(examples)),
        }
    }

    pub(crate) fn num_elements(&self) -> usize {
        match self {
            Self::Linear(state) => state.num_elements(),
            Self::Gated(state) => state.num_elements(),
        }
    }

    /// Adds positions with their gates. The scale is that of the features of linear attention.
    pub(crate) fn extend(
        &mut self,
        key: Tensor<4>,
        value: Tensor<4>,
        gates: Option<Gates>,
        scale: Option<f64>,
    ) {
        match self {
            Self::Linear(state) => state.extend(key, value, scale),
            Self::Gated(state) => state.extend(key, value, &gates.unwrap_or_default()),
        }
    }

    /// Attends to all positions so far.
    pub(crate) fn attend(
        &self,
        query: Tensor<4>,
        scale: Option<f64>,
        default_scale: f64,
    ) -> Tensor<4> {
        match self {
            Self::Linear(state) => state.attend(query, scale),
            Self::Gated(state) => state.attend(query, scale.unwrap_or(default_scale)),
        }
    }
}
