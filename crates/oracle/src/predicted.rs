//! Where queries look that predict a place, with gradients by hand:
//!
//! ```text
//! u_i  = tanh(q_i·W)          z_i = v·u_i          p_i = S / (1 + exp(-z_i))
//! g_ij = exp(-(j - p_i)² / 2σ²)                    σ = window / 2, for |j - p_i| <= window
//!
//! dp_i  = Σ_j a_ij da_ij (j - p_i) / σ²
//! dz_i  = dp_i p_i (1 - p_i / S)
//! dv    = Σ_i dz_i u_i
//! dW    = Σ_i q_iᵀ dy_i       with dy_i = dz_i v (1 - u_i²)
//! dq_i  = W dy_i              besides what comes from the scores
//! ```
//!
//! with `S` the number of keys of the example, and `a` and `da` as in attention by scores.

use crate::formula::Formula;
use crate::oracle::{Answer, add_row, dot, matrix_of, times, vector};
use crate::problem::Problem;
use crate::scores::Row;

/// The place that one query predicts.
pub(crate) struct Prediction {
    head: usize,
    v: Vec<f64>,
    matrix: Vec<Vec<f64>>,
    u: Vec<f64>,
    p: f64,
    /// Of the place by `z`.
    slope: f64,
    window: f64,
}

impl Prediction {
    /// `None` where the problem has no such places.
    pub(crate) fn of(problem: &Problem, row: &Row, query: &[f64]) -> Option<Self> {
        let Formula::Predicted {
            vectors,
            matrices,
            window,
        } = &problem.formula
        else {
            return None;
        };
        let v = vector(vectors, row.head, query.len());
        let matrix = matrix_of(matrices, row.head, query.len());
        let u: Vec<f64> = times(query, &matrix).iter().map(|x| x.tanh()).collect();
        let keys = problem.mask.keys_of(row.example, problem.seq_k) as f64;
        let share = 1.0 / (1.0 + (-dot(&v, &u)).exp());
        let p = keys * share;
        Some(Self {
            head: row.head,
            v,
            matrix,
            u,
            p,
            slope: p * (1.0 - share),
            window: *window as f64,
        })
    }

    fn away(&self, j: usize) -> f64 {
        j as f64 - self.p
    }

    fn square(&self) -> f64 {
        (self.window / 2.0).powi(2)
    }

    /// Leaves the keys within the window. Returns how far the closest key is from its edge.
    pub(crate) fn see(&self, keys: &mut Vec<usize>) -> f64 {
        let to_the_edge = |j: &usize| (self.away(*j).abs() - self.window).abs();
        let margin = keys.iter().map(to_the_edge).fold(f64::INFINITY, f64::min);
        keys.retain(|&j| self.away(j).abs() <= self.window);
        margin
    }

    /// The share of a key's weight that is left.
    pub(crate) fn near(&self, j: usize) -> f64 {
        (-self.away(j).powi(2) / (2.0 * self.square())).exp()
    }

    /// A place of size p is rounded by p units, and the exponent of a key that is away from it by
    /// so many times more.
    pub(crate) fn part(&self, j: usize) -> f64 {
        self.p * self.away(j).abs() / self.square()
    }

    /// Adds the gradients by what the place is predicted from, `a_ij da_ij` being given for each
    /// key.
    pub(crate) fn add_gradients(
        &self,
        d_near: impl Iterator<Item = (usize, f64)>,
        query: &[f64],
        at: usize,
        answer: &mut Answer,
    ) {
        let (mut d_place, mut d_place_terms) = (0.0, 0.0);
        for (j, d_near) in d_near {
            let d = d_near * self.away(j) / self.square();
            d_place += d;
            d_place_terms += d.abs();
        }
        let (d_z, d_z_terms) = (d_place * self.slope, d_place_terms * self.slope);
        // Made of exponentials, the tanh of a small number is rounded like 1.
        answer.terms.d_vector = answer.terms.d_vector.max(d_z_terms);
        add_row(&mut answer.d_vector, self.head, d_z, &self.u);
        let bent: Vec<f64> = (self.v.iter().zip(&self.u))
            .map(|(v, u)| v * (1.0 - u * u))
            .collect();
        for (x, row) in self.matrix.iter().enumerate() {
            let row_of_matrix = self.head * query.len() + x;
            add_row(&mut answer.d_matrix, row_of_matrix, query[x] * d_z, &bent);
            answer.d_query[at * query.len() + x] += d_z * dot(row, &bent);
            let sizes = row.iter().zip(&bent).map(|(w, b)| (w * b).abs());
            let term = d_z_terms * sizes.sum::<f64>();
            answer.terms.d_query = answer.terms.d_query.max(term);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Formula, Inputs, Mask, Problem, solve};

    /// A network that says nothing predicts the middle; all keys are alike.
    #[test]
    fn weights_fall_around_the_middle() {
        let problem = Problem::new("predicted", [2, 2, 5, 8, 3])
            .with_formula(Formula::Predicted {
                vectors: vec![0.0; 6],
                matrices: vec![0.0; 18],
                window: 3,
            })
            .with_mask(Mask::KeyLengths(vec![8, 5]))
            .with_kv_heads(1);
        let inputs = Inputs {
            key: vec![0.0; 48],
            ..problem.inputs()
        };
        let answer = solve(&problem, &inputs);
        let fall = |away: f64| (-away * away / 4.5).exp();
        // 8 keys: the middle is at 4, and the window from 1 to 7.
        let want = [3.0, 2.0, 1.0, 0.0, 1.0, 2.0, 3.0].map(|away| fall(away) / 7.0);
        assert_eq!(answer.weights[0], 0.0);
        for (got, want) in answer.weights[1..8].iter().zip(want) {
            assert!((got - want).abs() < 1e-12, "{got} and {want}");
        }
        // 5 keys: the middle is at 2.5, and none of the 5 is outside of the window.
        let second = &answer.weights[10 * 8..][..8];
        let want = [2.5, 1.5, 0.5, 0.5, 1.5].map(|away| fall(away) / 5.0);
        for (got, want) in second.iter().zip(want.into_iter().chain([0.0; 3])) {
            assert!((got - want).abs() < 1e-12, "{got} and {want}");
        }
    }
}
