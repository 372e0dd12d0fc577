//! Native sparse attention by definition, in `f64`, with analytic gradients. The output of a query is
//! `Σ_b g_b A_b` with gates `g` of its position, and each branch `A_b` is softmax attention to means of sets
//! of keys:
//!
//! ```text
//! A = Σ_S p_S v_S    p = softmax(c·tanh(scale q·k_S / c))    k_S and v_S are the means over the keys of S
//!
//! dg_b = do·A_b      dp_S = g_b do·v_S     ds_S = p_S (dp_S - Σ p dp)     dt_S = ds_S (1 - tanh²)
//! dq  += scale dt_S k_S      dk_j += scale dt_S q / |S|      dv_j += g_b p_S do / |S|       for j in S
//! ```
//!
//! - compressed: the blocks whose last key is not after the query, or all with a bidirectional mask;
//! - selected: the visible keys of the own block and of the others with the largest sum of compressed weights
//!   over the query heads that share them;
//! - window: the visible keys near the query.
//!
//! Keys that key lengths or padding mask are in no set.

use crate::block_selection::is_masked_key;
use crate::mechanisms::is_causal;
use crate::problem::{Inputs, Problem};
use crate::scores::Row;
use crate::solution::{Solution, add, add_row, dot, max_abs, vector};

/// Sizes of native sparse attention, and its gates.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedBranches {
    /// Keys in a block.
    pub block_size: usize,
    /// Blocks that a query selects, its own among them.
    pub top_k: usize,
    /// Keys of the window on either side.
    pub window: usize,
    /// `[batch, heads, seq_k, 3]`: the gates of the three branches of each position.
    pub gates: Vec<f32>,
}

/// The mean key and value of a set of keys.
#[derive(Clone)]
struct Mean {
    members: Vec<usize>,
    key: Vec<f64>,
    value: Vec<f64>,
}

/// Softmax attention of a query to means.
struct Attended<'a> {
    means: Vec<&'a Mean>,
    weights: Vec<f64>,
    /// Logarithms of the weights.
    logarithms: Vec<f64>,
    /// Derivatives of the scores with respect to the scaled products.
    softcap_grads: Vec<f64>,
    largest_product: f64,
}

pub(crate) fn solve_native_sparse(
    problem: &Problem,
    branches: &GatedBranches,
    inputs: &Inputs,
    queries: &[usize],
) -> Solution {
    let mut solution = Solution::zeros(problem, inputs, queries.len());
    let mut largest_term = 0f64;
    let kv_heads = 0..problem.batch * problem.kv_heads;
    let means: Vec<[Vec<Mean>; 2]> = kv_heads
        .map(|head| branches.means(problem, inputs, head))
        .collect();
    for (index, &query) in queries.iter().enumerate() {
        let row = Row::new(problem, query);
        // Aligned at the end; queries before the first key have no position.
        let Some(position) = (row.i + problem.seq_k).checked_sub(problem.seq_q) else {
            continue;
        };
        let [singles, blocks] = &means[row.first_key / problem.seq_k];
        let compressed = branches.compressed(problem, blocks, position);
        let (selected, margin) = branches.select(problem, inputs, &compressed, &row, position);
        solution.margin = solution.margin.min(margin);
        let visible = |is_in_branch: &dyn Fn(usize) -> bool| -> Vec<&Mean> {
            let keys = row.visible.iter().filter(|key| is_in_branch(**key));
            keys.map(|key| &singles[*key]).collect()
        };
        let sets = [
            compressed.into_iter().map(|(_, mean)| mean).collect(),
            visible(&|key| selected.contains(&(key / branches.block_size))),
            visible(&|key| key.abs_diff(position) <= branches.window),
        ];
        let first_gate = 3 * ((row.example * problem.heads + row.head) * problem.seq_k + position);
        for (branch, means) in sets.into_iter().enumerate() {
            let vector = vector(&inputs.query, query, problem.d_head);
            let attended = Attended::new(problem, means, &vector);
            let gate = first_gate + branch;
            let term = attended.add_to(
                &mut solution,
                problem,
                inputs,
                [index, query, gate, row.first_key],
                f64::from(branches.gates[gate]),
            );
            largest_term = largest_term.max(term);
        }
    }
    solution.terms.d_query = largest_term * max_abs(&inputs.key);
    solution.terms.d_key = largest_term * max_abs(&inputs.query);
    solution
}

