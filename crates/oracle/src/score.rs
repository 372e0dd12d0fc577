//! One row of scores: where its query and keys lie, and what is done to a product on its
//! way to a score.

use crate::problem::{Inputs, Problem};

/// Where the query of a row lies, and the keys and values it is given.
pub(crate) struct Row {
    pub(crate) example: usize,
    pub(crate) head: usize,
    /// Its number among the queries of its example and head.
    pub(crate) i: usize,
    /// Where the keys of its example and head begin.
    pub(crate) first_key: usize,
    /// The keys it sees.
    pub(crate) seen: Vec<usize>,
}

impl Row {
    /// Of query `row`, counted over `[batch, heads, seq_q]`.
    pub(crate) fn of(problem: &Problem, row: usize) -> Self {
        let example = row / (problem.heads * problem.seq_q);
        let head = row / problem.seq_q % problem.heads;
        let kv_head = head / (problem.heads / problem.kv_heads);
        let hidden = problem.hidden_from(row);
        Self {
            example,
            head,
            i: row % problem.seq_q,
            first_key: (example * problem.kv_heads + kv_head) * problem.seq_k,
            seen: (0..problem.seq_k).filter(|&j| !hidden[j]).collect(),
        }
    }

    /// `[example, head, query, key]`
    pub(crate) fn place(&self, j: usize) -> [usize; 4] {
        [self.example, self.head, self.i, j]
    }
}

/// A score, made of a product.
pub(crate) struct Score {
    pub(crate) score: f64,
    /// What a gradient is multiplied by on its way from the score to the product.
    pub(crate) bend: f64,
    /// The largest number by size that it is the sum of.
    pub(crate) largest_part: f64,
}

impl Score {
    /// Of the product of `[example, head, i, j]`.
    pub(crate) fn of(
        problem: &Problem,
        inputs: &Inputs,
        slopes: &[f32],
        place: [usize; 4],
        product: f64,
    ) -> Self {
        let [_, head, i, j] = place;
        let (capped, bend) = match problem.softcap {
            Some(cap) => {
                let bent = (product / cap).tanh();
                (cap * bent, 1.0 - bent * bent)
            }
            None => (product, 1.0),
        };
        let fall = if problem.alibi {
            // Both counted from the end, where query and key are level.
            let distance = (problem.seq_q - i).abs_diff(problem.seq_k - j);
            f64::from(slopes[head]) * distance as f64
        } else {
            0.0
        };
        let bias = bias_place(problem, place).map_or(0.0, |at| f64::from(inputs.bias[at]));
        Self {
            score: capped - fall + bias,
            bend,
            largest_part: product.abs().max(fall.abs()).max(bias.abs()),
        }
    }
}

/// Where the bias of `[example, head, i, j]` lies, if there is one.
pub(crate) fn bias_place(problem: &Problem, place: [usize; 4]) -> Option<usize> {
    let dims = problem.bias?;
    Some(dims.iter().zip(place).fold(0, |offset, (&size, at)| {
        offset * size + if size == 1 { 0 } else { at }
    }))
}
