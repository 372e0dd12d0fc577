//! The [`Recurrent`] module: stacked recurrent layers.

use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::nn::Dropout;
use burn::tensor::{Int, Tensor};

use crate::recurrent::layer::{LayerState, RecurrentLayer};
use crate::recurrent::{Cell, Direction};

/// Stacked GRU or LSTM layers, created by a [`RecurrentConfig`](crate::recurrent::RecurrentConfig).
///
/// `layers.0.forward.input.weight` is PyTorch's `weight_ih_l0` transposed, and so on: `hidden` for
/// `hh`, `reverse` for `_reverse`.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Recurrent {
    /// The layers; the first takes the input.
    pub layers: Vec<RecurrentLayer>,
    /// Dropout between layers.
    pub dropout: Dropout,
    #[module(skip)]
    pub(crate) cell: Cell,
    #[module(skip)]
    pub(crate) direction: Direction,
    pub(crate) d_hidden: usize,
}

/// The states of all layers, the first layer first.
#[derive(Debug, Clone)]
pub struct RecurrentState {
    /// One state per layer.
    pub layers: Vec<LayerState>,
}

impl ModuleDisplay for Recurrent {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("cell", &self.cell.name().to_owned())
            .add("layers", &self.layers.len())
            .add("directions", &self.direction.num_directions())
            .add("d_input", &self.d_input())
            .add("d_hidden", &self.d_hidden)
            .optional()
    }
}

impl Recurrent {
    /// Processes sequences from an initial state (default: zeros). Returns the hidden states of the
    /// last layer at each position, and the final states of all layers.
    ///
    /// Positions from a row's length on are padding: they leave the state unchanged, and their
    /// outputs are zero. The backward direction starts at each row's last position.
    ///
    /// # Shapes
    ///
    /// - input: `[batch, seq, d_input]`
    /// - output: `[batch, seq, directions * d_hidden]`
    ///
    /// # Panics
    ///
    /// If the shapes of input, lengths and state do not match.
    pub fn forward(
        &self,
        input: Tensor<3>,
        lengths: Option<&[usize]>,
        state: Option<RecurrentState>,
    ) -> (Tensor<3>, RecurrentState) {
        let [batch, seq, d_input] = input.dims();
        assert!(
            d_input == self.d_input(),
            "recurrent layers: input must be [batch, seq, d_input = {}], got [{batch}, {seq}, {d_input}]",
            self.d_input()
        );
        let states = state.map(|state| state.layers);
        let expected = self.layers.len();
        let got = states.as_ref().map_or(expected, Vec::len);
        assert!(
            got == expected,
            "recurrent layers: expected a state of {expected} layers, got {got}"
        );
        let mut states = states.into_iter().flatten();
        let mut x = input;
        let mut last = Vec::with_capacity(expected);
        for (index, layer) in self.layers.iter().enumerate() {
            if index > 0 {
                x = self.dropout.forward(x);
            }
            let (output, state) = layer.forward(x, lengths, states.next());
            x = output;
            last.push(state);
        }
        (x, RecurrentState { layers: last })
    }

    /// Processes one position: [`forward`](Self::forward) with `seq = 1`.
    ///
    /// # Shapes
    ///
    /// - input: `[batch, d_input]`
    /// - output: `[batch, directions * d_hidden]`
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn step(
        &self,
        input: Tensor<2>,
        state: Option<RecurrentState>,
    ) -> (Tensor<2>, RecurrentState) {
        let [batch, d_input] = input.dims();
        let (output, state) = self.forward(input.reshape([batch, 1, d_input]), None, state);
        (output.reshape([batch, self.d_output()]), state)
    }

    /// The cell type.
    pub fn cell(&self) -> Cell {
        self.cell
    }

    /// Input features.
    pub fn d_input(&self) -> usize {
        let first = self.layers.first();
        let weights = first.and_then(|layer| layer.forward.as_ref().or(layer.reverse.as_ref()));
        weights.map_or(0, |weights| weights.input.weight.dims()[0])
    }

    /// Output features: the hidden size times the number of directions.
    pub fn d_output(&self) -> usize {
        self.direction.num_directions() * self.d_hidden
    }

    /// FLOPs of the matmuls in a forward pass over this many tokens, batch included.
    pub fn flops(&self, tokens: usize) -> f64 {
        let gates = self.cell.gates() * self.d_hidden;
        let layer_inner = |index: usize| match index {
            0 => self.d_input() + self.d_hidden,
            _ => self.d_output() + self.d_hidden,
        };
        let inner: usize = (0..self.layers.len()).map(layer_inner).sum();
        2.0 * tokens as f64 * (self.direction.num_directions() * gates * inner) as f64
    }
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
        self.map(|tensor| tensor.select(0, rows.clone()))
    }

    /// Detaches the state from the autodiff graph (truncated backpropagation).
    #[must_use]
    pub fn detach(self) -> Self {
        self.map(Tensor::detach)
    }

    fn map(&self, function: impl Fn(Tensor<2>) -> Tensor<2>) -> Self {
        let layer = |layer: &LayerState| LayerState {
            hidden: function(layer.hidden.clone()),
            cell: layer.cell.clone().map(&function),
        };
        Self {
            layers: self.layers.iter().map(layer).collect(),
        }
    }
}