impl GatedBranches {
    /// The keys of a head of `[batch, kv_heads]`, and the means of its blocks; those of masked keys have no
    /// members.
    fn means(&self, problem: &Problem, inputs: &Inputs, head: usize) -> [Vec<Mean>; 2] {
        let (seq_k, example) = (problem.seq_k, head / problem.kv_heads);
        let mean = |keys: std::ops::Range<usize>| {
            let is_masked = |key: &usize| is_masked_key(&problem.mask, problem, example, *key);
            let members: Vec<usize> = keys.filter(|key| !is_masked(key)).collect();
            let mean = |tensor: &[f32], width: usize| {
                let mut mean = vec![0.0; width];
                for &key in &members {
                    let row = vector(tensor, head * seq_k + key, width);
                    add(&mut mean, 1.0 / members.len() as f64, &row);
                }
                mean
            };
            Mean {
                key: mean(&inputs.key, problem.d_head),
                value: mean(&inputs.value, problem.d_value),
                members,
            }
        };
        let blocks = (0..seq_k).step_by(self.block_size);
        [
            (0..seq_k).map(|key| mean(key..key + 1)).collect(),
            blocks
                .map(|first| mean(first..seq_k.min(first + self.block_size)))
                .collect(),
        ]
    }

    /// The blocks whose means a position attends to, with their indices.
    fn compressed<'a>(
        &self,
        problem: &Problem,
        blocks: &'a [Mean],
        position: usize,
    ) -> Vec<(usize, &'a Mean)> {
        let is_visible = |block: usize| {
            !is_causal(&problem.mask) || (block + 1) * self.block_size <= position + 1
        };
        (blocks.iter().enumerate())
            .filter(|(block, mean)| is_visible(*block) && !mean.members.is_empty())
            .collect()
    }

    /// The selected blocks of a query, and the difference of the logarithms of the lowest selected
    /// importance and the highest other.
    fn select(
        &self,
        problem: &Problem,
        inputs: &Inputs,
        compressed: &[(usize, &Mean)],
        row: &Row,
        position: usize,
    ) -> (Vec<usize>, f64) {
        let group = problem.heads / problem.kv_heads;
        let first_head = row.head / group * group;
        let logarithms: Vec<Vec<f64>> = (first_head..first_head + group)
            .map(|head| {
                let query = (row.example * problem.heads + head) * problem.seq_q + row.i;
                let query = vector(&inputs.query, query, problem.d_head);
                let means = compressed.iter().map(|(_, mean)| *mean).collect();
                Attended::new(problem, means, &query).logarithms
            })
            .collect();
        let own = position / self.block_size;
        let mut others: Vec<(f64, usize)> = (compressed.iter().enumerate())
            .filter(|(_, (block, _))| *block != own)
            .map(|(index, (block, _))| {
                let of_heads = || logarithms.iter().map(|of_head| of_head[index]);
                let max = of_heads().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = of_heads().map(|logarithm| (logarithm - max).exp()).sum();
                (max + sum.ln(), *block)
            })
            .collect();
        others.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let count = self.top_k - 1;
        let margin = match others.get(count) {
            Some((next, _)) if count > 0 => others[count - 1].0 - next,
            _ => f64::INFINITY,
        };
        let selected = others.into_iter().take(count).map(|(_, block)| block);
        (std::iter::once(own).chain(selected).collect(), margin)
    }
}

impl<'a> Attended<'a> {
    fn new(problem: &Problem, means: Vec<&'a Mean>, query: &[f64]) -> Self {
        let products: Vec<f64> = (means.iter())
            .map(|mean| problem.scale() * dot(query, &mean.key))
            .collect();
        let tanh = |product: f64| problem.softcap.map(|cap| (cap, (product / cap).tanh()));
        let scores = products
            .iter()
            .map(|&product| tanh(product).map_or(product, |(cap, tanh)| cap * tanh));
        let max = scores.clone().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.clone().map(|score| (score - max).exp()).sum();
        let logarithms: Vec<f64> = scores.map(|score| score - max - sum.ln()).collect();
        let grads = products.iter().map(|&product| tanh(product));
        Self {
            weights: logarithms.iter().map(|x| x.exp()).collect(),
            logarithms,
            softcap_grads: grads
                .map(|tanh| tanh.map_or(1.0, |(_, tanh)| 1.0 - tanh * tanh))
                .collect(),
            largest_product: products.iter().fold(0.0, |max: f64, x| max.max(x.abs())),
            means,
        }
    }

