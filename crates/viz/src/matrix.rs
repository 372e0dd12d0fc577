//! The weights of one head: a row for each query, a column for each key.

use crate::PictureError;

/// Weights, row by row. All of them are finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    columns: usize,
    weights: Vec<f32>,
    range: (f32, f32),
}

impl Matrix {
    /// Takes weights row by row.
    ///
    /// # Errors
    ///
    /// If there are not as many as the sizes say, or one is not finite.
    pub fn new(rows: usize, columns: usize, weights: Vec<f32>) -> Result<Self, PictureError> {
        if rows * columns != weights.len() {
            return Err(PictureError(format!(
                "a matrix of {rows} rows and {columns} columns has {} weights, got {}",
                rows * columns,
                weights.len()
            )));
        }
        if let Some(at) = weights.iter().position(|weight| !weight.is_finite()) {
            return Err(PictureError(format!(
                "the weight in row {}, column {} is {}: weights must be finite",
                at / columns,
                at % columns,
                weights[at]
            )));
        }
        let zero = (0.0f32, 0.0f32);
        let range = weights.iter().fold(zero, |(low, high), weight| {
            (low.min(*weight), high.max(*weight))
        });
        Ok(Self {
            columns,
            weights,
            range,
        })
    }

    /// How many queries there are.
    pub fn rows(&self) -> usize {
        self.weights.len().checked_div(self.columns).unwrap_or(0)
    }

    /// How many keys there are.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The weight of a query for a key.
    ///
    /// # Panics
    ///
    /// If there is no such row or column.
    pub fn at(&self, row: usize, column: usize) -> f32 {
        assert!(
            row < self.rows() && column < self.columns,
            "matrix: row {row}, column {column} of {} x {}",
            self.rows(),
            self.columns
        );
        self.weights[row * self.columns + column]
    }

    /// All weights, row by row.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The smallest and the largest weight, and zero if it is beyond both: shades begin there.
    pub fn range(&self) -> (f32, f32) {
        self.range
    }

    /// The weights that the ends of the scale of shades stand for.
    pub(crate) fn scale(&self) -> (f32, f32) {
        let (low, high) = self.range();
        let most = high.max(-low);
        (if low < 0.0 { -most } else { 0.0 }, most)
    }

    /// A weight as a share of the largest: from 0 to 1, or down to -1 for negative ones.
    pub(crate) fn share(&self, weight: f32) -> f32 {
        let (_, most) = self.scale();
        if most == 0.0 { 0.0 } else { weight / most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_lie_row_by_row() {
        let matrix = Matrix::new(2, 3, vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).unwrap();
        assert_eq!((matrix.rows(), matrix.columns()), (2, 3));
        assert_eq!(matrix.at(1, 0), 0.4);
        assert_eq!(matrix.range(), (0.0, 0.6));
        assert_eq!(matrix.share(0.3), 0.5);
    }

    #[test]
    fn what_is_no_matrix_is_refused() {
        let error = |weights: Vec<f32>| Matrix::new(2, 2, weights).unwrap_err().to_string();
        let few = "a matrix of 2 rows and 2 columns has 4 weights, got 3";
        assert_eq!(error(vec![0.0; 3]), few);
        let nan = error(vec![0.0, 0.0, 0.0, f32::NAN]);
        assert!(
            nan.starts_with("the weight in row 1, column 1 is NaN"),
            "{nan}"
        );
        assert_eq!(Matrix::new(0, 0, vec![]).unwrap().rows(), 0);
    }
}
