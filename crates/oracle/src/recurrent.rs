//! What recurrent layers must compute: plain `f64` loops, a place of a row at a time, and
//! gradients by central differences, which share nothing with a derivation by hand.

use zoo_spec::Draw;

/// What a place does to the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Gates `r`, `z`, `n`.
    Gru,
    /// Gates `i`, `f`, `g`, `o`.
    Lstm,
}

/// A layer and a batch of sequences for it.
#[derive(Debug, Clone)]
pub struct RecurrentProblem {
    /// What it is called; its numbers are drawn by it.
    pub name: &'static str,
    /// What a place does to the state.
    pub unit: Unit,
    /// For each pass over the sequence, whether it goes backward.
    pub backward: &'static [bool],
    /// Places that there is room for.
    pub seq: usize,
    /// Places of each row.
    pub lengths: &'static [usize],
    /// Numbers of each place.
    pub d_input: usize,
    /// Numbers of a state.
    pub d_hidden: usize,
    /// Whether a state other than zero comes first.
    pub has_state: bool,
}

/// The numbers of a problem, each kind in a row. What differs from pass to pass is laid out
/// pass after pass, a row of a matrix is a gate's number, as in PyTorch.
#[derive(Debug, Clone)]
pub struct RecurrentInputs {
    /// `[batch, seq, d_input]`
    pub input: Vec<f64>,
    /// `[passes, gates * d_hidden, d_input]`
    pub weight_ih: Vec<f64>,
    /// `[passes, gates * d_hidden, d_hidden]`
    pub weight_hh: Vec<f64>,
    /// `[passes, gates * d_hidden]`
    pub bias_ih: Vec<f64>,
    /// `[passes, gates * d_hidden]`
    pub bias_hh: Vec<f64>,
    /// `[batch, passes, d_hidden]`
    pub hidden: Vec<f64>,
    /// The same, of an LSTM; a GRU's is empty.
    pub cell: Vec<f64>,
}

/// What comes out, or the weights of it in a loss.
#[derive(Debug, Clone)]
pub struct RecurrentAnswer {
    /// `[batch, seq, passes, d_hidden]`
    pub outputs: Vec<f64>,
    /// `[batch, passes, d_hidden]`: after the last place.
    pub hidden: Vec<f64>,
    /// The same, of an LSTM; a GRU's is empty.
    pub cell: Vec<f64>,
}

impl RecurrentProblem {
    /// Gates of a unit.
    pub fn gates(&self) -> usize {
        match self.unit {
            Unit::Gru => 3,
            Unit::Lstm => 4,
        }
    }

    /// Numbers to compute with; they are numbers of `f32` too.
    pub fn draw(&self) -> RecurrentInputs {
        let mut normals = normals(self.name);
        let (batch, passes) = (self.lengths.len(), self.backward.len());
        let gates = passes * self.gates() * self.d_hidden;
        let states = batch * passes * self.d_hidden;
        let spread = if self.has_state { 1.0 } else { 0.0 };
        let hidden = (self.d_hidden as f64).sqrt().recip();
        RecurrentInputs {
            input: normals(batch * self.seq * self.d_input, 1.0),
            weight_ih: normals(gates * self.d_input, (self.d_input as f64).sqrt().recip()),
            weight_hh: normals(gates * self.d_hidden, hidden),
            bias_ih: normals(gates, 0.3),
            bias_hh: normals(gates, 0.3),
            hidden: normals(states, spread),
            cell: match self.unit {
                Unit::Gru => vec![],
                Unit::Lstm => normals(states, spread),
            },
        }
    }

    /// Weights of a loss, one for each number that comes out.
    pub fn draw_upstream(&self) -> RecurrentAnswer {
        let mut normals = normals(&format!("upstream of {}", self.name));
        let states = self.lengths.len() * self.backward.len() * self.d_hidden;
        RecurrentAnswer {
            outputs: normals(self.seq * states, 1.0),
            hidden: normals(states, 1.0),
            cell: match self.unit {
                Unit::Gru => vec![],
                Unit::Lstm => normals(states, 1.0),
            },
        }
    }

