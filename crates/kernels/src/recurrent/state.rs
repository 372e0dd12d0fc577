//! What recurrent layers remember from one place to the next.

use burn::tensor::{Int, Tensor};

/// What all layers remember, the first layer first.
#[derive(Debug, Clone)]
pub struct RecurrentState {
    /// One for each layer.
    pub layers: Vec<LayerState>,
}

/// What a layer remembers.
#[derive(Debug, Clone)]
pub struct LayerState {
    /// `[batch, passes * d_hidden]`; of both directions, forward comes first.
    pub hidden: Tensor<2>,
    /// The same of an LSTM's cell; a GRU has none.
    pub cell: Option<Tensor<2>>,
}

impl RecurrentState {
    /// The hidden state of the last layer: `[batch, passes * d_hidden]`.
    ///
    /// # Panics
    ///
    /// If it has no layers.
    pub fn top(&self) -> Tensor<2> {
        let top = self.layers.last();
        top.expect("a recurrent state: at least one layer expected, got none")
            .hidden
            .clone()
    }

    /// The rows of a batch that are named, in this order: some may be left out, some come
    /// twice.
    #[must_use]
    pub fn select(&self, rows: Tensor<1, Int>) -> Self {
        let chosen = |tensor: &Tensor<2>| tensor.clone().select(0, rows.clone());
        let layer = |layer: &LayerState| LayerState {
            hidden: chosen(&layer.hidden),
            cell: layer.cell.as_ref().map(chosen),
        };
        Self {
            layers: self.layers.iter().map(layer).collect(),
        }
    }

    /// The same numbers without their history: no gradient goes back through them.
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
