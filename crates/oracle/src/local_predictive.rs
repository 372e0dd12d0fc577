//! Predicted positions of local-p attention, with analytic gradients:
//!
//! ```text
//! u_i  = tanh(q_i·W)          z_i = v·u_i          p_i = S / (1 + exp(-z_i))
//! g_ij = exp(-(j - p_i)² / 2σ²)                    σ = window / 2, for |j - p_i| <= window
//!
//! dp_i  = Σ_j a_ij da_ij (j - p_i) / σ²
//! dz_i  = dp_i p_i (1 - p_i / S)
//! dv    = Σ_i dz_i u_i
//! dW    = Σ_i q_iᵀ dy_i       with dy_i = dz_i v (1 - u_i²)
//! dq_i  = W dy_i              in addition to the gradient of the scores
//! ```
//!
//! with `S` the number of keys of the example, and `a` and `da` as in `scores.rs`.

use crate::formula::Formula;
use crate::problem::Problem;
use crate::scores::Row;
use crate::solution::{Solution, add_row, dot, head_matrix, vec_mat, vector};

/// The predicted position of one query.
pub(crate) struct Prediction {
    head: usize,
    v: Vec<f64>,
    matrix: Vec<Vec<f64>>,
    u: Vec<f64>,
    p: f64,
    /// `dp/dz`
    dp_dz: f64,
    window: f64,
}

impl Prediction {
    /// `None` if the formula predicts no positions.
    pub(crate) fn new(problem: &Problem, row: &Row, query: &[f64]) -> Option<Self> {
        let Formula::LocalPredictive {
            vectors,
            matrices,
            window,
        } = &problem.formula
        else {
            return None;
        };
        let v = vector(vectors, row.head, query.len());
        let matrix = head_matrix(matrices, row.head, query.len());
        let u: Vec<f64> = vec_mat(query, &matrix).iter().map(|x| x.tanh()).collect();
        let keys = problem.mask.num_keys(row.example, problem.seq_k) as f64;
        let fraction = 1.0 / (1.0 + (-dot(&v, &u)).exp());
        let p = keys * fraction;
        Some(Self {
            head: row.head,
            v,
            matrix,
            u,
            p,
            dp_dz: p * (1.0 - fraction),
            window: *window as f64,
        })
    }

    fn distance(&self, j: usize) -> f64 {
        j as f64 - self.p
    }

    /// `σ²`
    fn variance(&self) -> f64 {
        (self.window / 2.0).powi(2)
    }

    /// Retains the keys within the window. Returns the smallest distance of a key from its edge.
    pub(crate) fn retain_window(&self, keys: &mut Vec<usize>) -> f64 {
        let to_edge = |j: &usize| (self.distance(*j).abs() - self.window).abs();
        let margin = keys.iter().map(to_edge).fold(f64::INFINITY, f64::min);
        keys.retain(|&j| self.distance(j).abs() <= self.window);
        margin
    }

    /// The Gaussian factor of a key's weight.
    pub(crate) fn gaussian(&self, j: usize) -> f64 {
        (-self.distance(j).powi(2) / (2.0 * self.variance())).exp()
    }

    /// Rounding error of the Gaussian's exponent in units: a position of size p is rounded by p
    /// units, which the distance of the key multiplies.
    pub(crate) fn rounding(&self, j: usize) -> f64 {
        self.p * self.distance(j).abs() / self.variance()
    }

    /// Adds the gradients of query, vector and matrix, given `a_ij da_ij` for each key.
    pub(crate) fn add_gradients(
        &self,
        d_gaussians: impl Iterator<Item = (usize, f64)>,
        query: &[f64],
        row: usize,
        solution: &mut Solution,
    ) {
        let (mut d_p, mut d_p_terms) = (0.0, 0.0);
        for (j, d_gaussian) in d_gaussians {
            let d = d_gaussian * self.distance(j) / self.variance();
            d_p += d;
            d_p_terms += d.abs();
        }
        let (d_z, d_z_terms) = (d_p * self.dp_dz, d_p_terms * self.dp_dz);
        // Computed from exponentials, the tanh of a small value is rounded like 1.
        solution.terms.d_vector = solution.terms.d_vector.max(d_z_terms);
        add_row(&mut solution.d_vector, self.head, d_z, &self.u);
        let d_y: Vec<f64> = (self.v.iter().zip(&self.u))
            .map(|(v, u)| v * (1.0 - u * u))
            .collect();
        for (x, weights) in self.matrix.iter().enumerate() {
            let matrix_row = self.head * query.len() + x;
            add_row(&mut solution.d_matrix, matrix_row, query[x] * d_z, &d_y);
            solution.d_query[row * query.len() + x] += d_z * dot(weights, &d_y);
            let terms = weights.iter().zip(&d_y).map(|(w, d)| (w * d).abs());
            let term = d_z_terms * terms.sum::<f64>();
            solution.terms.d_query = solution.terms.d_query.max(term);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Formula, Inputs, Mask, Problem, solve};

    /// Zero parameters predict the middle of the keys.
    #[test]
    fn weights_are_gaussian_around_the_middle() {
        let problem = Problem::new("predicted", [2, 2, 5, 8, 3])
            .with_formula(Formula::LocalPredictive {
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
        let solution = solve(&problem, &inputs);
        let gaussian = |distance: f64| (-distance * distance / 4.5).exp();
        // 8 keys: the middle is at 4, the window is 1 to 7.
        let want = [3.0, 2.0, 1.0, 0.0, 1.0, 2.0, 3.0].map(|distance| gaussian(distance) / 7.0);
        assert_eq!(solution.weights[0], 0.0);
        for (got, want) in solution.weights[1..8].iter().zip(want) {
            assert!((got - want).abs() < 1e-12, "{got} and {want}");
        }
        // 5 keys: the middle is at 2.5, and all 5 are within the window.
        let second = &solution.weights[10 * 8..][..8];
        let want = [2.5, 1.5, 0.5, 0.5, 1.5].map(|distance| gaussian(distance) / 5.0);
        for (got, want) in second.iter().zip(want.into_iter().chain([0.0; 3])) {
            assert!((got - want).abs() < 1e-12, "{got} and {want}");
        }
    }
}
