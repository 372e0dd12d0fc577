//! Attention weights of one head: rows are queries, columns are keys.

use crate::VizError;

/// Row-major weights, all of them finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    columns: usize,
    weights: Vec<f32>,
    range: (f32, f32),
}

impl Matrix {
    /// Creates a matrix from row-major weights.
    ///
    /// # Errors
    ///
    /// If the number of weights does not match the sizes, or a weight is not finite.
    pub fn new(rows: usize, columns: usize, weights: Vec<f32>) -> Result<Self, VizError> {
        if rows * columns != weights.len() {
            return Err(VizError(format!(
                "a matrix of {rows} rows and {columns} columns needs {} weights, got {}",
                rows * columns,
                weights.len()
            )));
        }
        if let Some(i) = weights.iter().position(|weight| !weight.is_finite()) {
            return Err(VizError(format!(
                "the weight in row {}, column {} is {}; weights must be finite",
                i / columns,
                i % columns,
                weights[i]
            )));
        }
        let low = weights.iter().copied().fold(0.0, f32::min);
        let high = weights.iter().copied().fold(0.0, f32::max);
        let range = (low, high);
        Ok(Self {
            columns,
            weights,
            range,
        })
    }

    /// Number of queries.
    pub fn rows(&self) -> usize {
        self.weights.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Number of keys.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Weight of a query for a key.
    ///
    /// # Panics
    ///
    /// If the row or column is out of range.
    pub fn get(&self, row: usize, column: usize) -> f32 {
        assert!(
            row < self.rows() && column < self.columns,
            "matrix: row {row}, column {column} is out of range for {} x {}",
            self.rows(),
            self.columns
        );
        self.weights[row * self.columns + column]
    }

    /// All weights, row-major.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Minimum and maximum weight, extended to include zero, where colours begin.
    pub fn range(&self) -> (f32, f32) {
        self.range
    }

    /// Mean entropy of the rows in bits, each relative to its sum; rows of zeros are left out.
    /// `None` if there are only such rows, or if a weight is negative: it is no probability.
    pub fn entropy(&self) -> Option<f64> {
        if self.range.0 < 0.0 {
            return None;
        }
        let (mut total, mut count) = (0.0, 0);
        for row in self.weights.chunks(self.columns.max(1)) {
            let sum: f64 = row.iter().map(|weight| f64::from(*weight)).sum();
            if sum > 0.0 {
                let probabilities = row.iter().map(|weight| f64::from(*weight) / sum);
                let positive = probabilities.filter(|p| *p > 0.0);
                total -= positive.map(|p| p * p.log2()).sum::<f64>();
                count += 1;
            }
        }
        (count > 0).then(|| total.max(0.0) / f64::from(count))
    }

    /// Weights at the ends of the colour scale.
    pub(crate) fn scale(&self) -> (f32, f32) {
        let (low, high) = self.range();
        let max = high.max(-low);
        (if low < 0.0 { -max } else { 0.0 }, max)
    }

    /// Weight divided by the largest absolute weight, from -1 to 1.
    pub(crate) fn normalized(&self, weight: f32) -> f32 {
        let (_, max) = self.scale();
        if max == 0.0 { 0.0 } else { weight / max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_row_major() {
        let matrix = Matrix::new(2, 3, vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).unwrap();
        assert_eq!((matrix.rows(), matrix.columns()), (2, 3));
        assert_eq!(matrix.get(1, 0), 0.4);
        assert_eq!(matrix.range(), (0.0, 0.6));
        assert_eq!(matrix.normalized(0.3), 0.5);
    }

    #[test]
    fn entropy_is_the_mean_over_rows() {
        let entropy = |rows: usize, weights: &[f32]| {
            let columns = weights.len() / rows;
            Matrix::new(rows, columns, weights.to_vec())
                .unwrap()
                .entropy()
        };
        // One bit, zero bits, and a masked query; rows need not be normalised.
        assert_eq!(entropy(3, &[0.5, 0.5, 0.0, 1.0, 0.0, 0.0]), Some(0.5));
        assert_eq!(entropy(1, &[2.0, 2.0, 2.0, 2.0]), Some(2.0));
        assert_eq!(entropy(1, &[0.0, 0.0]), None);
        assert_eq!(entropy(1, &[1.5, -0.5]), None);
    }

    #[test]
    fn invalid_matrices_are_rejected() {
        let error = |weights: Vec<f32>| Matrix::new(2, 2, weights).unwrap_err().to_string();
        let few = "a matrix of 2 rows and 2 columns needs 4 weights, got 3";
        assert_eq!(error(vec![0.0; 3]), few);
        let nan = "the weight in row 1, column 1 is NaN; weights must be finite";
        assert_eq!(error(vec![0.0, 0.0, 0.0, f32::NAN]), nan);
        assert_eq!(Matrix::new(0, 0, vec![]).unwrap().rows(), 0);
    }
}
