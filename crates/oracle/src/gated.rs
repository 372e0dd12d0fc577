//! Gated recurrences by definition, in `f64`, one position after the other, with analytic gradients:
//!
//! ```text
//! P_t = diag(a_t) S_(t-1)
//! u_t = b_t v_t                    or for the delta rule b_t (v_t - k_t · P_t)
//! S_t = P_t + k_t u_tᵀ             o_t = scale · q_t · S_t
//!
//! dS_t += scale q_t do_tᵀ          from the last position to the first
//! dq_t  = scale S_t do_t
//! du_t  = k_t · dS_t               dk_t = dS_t u_t
//! dv_t  = b_t du_t                 db_t = du_t · u_t / b_t
//! dP_t  = dS_t - b_t k_t du_tᵀ     dk_t += -b_t P_t du_t             for the delta rule
//! da_t  = rows of dP_t · S_(t-1)   dS_(t-1) = diag(a_t) dP_t
//! ```
//!
//! The weight of key `j` for query `i` is `b_j r · k_j`, where `r` starts as `scale · q_i` and is
//! multiplied by `(1 - b_t k_t k_tᵀ) diag(a_t)` for each position `t` from `i` down to `j + 1`.

use crate::formula::GatedRecurrence;
use crate::problem::{Inputs, Problem};
use crate::scores::Row;
use crate::solution::{Solution, add, add_row, dot, vector};

/// Positions between two states that are stored.
const SEGMENT: usize = 64;

pub(crate) fn solve_gated(
    problem: &Problem,
    gates: &GatedRecurrence,
    inputs: &Inputs,
    queries: &[usize],
) -> Solution {
    let mut solution = Solution::zeros(problem, inputs, queries.len());
    for head in 0..problem.batch * problem.kv_heads {
        Head::new(problem, gates, inputs, head).solve(queries, &mut solution);
    }
    solution
}

/// A query of a head: its index among those to solve, its position and its output gradient.
struct Query {
    index: usize,
    position: usize,
    /// Normalised, for a delta rule.
    query: Unit,
    output_grad: Vec<f64>,
}

/// A vector, divided by its length in a delta rule.
struct Unit {
    raw: Vec<f64>,
    length: Option<f64>,
    value: Vec<f64>,
}

impl Unit {
    fn new(raw: Vec<f64>, is_normalised: bool) -> Self {
        let length = is_normalised.then(|| (dot(&raw, &raw) + 1e-6).sqrt());
        let factor = 1.0 / length.unwrap_or(1.0);
        Self {
            value: raw.iter().map(|x| factor * x).collect(),
            raw,
            length,
        }
    }

    /// The gradient of the vector, given that of the value.
    fn backward(&self, d: &[f64]) -> Vec<f64> {
        let Some(length) = self.length else {
            return d.to_vec();
        };
        let along = dot(&self.raw, d) / length.powi(3);
        let pairs = d.iter().zip(&self.raw);
        pairs.map(|(d, x)| d / length - along * x).collect()
    }
}

/// One key/value head of an example.
struct Head<'a> {
    problem: &'a Problem,
    gates: &'a GatedRecurrence,
    inputs: &'a Inputs,
    /// Index into `[batch, kv_heads]`.
    head: usize,
    keys: Vec<Unit>,
    values: Vec<Vec<f64>>,
}

/// What a position computes.
struct Step {
    /// `P_t`, a row for each element of a key.
    decayed: Vec<Vec<f64>>,
    /// `u_t`
    update: Vec<f64>,
    /// What `b_t` multiplies.
    change: Vec<f64>,
}

impl<'a> Head<'a> {
    fn new(
        problem: &'a Problem,
        gates: &'a GatedRecurrence,
        inputs: &'a Inputs,
        head: usize,
    ) -> Self {
        let (seq, d_head, d_value) = (problem.seq_k, problem.d_head, problem.d_value);
        let (example, kv_head) = (head / problem.kv_heads, head % problem.kv_heads);
        let group = problem.heads / problem.kv_heads;
        // The last query attends to all keys that are not masked for every query.
        let first_row = (example * problem.heads + kv_head * group) * problem.seq_q;
        let masked = problem.mask_row(first_row + problem.seq_q - 1);
        let row = |tensor: &[f32], position: usize, width: usize| match masked[position] {
            true => vec![0.0; width],
            false => vector(tensor, head * seq + position, width),
        };
        let key = |position| Unit::new(row(&inputs.key, position, d_head), gates.is_delta);
        Self {
            problem,
            gates,
            inputs,
            head,
            keys: (0..seq).map(key).collect(),
            values: (0..seq).map(|at| row(&inputs.value, at, d_value)).collect(),
        }
    }

    /// Indices of the logarithms of decays at a position.
    fn decay_indices(&self, position: usize) -> std::ops::Range<usize> {
        let positions = self.problem.batch * self.problem.kv_heads * self.problem.seq_k;
        let width = self.gates.log_decays.len() / positions;
        let first = (self.head * self.problem.seq_k + position) * width;
        first..first + width
    }

