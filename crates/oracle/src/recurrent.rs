//! Reference implementation of recurrent layers: plain `f64` loops, with gradients by central
//! differences, which do not depend on an analytic derivation.

use zoo_spec::{Cell, SplitMix64};

use crate::solution::dot;

/// A recurrent layer and a batch of sequences.
#[derive(Debug, Clone)]
pub struct RecurrentProblem {
    /// Name in tests, and seed of the inputs.
    pub name: &'static str,
    /// Kind of cell.
    pub cell: Cell,
    /// For each direction of the layer, whether it reads the sequence in reverse.
    pub reverse: &'static [bool],
    /// Sequence length including padding.
    pub seq: usize,
    /// Length of each sequence.
    pub lengths: &'static [usize],
    /// Input dimension.
    pub d_input: usize,
    /// Hidden dimension.
    pub d_hidden: usize,
    /// Whether the initial state is not zero.
    pub has_state: bool,
}

/// Inputs and parameters in row-major order. Matrices have a row for each output, as in PyTorch.
#[derive(Debug, Clone)]
pub struct RecurrentInputs {
    /// `[batch, seq, d_input]`
    pub input: Vec<f64>,
    /// `[directions, gates * d_hidden, d_input]`
    pub weight_ih: Vec<f64>,
    /// `[directions, gates * d_hidden, d_hidden]`
    pub weight_hh: Vec<f64>,
    /// `[directions, gates * d_hidden]`
    pub bias_ih: Vec<f64>,
    /// `[directions, gates * d_hidden]`
    pub bias_hh: Vec<f64>,
    /// `[batch, directions, d_hidden]`
    pub hidden: Vec<f64>,
    /// The same for an LSTM; empty for a GRU.
    pub cell: Vec<f64>,
}

/// Outputs, or their gradients.
#[derive(Debug, Clone)]
pub struct RecurrentOutput {
    /// `[batch, seq, directions, d_hidden]`
    pub outputs: Vec<f64>,
    /// `[batch, directions, d_hidden]`: final hidden state.
    pub hidden: Vec<f64>,
    /// Final cell state of an LSTM; empty for a GRU.
    pub cell: Vec<f64>,
}

