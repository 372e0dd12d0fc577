//! The module people use: recurrent layers one above the other.

use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::nn::Dropout;
use burn::tensor::Tensor;

use crate::recurrent::layer::RecurrentLayer;
use crate::recurrent::{Cell, Direction, LayerState, RecurrentState};

/// GRU or LSTM layers, one above the other. Made by a
/// [`RecurrentConfig`](crate::recurrent::RecurrentConfig).
///
/// `layers.0.forward.input.weight` is PyTorch's `weight_ih_l0` with rows for columns, and so
/// on: `hidden` for `hh`, `reverse` for `_reverse`.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Recurrent {
    /// The first one sees the input.
    pub layers: Vec<RecurrentLayer>,
    /// How much is forgotten between layers, and whether these are training.
    pub dropout: Dropout,
    #[module(skip)]
    pub(crate) cell: Cell,
    #[module(skip)]
    pub(crate) direction: Direction,
    pub(crate) d_hidden: usize,
}

impl ModuleDisplay for Recurrent {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new()
            .with_new_line_after_attribute(false)
            .optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        content
            .add("cell", &self.cell.word().to_owned())
            .add("layers", &self.layers.len())
            .add("passes", &self.direction.passes())
            .add("d_input", &self.d_input())
            .add("d_hidden", &self.d_hidden)
            .optional()
    }
}

impl Recurrent {
    /// Goes over sequences, from a state or from zeros; returns the state of the last layer
    /// at each place, and the states of all layers after the last place.
    ///
    /// Lengths say how many places each row has. What comes after them is padding: it leaves
    /// the state as it is, and the results there are zero. Backward starts from each row's
    /// own last place.
    ///
    /// # Shapes
    ///
    /// - input: `[batch, seq, d_input]`
    /// - result: `[batch, seq, passes * d_hidden]`
    ///
    /// # Panics
    ///
    /// If the input, the lengths or the state do not fit.
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
        let mut states: Vec<Option<LayerState>> = match state {
            Some(state) => {
                assert!(
                    state.layers.len() == self.layers.len(),
                    "recurrent layers: a state of {} layers expected, got one of {}",
                    self.layers.len(),
                    state.layers.len()
                );
                state.layers.into_iter().map(Some).collect()
            }
            None => vec![None; self.layers.len()],
        };
        let mut places = input;
        let mut last = Vec::with_capacity(self.layers.len());
        for (at, (layer, state)) in self.layers.iter().zip(&mut states).enumerate() {
            if at > 0 {
                places = self.dropout.forward(places);
            }
            let (results, state) = layer.forward(places, lengths, state.take());
            places = results;
            last.push(state);
        }
        (places, RecurrentState { layers: last })
    }

    /// One place further, from a state or from zeros: what [`forward`](Self::forward) does
    /// to a sequence of one.
    ///
    /// # Shapes
    ///
    /// - input: `[batch, d_input]`
    /// - result: `[batch, passes * d_hidden]`
    ///
    /// # Panics
    ///
    /// As there.
    pub fn step(
        &self,
        input: Tensor<2>,
        state: Option<RecurrentState>,
    ) -> (Tensor<2>, RecurrentState) {
        let [batch, d_input] = input.dims();
        let (result, state) = self.forward(input.reshape([batch, 1, d_input]), None, state);
        (result.reshape([batch, self.d_output()]), state)
    }

    /// What a place does to the state.
    pub fn cell(&self) -> Cell {
        self.cell
    }

    /// Which place comes first.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Numbers of each place that go in.
    pub fn d_input(&self) -> usize {
        let first = self.layers.first();
        let weights = first.and_then(|layer| layer.forward.as_ref().or(layer.reverse.as_ref()));
        weights.map_or(0, |weights| weights.input.weight.dims()[0])
    }

    /// Numbers of a state.
    pub fn d_hidden(&self) -> usize {
        self.d_hidden
    }

    /// Numbers of each place that come out: those of a state, of each direction.
    pub fn d_output(&self) -> usize {
        self.direction.passes() * self.d_hidden
    }

    /// What the matmuls of one forward pass over so many places cost, batch and all.
    pub fn flops(&self, places: usize) -> f64 {
        let gates = self.cell.gates() * self.d_hidden;
        let of_layer = |at: usize| match at {
            0 => self.d_input() + self.d_hidden,
            _ => self.d_output() + self.d_hidden,
        };
        let inner: usize = (0..self.layers.len()).map(of_layer).sum();
        2.0 * places as f64 * (self.direction.passes() * gates * inner) as f64
    }
}