    /// `a_t`, for each element of a key.
    fn decay(&self, position: usize) -> Vec<f64> {
        let logs = &self.gates.log_decays[self.decay_indices(position)];
        let decay = |x: usize| match logs {
            [] => 1.0,
            [log] => f64::from(*log).exp(),
            logs => f64::from(logs[x]).exp(),
        };
        (0..self.problem.d_head).map(decay).collect()
    }

    fn strength(&self, position: usize) -> f64 {
        let index = self.head * self.problem.seq_k + position;
        self.gates
            .strengths
            .get(index)
            .map_or(1.0, |&b| f64::from(b))
    }

    fn step(&self, position: usize, state: &[Vec<f64>]) -> Step {
        let (key, value) = (&self.keys[position].value, &self.values[position]);
        let decay = self.decay(position);
        let rows = state.iter().zip(&decay);
        let decayed: Vec<Vec<f64>> = rows
            .map(|(row, decay)| row.iter().map(|x| decay * x).collect())
            .collect();
        let mut change = value.clone();
        if self.gates.is_delta {
            for (row, k) in decayed.iter().zip(key) {
                add(&mut change, -k, row);
            }
        }
        let strength = self.strength(position);
        Step {
            decayed,
            update: change.iter().map(|x| strength * x).collect(),
            change,
        }
    }

    /// `S_t`
    fn state_after(&self, position: usize, step: &Step) -> Vec<Vec<f64>> {
        let key = &self.keys[position].value;
        let rows = step.decayed.iter().zip(key);
        rows.map(|(row, k)| {
            let mut row = row.clone();
            add(&mut row, *k, &step.update);
            row
        })
        .collect()
    }

    fn queries(&self, queries: &[usize]) -> Vec<Query> {
        let problem = self.problem;
        let group = problem.heads / problem.kv_heads;
        let mut own = Vec::new();
        for (index, &row) in queries.iter().enumerate() {
            let Row {
                example, head, i, ..
            } = Row::new(problem, row);
            let kv_head = example * problem.kv_heads + head / group;
            // Aligned at the end; queries before the first key have no position.
            let Some(position) = (i + problem.seq_k).checked_sub(problem.seq_q) else {
                continue;
            };
            if kv_head == self.head {
                let query = vector(&self.inputs.query, row, problem.d_head);
                own.push(Query {
                    index,
                    position,
                    query: Unit::new(query, self.gates.is_delta),
                    output_grad: vector(&self.inputs.output_grad, row, problem.d_value),
                });
            }
        }
        own
    }

    fn solve(&self, queries: &[usize], solution: &mut Solution) {
        let (d_head, d_value, seq) = (
            self.problem.d_head,
            self.problem.d_value,
            self.problem.seq_k,
        );
        let queries = self.queries(queries);
        for query in &queries {
            self.add_weights(query, solution);
        }
        let mut state = vec![vec![0.0; d_value]; d_head];
        let mut stored = Vec::new();
        for position in 0..seq {
            if position % SEGMENT == 0 {
                stored.push(state.clone());
            }
            state = self.state_after(position, &self.step(position, &state));
        }
        let mut d_state = vec![vec![0.0; d_value]; d_head];
        for (segment, first) in stored.into_iter().enumerate().rev() {
            let positions = segment * SEGMENT..seq.min((segment + 1) * SEGMENT);
            let mut before = vec![first];
            for position in positions.clone() {
                let state = before.last().expect("the first state");
                before.push(self.state_after(position, &self.step(position, state)));
            }
            for position in positions.rev() {
                let after = before.pop().expect("a state");
                for query in queries.iter().filter(|query| query.position == position) {
                    self.add_query(query, &after, &mut d_state, solution);
                }
                let state = before.last().expect("a state");
                d_state = self.backward(position, state, d_state, solution);
            }
        }
    }

    /// Adds the context and the query gradient of a query, and its part of the state's gradient.
    fn add_query(
        &self,
        query: &Query,
        state: &[Vec<f64>],
        d_state: &mut [Vec<f64>],
        solution: &mut Solution,
    ) {
        let scale = self.problem.scale();
        let mut d_query = Vec::new();
        for ((row, d_row), q) in state.iter().zip(d_state).zip(&query.query.value) {
            add_row(&mut solution.context, query.index, scale * q, row);
            add(d_row, scale * q, &query.output_grad);
            d_query.push(scale * dot(row, &query.output_grad));
            let terms = row
                .iter()
                .zip(&query.output_grad)
                .map(|(s, d)| (s * d).abs());
            let terms = scale.abs() * terms.sum::<f64>() / query.query.length.unwrap_or(1.0);
            solution.terms.d_query = solution.terms.d_query.max(terms);
        }
        let d_query = query.query.backward(&d_query);
        add_row(&mut solution.d_query, query.index, 1.0, &d_query);
    }