    /// Adds the context, weights and gradients of a query, given its index in the solution and in the inputs,
    /// the index of its gate, and the row of its first key. Returns the largest absolute term of the gradient
    /// of a scaled product.
    fn add_to(
        &self,
        solution: &mut Solution,
        problem: &Problem,
        inputs: &Inputs,
        [index, query, gate_index, first_key]: [usize; 4],
        gate: f64,
    ) -> f64 {
        let mut largest_term = 0f64;
        let scale = problem.scale();
        let output_grad = vector(&inputs.output_grad, query, problem.d_value);
        let query = vector(&inputs.query, query, problem.d_head);
        let products: Vec<f64> = (self.means.iter())
            .map(|mean| dot(&output_grad, &mean.value))
            .collect();
        let mean_product = dot(&self.weights, &products);
        solution.d_parameter[gate_index] += mean_product;
        solution.terms.d_parameter += (self.weights.iter().zip(&products))
            .map(|(weight, product)| (weight * product).abs())
            .sum::<f64>();
        solution.largest_score = solution.largest_score.max(self.largest_product);
        for (i, mean) in self.means.iter().enumerate() {
            let weight = gate * self.weights[i];
            add_row(&mut solution.context, index, weight, &mean.value);
            let d_score = weight * (products[i] - mean_product);
            let d_product = scale * self.softcap_grads[i] * d_score;
            add_row(&mut solution.d_query, index, d_product, &mean.key);
            let share = 1.0 / mean.members.len() as f64;
            for &key in &mean.members {
                solution.weights[index * problem.seq_k + key] += share * weight;
                let key_row = first_key + key;
                add_row(&mut solution.d_key, key_row, share * d_product, &query);
                add_row(&mut solution.d_value, key_row, share * weight, &output_grad);
            }
            largest_term = largest_term.max((scale * weight * products[i]).abs());
        }
        largest_term
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Formula, Mask, solve};

    /// Seven positions in blocks of two, with keys whose scores are known and one gate that is not zero.
    #[test]
    fn branches_attend_to_complete_blocks_selected_blocks_and_a_window() {
        let mut branches = GatedBranches {
            block_size: 2,
            top_k: 2,
            window: 1,
            gates: vec![],
        };
        let problem = Problem::new("line", [1, 1, 7, 7, 1]).with_mask(Mask::Causal);
        let mut inputs = problem.inputs();
        inputs.query.fill(1.0);
        // Means 1, 3, 2, and one key of 9.
        inputs
            .key
            .copy_from_slice(&[0.0, 2.0, 3.0, 3.0, 4.0, 0.0, 9.0]);
        let mut visible = |gate: usize, row: usize| -> Vec<usize> {
            branches.gates = (0..21).map(|i| f32::from(i % 3 == gate)).collect();
            let formula = Formula::NativeSparse(branches.clone());
            let solution = solve(&problem.clone().with_formula(formula), &inputs);
            assert_eq!(solution.margin, 1.0);
            let row = &solution.weights[row * 7..][..7];
            let sum: f64 = row.iter().sum();
            assert!(sum == 0.0 || (sum - 1.0).abs() < 1e-12, "{sum}");
            (0..7).filter(|&j| row[j] > 0.0).collect()
        };
        let none: [usize; 0] = [];
        assert_eq!(visible(0, 0), none);
        assert_eq!(visible(0, 1), [0, 1]);
        assert_eq!(visible(0, 4), [0, 1, 2, 3]);
        assert_eq!(visible(0, 6), [0, 1, 2, 3, 4, 5]);
        assert_eq!(visible(1, 0), [0]);
        assert_eq!(visible(1, 4), [2, 3, 4]);
        assert_eq!(visible(1, 6), [2, 3, 6]);
        assert_eq!(visible(2, 0), [0]);
        assert_eq!(visible(2, 6), [5, 6]);
    }

    /// Heads that prefer different blocks select the same one if they share keys.
    #[test]
    fn query_heads_that_share_keys_select_the_same_blocks() {
        let problem = Problem::new("shared", [1, 2, 1, 6, 2]).with_kv_heads(1);
        let mut inputs = problem.inputs();
        inputs.query.copy_from_slice(&[3.0, 0.0, 0.0, 2.0]);
        let keys = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]];
        let keys: Vec<f32> = keys.iter().flat_map(|key| [*key, *key]).flatten().collect();
        inputs.key.copy_from_slice(&keys);
        let solved = |kv_heads: usize| {
            let mut inputs = inputs.clone();
            inputs.key = inputs.key.repeat(kv_heads);
            inputs.value = inputs.value.repeat(kv_heads);
            let branches = GatedBranches {
                block_size: 2,
                top_k: 2,
                window: 0,
                gates: [0.0, 1.0, 0.0].repeat(12),
            };
            let problem = problem.clone().with_kv_heads(kv_heads);
            let formula = Formula::NativeSparse(branches);
            let weights = solve(&problem.with_formula(formula), &inputs).weights;
            [0, 1].map(|head| [0, 2].map(|key| weights[head * 6 + key] > 0.0))
        };
        assert_eq!(solved(2), [[true, false], [false, true]]);
        assert_eq!(solved(1), [[true, false]; 2]);
    }
}
