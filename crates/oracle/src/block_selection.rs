//! Attention to selected blocks of keys by definition, in `f64`: softmax over the keys of a query's own block
//! and of the others with the largest scores,
//!
//! ```text
//! score_b = q_i · mean of the keys of block b that key lengths and padding do not mask
//! ```
//!
//! of which there are `top_k` together. With a causal mask only the blocks before the own one are candidates.
//! The selection has no gradient.

use crate::formula::Formula;
use crate::mask::Mask;
use crate::mechanisms::is_causal;
use crate::problem::{Inputs, Problem};
use crate::scores::solve_scores;
use crate::solution::{Solution, dot, vector};

/// The size of the blocks and the number that a query attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSelection {
    /// Keys in a block.
    pub block_size: usize,
    /// Blocks of a query.
    pub top_k: usize,
}

pub(crate) fn solve_block_selection(
    problem: &Problem,
    selection: BlockSelection,
    inputs: &Inputs,
    queries: &[usize],
) -> Solution {
    let softmax = problem.clone().with_formula(Formula::Softmax);
    let margin = std::cell::Cell::new(f64::INFINITY);
    let mut solution = solve_scores(&softmax, inputs, queries, None, &|row, visible| {
        let (blocks, row_margin) = selection.blocks(problem, inputs, row);
        margin.set(margin.get().min(row_margin));
        visible.retain(|j| blocks.contains(&(j / selection.block_size)));
    });
    solution.margin = solution.margin.min(margin.get());
    solution
}

impl BlockSelection {
    /// The blocks of a query of `[batch, heads, seq_q]`, and the difference of the lowest selected score and
    /// the highest other.
    fn blocks(&self, problem: &Problem, inputs: &Inputs, row: usize) -> (Vec<usize>, f64) {
        let (seq_q, seq_k) = (problem.seq_q, problem.seq_k);
        let (head, i) = (row / seq_q, row % seq_q);
        let example = head / problem.heads;
        let kv_head = head % problem.heads / (problem.heads / problem.kv_heads);
        let first_key = (example * problem.kv_heads + kv_head) * seq_k;
        let own = (i + seq_k)
            .checked_sub(seq_q)
            .map(|own| own / self.block_size);
        let query = vector(&inputs.query, row, problem.d_head);
        let mut scores: Vec<(f64, usize)> = (0..seq_k.div_ceil(self.block_size))
            .filter(|block| Some(*block) != own)
            .filter(|block| !is_causal(&problem.mask) || own.is_some_and(|own| *block < own))
            .filter_map(|block| {
                let end = seq_k.min((block + 1) * self.block_size);
                let keys: Vec<usize> = (block * self.block_size..end)
                    .filter(|&j| !is_masked_key(&problem.mask, problem, example, j))
                    .collect();
                let product =
                    |&j: &usize| dot(&query, &vector(&inputs.key, first_key + j, problem.d_head));
                let mean = keys.iter().map(product).sum::<f64>() / keys.len() as f64;
                (!keys.is_empty()).then_some((mean, block))
            })
            .collect();
        scores.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let count = self.top_k - usize::from(own.is_some());
        let margin = match scores.get(count) {
            Some((next, _)) if count > 0 => scores[count - 1].0 - next,
            _ => f64::INFINITY,
        };
        let selected = scores.into_iter().take(count).map(|(_, block)| block);
        (own.into_iter().chain(selected).collect(), margin)
    }
}

/// Whether key lengths or padding mask a key.
pub(crate) fn is_masked_key(mask: &Mask, problem: &Problem, example: usize, key: usize) -> bool {
    match mask {
        Mask::KeyLengths(_) | Mask::KeyPadding(_) => mask.mask_row(problem, [example, 0, 0])[key],
        Mask::All(parts) => parts
            .iter()
            .any(|part| is_masked_key(part, problem, example, key)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solve;

    /// Seven positions in blocks of two, with keys whose scores are known.
    #[test]
    fn own_block_and_the_one_with_the_largest_mean_are_visible() {
        let selection = BlockSelection {
            block_size: 2,
            top_k: 2,
        };
        let problem = Problem::new("line", [1, 1, 7, 7, 1]).with_mask(Mask::Causal);
        let problem = problem.with_formula(Formula::BlockSelection(selection));
        let mut inputs = problem.inputs();
        inputs.query.fill(1.0);
        // Means 1, 3, 2, and one key of 9.
        inputs
            .key
            .copy_from_slice(&[0.0, 2.0, 3.0, 3.0, 4.0, 0.0, 9.0]);
        let visible = |problem: &Problem| -> Vec<Vec<usize>> {
            let solution = solve(problem, &inputs);
            let rows = solution.weights.chunks(7);
            let visible = |row: &[f64]| (0..7).filter(|&j| row[j] > 0.0).collect();
            rows.map(visible).collect()
        };
        let expected: [&[usize]; 7] = [
            &[0],
            &[0, 1],
            &[0, 1, 2],
            &[0, 1, 2, 3],
            &[2, 3, 4],
            &[2, 3, 4, 5],
            &[2, 3, 6],
        ];
        assert_eq!(visible(&problem), expected);
        assert_eq!(solve(&problem, &inputs).margin, 1.0);
        // Without the key of 9 and the second one of 3, the last query selects block 1 still, whose mean is
        // that of one key.
        let padding = Mask::KeyPadding(vec![vec![false, false, false, true, false, false, true]]);
        let masked = problem
            .clone()
            .with_mask(Mask::All(vec![Mask::Causal, padding.clone()]));
        assert_eq!(visible(&masked)[6], [2]);
        let bidirectional = problem.with_mask(padding);
        assert_eq!(visible(&bidirectional)[0], [0, 1, 2]);
    }
}