    /// What must come out.
    pub fn solve(&self, inputs: &RecurrentInputs) -> RecurrentAnswer {
        let (batch, passes, d) = (self.lengths.len(), self.backward.len(), self.d_hidden);
        let mut answer = RecurrentAnswer {
            outputs: vec![0.0; batch * self.seq * passes * d],
            hidden: inputs.hidden.clone(),
            cell: inputs.cell.clone(),
        };
        for (row, &length) in self.lengths.iter().enumerate() {
            for (pass, &backward) in self.backward.iter().enumerate() {
                for visit in 0..length {
                    let place = if backward { length - 1 - visit } else { visit };
                    let state = (row * passes + pass) * d;
                    let before = answer.hidden[state..][..d].to_vec();
                    let input = &inputs.input[(row * self.seq + place) * self.d_input..];
                    // W x + b and U h + c, of the gate's number.
                    let sums = |number: usize| {
                        let at = pass * self.gates() * d + number;
                        let of = |matrix: &[f64], vector: &[f64], width: usize| -> f64 {
                            let row = &matrix[at * width..][..width];
                            row.iter().zip(vector).map(|(a, b)| a * b).sum()
                        };
                        (
                            of(&inputs.weight_ih, input, self.d_input) + inputs.bias_ih[at],
                            of(&inputs.weight_hh, &before, d) + inputs.bias_hh[at],
                        )
                    };
                    for (x, own) in before.iter().enumerate() {
                        let gate = |gate: usize| sums(gate * d + x);
                        let sum = |at: usize| gate(at).0 + gate(at).1;
                        let after = match self.unit {
                            Unit::Gru => {
                                let (r, z) = (sigmoid(sum(0)), sigmoid(sum(1)));
                                let n = (gate(2).0 + r * gate(2).1).tanh();
                                (1.0 - z) * n + z * own
                            }
                            Unit::Lstm => {
                                let (i, f) = (sigmoid(sum(0)), sigmoid(sum(1)));
                                let (g, o) = (sum(2).tanh(), sigmoid(sum(3)));
                                let cell = &mut answer.cell[state + x];
                                *cell = f * *cell + i * g;
                                o * cell.tanh()
                            }
                        };
                        answer.hidden[state + x] = after;
                        let output = ((row * self.seq + place) * passes + pass) * d + x;
                        answer.outputs[output] = after;
                    }
                }
            }
        }
        answer
    }

    /// The gradients of `Σ upstream · answer` by all that goes in, by two answers for each
    /// number.
    pub fn differences(
        &self,
        inputs: &RecurrentInputs,
        upstream: &RecurrentAnswer,
    ) -> RecurrentInputs {
        let each = |part: fn(&mut RecurrentInputs) -> &mut Vec<f64>| -> Vec<f64> {
            // The cube root of f64's precision: what is cut off and what cancels are alike.
            const STEP: f64 = 6e-6;
            let mut moved = inputs.clone();
            let count = part(&mut moved).len();
            let difference = |at: usize| {
                let here = part(&mut moved)[at];
                part(&mut moved)[at] = here + STEP;
                let above = loss(&self.solve(&moved), upstream);
                part(&mut moved)[at] = here - STEP;
                let below = loss(&self.solve(&moved), upstream);
                part(&mut moved)[at] = here;
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
    let mut draw = Draw::named(name);
    move |count, spread| {
        let drawn = draw.normals(count, spread);
        drawn.into_iter().map(f64::from).collect()
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn loss(answer: &RecurrentAnswer, upstream: &RecurrentAnswer) -> f64 {
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    sum(&answer.outputs, &upstream.outputs)
        + sum(&answer.hidden, &upstream.hidden)
        + sum(&answer.cell, &upstream.cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One number of one place, worked out by hand.
    #[test]
    fn a_place_by_hand() {
        let mut problem = RecurrentProblem {
            name: "by hand",
            unit: Unit::Gru,
            backward: &[false],
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
        let answer = problem.solve(&inputs);
        let wanted = 0.5 * 3_f64.tanh() + 0.25;
        assert!((answer.outputs[0] - wanted).abs() < 1e-15);
        assert_eq!(answer.hidden, answer.outputs);

        problem.unit = Unit::Lstm;
        inputs.weight_ih = vec![0.0; 4];
        inputs.weight_hh = vec![0.0; 4];
        inputs.bias_ih = vec![0.0, 0.0, 1.0, 0.0];
        inputs.bias_hh = vec![0.0; 4];
        inputs.cell = vec![3.0];
        // cell = 1/2 · 3 + 1/2 · tanh(1), h = 1/2 · tanh(cell)
        let answer = problem.solve(&inputs);
        let cell = 1.5 + 0.5 * 1_f64.tanh();
        assert!((answer.cell[0] - cell).abs() < 1e-15);
        assert!((answer.hidden[0] - 0.5 * cell.tanh()).abs() < 1e-15);
    }
}