impl RecurrentProblem {
    /// Number of gates.
    pub fn gates(&self) -> usize {
        match self.cell {
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    fn hidden_len(&self) -> usize {
        self.lengths.len() * self.reverse.len() * self.d_hidden
    }

    fn cell_len(&self) -> usize {
        match self.cell {
            Cell::Gru => 0,
            Cell::Lstm => self.hidden_len(),
        }
    }

    /// Random inputs and parameters, which are representable in `f32`.
    pub fn sample_inputs(&self) -> RecurrentInputs {
        let mut normals = normals(self.name);
        let batch = self.lengths.len();
        let gates = self.reverse.len() * self.gates() * self.d_hidden;
        let state_std = if self.has_state { 1.0 } else { 0.0 };
        let hidden_std = (self.d_hidden as f64).sqrt().recip();
        RecurrentInputs {
            input: normals(batch * self.seq * self.d_input, 1.0),
            weight_ih: normals(gates * self.d_input, (self.d_input as f64).sqrt().recip()),
            weight_hh: normals(gates * self.d_hidden, hidden_std),
            bias_ih: normals(gates, 0.3),
            bias_hh: normals(gates, 0.3),
            hidden: normals(self.hidden_len(), state_std),
            cell: normals(self.cell_len(), state_std),
        }
    }

    /// Random gradients of the outputs.
    pub fn sample_output_grad(&self) -> RecurrentOutput {
        let mut normals = normals(&format!("upstream of {}", self.name));
        RecurrentOutput {
            outputs: normals(self.seq * self.hidden_len(), 1.0),
            hidden: normals(self.hidden_len(), 1.0),
            cell: normals(self.cell_len(), 1.0),
        }
    }

    /// Computes the outputs.
    pub fn solve(&self, inputs: &RecurrentInputs) -> RecurrentOutput {
        let (batch, directions, d) = (self.lengths.len(), self.reverse.len(), self.d_hidden);
        let mut output = RecurrentOutput {
            outputs: vec![0.0; batch * self.seq * directions * d],
            hidden: inputs.hidden.clone(),
            cell: inputs.cell.clone(),
        };
        for (row, &length) in self.lengths.iter().enumerate() {
            for (direction, &reverse) in self.reverse.iter().enumerate() {
                for step in 0..length {
                    let position = if reverse { length - 1 - step } else { step };
                    let state = (row * directions + direction) * d;
                    let previous = output.hidden[state..][..d].to_vec();
                    let input = &inputs.input[(row * self.seq + position) * self.d_input..];
                    // W x + b and U h + c for one output of the gates.
                    let sums = |gate_output: usize| {
                        let i = direction * self.gates() * d + gate_output;
                        let weight_ih = &inputs.weight_ih[i * self.d_input..][..self.d_input];
                        let weight_hh = &inputs.weight_hh[i * d..][..d];
                        (
                            dot(weight_ih, input) + inputs.bias_ih[i],
                            dot(weight_hh, &previous) + inputs.bias_hh[i],
                        )
                    };
                    for (x, h) in previous.iter().enumerate() {
                        let gate = |gate: usize| sums(gate * d + x);
                        let sum = |i: usize| gate(i).0 + gate(i).1;
                        let next = match self.cell {
                            Cell::Gru => {
                                let (r, z) = (sigmoid(sum(0)), sigmoid(sum(1)));
                                let n = (gate(2).0 + r * gate(2).1).tanh();
                                (1.0 - z) * n + z * h
                            }
                            Cell::Lstm => {
                                let (i, f) = (sigmoid(sum(0)), sigmoid(sum(1)));
                                let (g, o) = (sum(2).tanh(), sigmoid(sum(3)));
                                let cell = &mut output.cell[state + x];
                                *cell = f * *cell + i * g;
                                o * cell.tanh()
                            }
                        };
                        output.hidden[state + x] = next;
                        let i = ((row * self.seq + position) * directions + direction) * d + x;
                        output.outputs[i] = next;
                    }
                }
            }
        }
        output
    }

    /// Numerical gradients of `Σ output_grad · output` with respect to inputs and parameters.
    pub fn finite_difference_grads(
        &self,
        inputs: &RecurrentInputs,
        output_grad: &RecurrentOutput,
    ) -> RecurrentInputs {
        let each = |part: fn(&mut RecurrentInputs) -> &mut Vec<f64>| -> Vec<f64> {
            // The cube root of f64's precision balances truncation against cancellation.
            const STEP: f64 = 6e-6;
            let mut perturbed = inputs.clone();
            let count = part(&mut perturbed).len();
            let difference = |i: usize| {
                let value = part(&mut perturbed)[i];
                part(&mut perturbed)[i] = value + STEP;
                let above = loss(&self.solve(&perturbed), output_grad);
                part(&mut perturbed)[i] = value - STEP;
                let below = loss(&self.solve(&perturbed), output_grad);
                part(&mut perturbed)[i] = value;
                (above - below) / (2.0 * STEP)
            };
            (0..count).map(difference).collect()
        };
        RecurrentInputs {
            input: each(|inputs| &mut inputs.input),
            weight_ih: each(|inputs| &mut inputs.weight_ih),
            weight_hh: each(|inputs| &mut inputs.weight_hh),
            bias_ih: each(|inputs| &mut inputs.bias_ih),
            bias_hh: each(|inputs| &mut inputs.bias_hh),
            hidden: each(|inputs| &mut inputs.hidden),
            cell: each(|inputs| &mut inputs.cell),
        }
    }
}

fn normals(name: &str) -> impl FnMut(usize, f64) -> Vec<f64> + use<> {
    let mut rng = SplitMix64::named(name);
    move |count, std| {
        let values = rng.normals(count, std);
        values.into_iter().map(f64::from).collect()
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn loss(output: &RecurrentOutput, output_grad: &RecurrentOutput) -> f64 {
    dot(&output.outputs, &output_grad.outputs)
        + dot(&output.hidden, &output_grad.hidden)
        + dot(&output.cell, &output_grad.cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One position with one hidden unit, computed by hand.
    #[test]
    fn single_step_by_hand() {
        let mut problem = RecurrentProblem {
            name: "by hand",
            cell: Cell::Gru,
            reverse: &[false],
            seq: 1,
            lengths: &[1],
            d_input: 1,
            d_hidden: 1,
            has_state: true,
        };
        let mut inputs = RecurrentInputs {
            input: vec![2.0],
            weight_ih: vec![0.5, -1.0, 1.0],
            weight_hh: vec![1.0, 2.0, 3.0],
            bias_ih: vec![-1.0, 1.0, 0.0],
            bias_hh: vec![-0.5, 0.0, 0.5],
            hidden: vec![0.5],
            cell: vec![],
        };
        // r = σ(0) = 1/2, z = σ(0) = 1/2, n = tanh(2 + 1/2 · 2) = tanh(3)
        let output = problem.solve(&inputs);
        let expected = 0.5 * 3_f64.tanh() + 0.25;
        assert!((output.outputs[0] - expected).abs() < 1e-15);
        assert_eq!(output.hidden, output.outputs);

        problem.cell = Cell::Lstm;
        inputs.weight_ih = vec![0.0; 4];
        inputs.weight_hh = vec![0.0; 4];
        inputs.bias_ih = vec![0.0, 0.0, 1.0, 0.0];
        inputs.bias_hh = vec![0.0; 4];
        inputs.cell = vec![3.0];
        // cell = 1/2 · 3 + 1/2 · tanh(1), h = 1/2 · tanh(cell)
        let output = problem.solve(&inputs);
        let cell = 1.5 + 0.5 * 1_f64.tanh();
        assert!((output.cell[0] - cell).abs() < 1e-15);
        assert!((output.hidden[0] - 0.5 * cell.tanh()).abs() < 1e-15);
    }
}
