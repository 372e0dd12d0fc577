//! Small dense matrices in `f64`.

/// A matrix in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: Vec<f64>,
}

impl Matrix {
    pub(crate) fn zeros(rows: usize, columns: usize) -> Self {
        let values = vec![0.0; rows * columns];
        Self {
            rows,
            columns,
            values,
        }
    }

    pub(crate) fn from_rows(rows: Vec<Vec<f64>>, columns: usize) -> Self {
        Self {
            rows: rows.len(),
            columns,
            values: rows.concat(),
        }
    }

    /// `diagonal · I - self`.
    pub(crate) fn subtracted_from(&self, diagonal: f64) -> Self {
        let mut result = self.times(-1.0);
        for i in 0..self.rows {
            result.values[i * self.columns + i] += diagonal;
        }
        result
    }

    pub(crate) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..][..self.columns]
    }

    pub(crate) fn transposed(&self) -> Self {
        let mut result = Self::zeros(self.columns, self.rows);
        for i in 0..self.rows {
            for j in 0..self.columns {
                result.values[j * self.rows + i] = self.values[i * self.columns + j];
            }
        }
        result
    }

    pub(crate) fn times(&self, factor: f64) -> Self {
        self.map(|x| factor * x)
    }

    pub(crate) fn map(&self, function: impl Fn(f64) -> f64) -> Self {
        Self {
            values: self.values.iter().map(|&x| function(x)).collect(),
            ..*self
        }
    }

    pub(crate) fn product(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows, "matrices do not match");
        let mut result = Self::zeros(self.rows, other.columns);
        for i in 0..self.rows {
            let row = &mut result.values[i * other.columns..][..other.columns];
            for (x, other) in self.row(i).iter().zip(other.values.chunks(other.columns)) {
                crate::solution::add(row, *x, other);
            }
        }
        result
    }

    /// `self += other`
    pub(crate) fn add(&mut self, other: &Self) {
        crate::solution::add(&mut self.values, 1.0, &other.values);
    }

    pub(crate) fn max_abs(&self) -> f64 {
        self.values.iter().fold(0.0, |max: f64, x| max.max(x.abs()))
    }

    /// The softmax of each row.
    pub(crate) fn softmax(&self) -> Self {
        let mut result = self.clone();
        for row in result.values.chunks_mut(self.columns.max(1)) {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.iter_mut().for_each(|x| *x = (*x - max).exp());
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|x| *x /= sum);
        }
        result
    }

    /// Absolute terms of the [gradient](Self::softmax_backward) of the scores.
    pub(crate) fn softmax_backward_terms(&self, d_weights: &Self) -> Self {
        let mut result = d_weights.map(f64::abs);
        let rows = result.values.chunks_mut(self.columns.max(1));
        for (d, weights) in rows.zip(self.values.chunks(self.columns.max(1))) {
            let mean = crate::solution::dot(d, weights);
            for (d, weight) in d.iter_mut().zip(weights) {
                *d = weight * (*d + mean);
            }
        }
        result
    }

    /// The gradient of the scores, if these are their weights.
    pub(crate) fn softmax_backward(&self, d_weights: &Self) -> Self {
        let mut result = d_weights.clone();
        let rows = result.values.chunks_mut(self.columns.max(1));
        for (d, weights) in rows.zip(self.values.chunks(self.columns.max(1))) {
            let mean = crate::solution::dot(d, weights);
            for (d, weight) in d.iter_mut().zip(weights) {
                *d = weight * (*d - mean);
            }
        }
        result
    }
}
