//! State of recurrent layers.

use burn::tensor::{Int, Tensor};

/// The states of all layers, the first layer first.
#[derive(Debug, Clone)]
pub struct RecurrentState {
    /// One state per layer.
    pub layers: Vec<LayerState>,
}

/// The state of a layer.
#[derive(Debug, Clone)]
pub struct LayerState {
    /// Hidden state `[batch, directions * d_hidden]`, the forward direction first.
    pub hidden: Tensor<2>,
    /// Cell state of an LSTM, of the same shape; `None` for a GRU.
    pub cell: Option<Tensor<2>>,
}

impl RecurrentState {
    /// The hidden state of the last layer: `[batch, directions * d_hidden]`.
    ///
    /// # Panics
    ///
    /// If there are no layers.
    pub fn top(&self) -> Tensor<2> {
        let top = self.layers.last();
        top.expect("recurrent state: expected at least one layer")
            .hidden
            .clone()
    }

    /// Selects rows of the batch by index, in this order, possibly repeated.
    #[must_use]
    pub fn select(&self, rows: Tensor<1, Int>) -> Self {
        let select = |tensor: &Tensor<2>| tensor.clone().select(0, rows.clone());
        let layer = |layer: &LayerState| LayerState {
            hidden: select(&layer.hidden),
            cell: layer.cell.as_ref().map(select),
        };
        Self {
            layers: self.layers.iter().map(layer).collect(),
        }
    }

    /// Detaches the state from the autodiff graph (truncated backpropagation).
    #[must_use]
    pub fn detach(self) -> Self {
        let layer = |layer: LayerState| LayerState {
            hidden: layer.hidden.detach(),
            cell: layer.cell.map(Tensor::detach),
        };
        Self {
            layers: self.layers.into_iter().map(layer).collect(),
        }
    }
}