    /// The gradient of the state before a position, given that of the state after it.
    fn backward(
        &self,
        position: usize,
        state: &[Vec<f64>],
        mut d_state: Vec<Vec<f64>>,
        solution: &mut Solution,
    ) -> Vec<Vec<f64>> {
        let step = self.step(position, state);
        let (key, strength) = (&self.keys[position], self.strength(position));
        let row = self.head * self.problem.seq_k + position;
        let mut d_update = vec![0.0; self.problem.d_value];
        for (d_row, k) in d_state.iter().zip(&key.value) {
            add(&mut d_update, *k, d_row);
        }
        let mut d_key: Vec<f64> = d_state
            .iter()
            .map(|d_row| dot(d_row, &step.update))
            .collect();
        for d_row in &d_state {
            let terms = d_row.iter().zip(&step.update).map(|(d, u)| (d * u).abs());
            let terms = terms.sum::<f64>() / key.length.unwrap_or(1.0);
            solution.terms.d_key = solution.terms.d_key.max(terms);
        }
        let is_masked = key.raw.iter().all(|x| *x == 0.0);
        if !is_masked {
            add_row(&mut solution.d_value, row, strength, &d_update);
        }
        let decays = self.gates.log_decays.len();
        if !self.gates.strengths.is_empty() {
            solution.d_parameter[decays + row] += dot(&d_update, &step.change);
            let terms = d_update
                .iter()
                .zip(&step.change)
                .map(|(d, x)| (d * x).abs());
            solution.terms.d_parameter = solution.terms.d_parameter.max(terms.sum());
        }
        if self.gates.is_delta {
            for (x, row) in step.decayed.iter().enumerate() {
                d_key[x] -= strength * dot(row, &d_update);
                add(&mut d_state[x], -strength * key.value[x], &d_update);
            }
        }
        if !is_masked {
            add_row(&mut solution.d_key, row, 1.0, &key.backward(&d_key));
        }
        let decay = self.decay(position);
        let indices = self.decay_indices(position);
        for (x, d_row) in d_state.iter_mut().enumerate() {
            let d_log = decay[x] * dot(d_row, &state[x]);
            if !indices.is_empty() {
                let index = (indices.start + x).min(indices.end - 1);
                solution.d_parameter[index] += d_log;
                solution.terms.d_parameter = solution.terms.d_parameter.max(d_log.abs());
            }
            d_row.iter_mut().for_each(|d| *d *= decay[x]);
        }
        d_state
    }

    fn add_weights(&self, query: &Query, solution: &mut Solution) {
        let scale = self.problem.scale();
        let mut factors: Vec<f64> = query.query.value.iter().map(|q| scale * q).collect();
        for position in (0..=query.position).rev() {
            let (key, strength) = (&self.keys[position].value, self.strength(position));
            let product = dot(&factors, key);
            solution.weights[query.index * self.problem.seq_k + position] = strength * product;
            if self.gates.is_delta {
                add(&mut factors, -strength * product, key);
            }
            for (factor, decay) in factors.iter_mut().zip(self.decay(position)) {
                *factor *= decay;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use zoo_spec::{Mechanism, SplitMix64};

    use super::*;
    use crate::{Parameter, solve};

    /// The weights follow from another order of the same products.
    #[test]
    fn context_is_the_weighted_sum_of_the_values() {
        for mechanism in [
            Mechanism::Mamba2,
            Mechanism::Gla,
            Mechanism::Delta,
            Mechanism::Kda,
        ] {
            let problem = Problem::small_for(&mechanism.into());
            let gates = |parameter: Parameter| {
                let values = SplitMix64::named("gates").normals(parameter.num_elements(), 1.0);
                match parameter {
                    Parameter::Strengths { .. } => values.iter().map(|x| x.abs()).collect(),
                    _ => values.iter().map(|x| -x.abs()).collect::<Vec<f32>>(),
                }
            };
            let problem = problem.with_mechanism(&mechanism.into(), gates);
            let problem = problem.expect("accepted");
            let inputs = problem.inputs();
            let solution = solve(&problem, &inputs);
            for (row, weights) in solution.weights.chunks(problem.seq_k).enumerate() {
                let first = Row::new(&problem, row).first_key;
                let mut sum = vec![0.0; problem.d_value];
                for (j, weight) in weights.iter().enumerate() {
                    add(
                        &mut sum,
                        *weight,
                        &vector(&inputs.value, first + j, problem.d_value),
                    );
                }
                let context = &solution.context[row * problem.d_value..][..problem.d_value];
                for (a, b) in sum.iter().zip(context) {
                    assert!((a - b).abs() < 1e-12, "{mechanism}: {a} and {b}");
                }
            }
        }
    }

    /// With strengths of 1 and keys of length 1, a position returns its value for its own key.
    #[test]
    fn a_delta_rule_stores_values() {
        let mut problem = Problem::new("delta", [1, 1, 3, 3, 2]).with_scale(1.0);
        problem.mask = crate::Mask::Causal;
        let problem = problem
            .with_mechanism(&Mechanism::Delta.into(), |p| vec![1.0; p.num_elements()])
            .expect("accepted");
        let key = vec![0.6, 0.8, 0.0, 2.0, -0.8, 0.6];
        let inputs = Inputs {
            query: key.clone(),
            key,
            ..problem.inputs()
        };
        let solution = solve(&problem, &inputs);
        for (o, v) in solution.context.iter().zip(&inputs.value) {
            assert!((o - f64::from(*v)).abs() < 1e-5, "{o} and {v}");
        }
    }
}
