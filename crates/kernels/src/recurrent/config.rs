//! Configuration of recurrent layers, and its errors.

use burn::config::Config;
use burn::nn::{DropoutConfig, Initializer, LinearConfig};
use burn::tensor::Device;

use crate::recurrent::layer::{DirectedWeights, RecurrentLayer};
use crate::recurrent::{Cell, Direction, Recurrent};

/// Configuration of a [`Recurrent`] module.
///
/// ```
/// # use zoo_kernels::recurrent::{Cell, Direction, RecurrentConfig};
/// let config = RecurrentConfig::new(100, 50)
///     .with_cell(Cell::Lstm)
///     .with_direction(Direction::Both);
/// ```
#[derive(Config, Debug)]
pub struct RecurrentConfig {
    /// Input features.
    pub d_input: usize,
    /// Hidden size; also the output features of each direction.
    pub d_hidden: usize,
    /// Cell type. Default: GRU.
    #[config(default = "Cell::Gru")]
    pub cell: Cell,
    /// Number of stacked layers. Default: 1.
    #[config(default = 1)]
    pub layers: usize,
    /// Direction. Default: forward.
    #[config(default = "Direction::Forward")]
    pub direction: Direction,
    /// Dropout probability between layers. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether to use biases, one for the input and one for the hidden state. Default: true.
    #[config(default = true)]
    pub bias: bool,
}

/// An invalid configuration: a field is out of range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} must be {allowed}, got {got}")]
#[non_exhaustive]
pub struct RecurrentError {
    /// Name of the field.
    pub field: &'static str,
    /// Allowed values.
    pub allowed: &'static str,
    /// Actual value.
    pub got: String,
}

impl RecurrentConfig {
    /// Creates the module.
    ///
    /// # Panics
    ///
    /// If the configuration is invalid: see [`try_init`](Self::try_init).
    pub fn init(&self, device: &Device) -> Recurrent {
        self.try_init(device)
            .unwrap_or_else(|error| panic!("recurrent layers: {error}"))
    }

    /// Creates the module, for configurations from a file. Parameters are initialised as in
    /// PyTorch, uniformly within `±1/sqrt(d_hidden)`.
    ///
    /// # Errors
    ///
    /// [`RecurrentError`] if a size is zero, or dropout is not in `[0, 1)`.
    pub fn try_init(&self, device: &Device) -> Result<Recurrent, RecurrentError> {
        self.check()?;
        let bound = 1.0 / (self.d_hidden as f64).sqrt();
        let linear = |d_input: usize| {
            LinearConfig::new(d_input, self.cell.gates() * self.d_hidden)
                .with_bias(self.bias)
                .with_initializer(Initializer::Uniform {
                    min: -bound,
                    max: bound,
                })
                .init(device)
        };
        let layer = |index: usize| {
            let d_input = match index {
                0 => self.d_input,
                _ => self.direction.num_directions() * self.d_hidden,
            };
            let weights = || DirectedWeights {
                input: linear(d_input),
                hidden: linear(self.d_hidden),
            };
            RecurrentLayer {
                forward: (self.direction != Direction::Backward).then(weights),
                reverse: (self.direction != Direction::Forward).then(weights),
                cell: self.cell,
            }
        };
        Ok(Recurrent {
            layers: (0..self.layers).map(layer).collect(),
            dropout: DropoutConfig::new(self.dropout).init(),
            cell: self.cell,
            direction: self.direction,
            d_hidden: self.d_hidden,
        })
    }

    fn check(&self) -> Result<(), RecurrentError> {
        let sizes = [
            ("d_input", self.d_input),
            ("d_hidden", self.d_hidden),
            ("layers", self.layers),
        ];
        if let Some((field, got)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(RecurrentError {
                field,
                allowed: "at least 1",
                got: got.to_string(),
            });
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(RecurrentError {
                field: "dropout",
                allowed: "at least 0 and below 1",
                got: self.dropout.to_string(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_fields_are_named() {
        assert_eq!(RecurrentConfig::new(3, 4).check(), Ok(()));
        for (d_hidden, layers, dropout, message) in [
            (0, 1, 0.0, "d_hidden must be at least 1, got 0"),
            (4, 0, 0.0, "layers must be at least 1, got 0"),
            (4, 1, 1.0, "dropout must be at least 0 and below 1, got 1"),
        ] {
            let config = RecurrentConfig::new(3, d_hidden)
                .with_layers(layers)
                .with_dropout(dropout);
            let error = config.check().expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }
}
