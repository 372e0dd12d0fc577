//! Buckets of relative positions.

use burn::tensor::{Int, Tensor};

/// The buckets of relative positions in T5: a bucket for each small distance, and buckets of
/// logarithmically increasing size up to `max_distance`.
///
/// Raffel et al., [Exploring the Limits of Transfer Learning with a Unified Text-to-Text
/// Transformer](https://arxiv.org/abs/1910.10683), 2020.
///
/// ```
/// # #[cfg(feature = "flex")] {
/// use burn::tensor::{Device, Tensor};
/// use zoo_attention::{AttentionOptions, RelativeBuckets};
///
/// let buckets = RelativeBuckets {
///     num_buckets: 32,
///     max_distance: 128,
///     is_bidirectional: true,
/// };
/// let (heads, seq) = (8, 100);
/// let device = Device::default().autodiff();
/// let table = Tensor::<2>::zeros([heads, 32], &device).require_grad();
/// let bias = buckets.bias(table, seq, seq);
/// let options = AttentionOptions::new().with_relative_bias(bias);
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelativeBuckets {
    /// Number of buckets, of both directions together.
    pub num_buckets: usize,
    /// All larger distances are in the last bucket.
    pub max_distance: usize,
    /// Whether keys after the query have buckets of their own; otherwise they are in that of
    /// distance zero.
    pub is_bidirectional: bool,
}

impl RelativeBuckets {
    /// The bucket of a key that is `relative_position` after its query (negative if it is before).
    ///
    /// # Panics
    ///
    /// If there are fewer than 2 buckets for each direction.
    pub fn bucket(&self, relative_position: i64) -> usize {
        let buckets = match self.is_bidirectional {
            true => self.num_buckets / 2,
            false => self.num_buckets,
        };
        // Each of these distances has a bucket.
        let exact = buckets / 2;
        assert!(
            exact > 0,
            "relative buckets: at least 2 buckets for each direction are required, got {self:?}"
        );
        let (first, distance) = match (self.is_bidirectional, relative_position > 0) {
            (true, true) => (buckets, relative_position as usize),
            (false, true) => (0, 0),
            (_, false) => (0, relative_position.unsigned_abs() as usize),
        };
        if distance < exact {
            return first + distance;
        }
        if distance >= self.max_distance {
            return first + buckets - 1;
        }
        // In the precision of the original, which decides at the limits of the buckets.
        let range = (self.max_distance as f64 / exact as f64).ln() as f32;
        let fraction = (distance as f32 / exact as f32).ln() / range;
        let bucket = exact + (fraction * (buckets - exact) as f32) as usize;
        first + bucket.min(buckets - 1)
    }

    /// The [relative bias](crate::AttentionOptions::relative_bias) of a table
    /// `[heads, num_buckets]`, through which the table gets gradients:
    /// `[heads, seq_q + seq_k - 1]`.
    ///
    /// # Panics
    ///
    /// As [`bucket`](Self::bucket), and if the table does not have `num_buckets` columns.
    pub fn bias(&self, table: Tensor<2>, seq_q: usize, seq_k: usize) -> Tensor<2> {
        let [_, columns] = table.dims();
        assert!(
            columns == self.num_buckets,
            "relative buckets: the table must have {} columns, got {columns}",
            self.num_buckets
        );
        let positions = (0..seq_q + seq_k - 1).map(|i| i as i64 - (seq_k as i64 - 1));
        let buckets: Vec<i32> = positions.map(|it| self.bucket(it) as i32).collect();
        let buckets = Tensor::<1, Int>::from_ints(buckets.as_slice(), &table.device());
        table.select(1, buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The buckets that PyTorch 2.15 computes by the formula of T5, in `f32`.
    #[test]
    fn buckets_are_those_of_t5() {
        let positions = [
            -400, -128, -127, -91, -90, -64, -32, -23, -16, -12, -11, -8, -7, -1, 0, 1, 7, 8, 11,
            12, 16, 64, 127, 128, 400,
        ];
        let cases = [
            (
                (32, 128, true),
                [
                    15, 15, 15, 15, 14, 14, 12, 11, 10, 9, 8, 8, 7, 1, 0, 17, 23, 24, 24, 25, 26,
                    30, 31, 31, 31,
                ],
            ),
            (
                (32, 128, false),
                [
                    31, 31, 31, 29, 29, 26, 21, 18, 16, 12, 11, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    0, 0,
                ],
            ),
            (
                (10, 20, true),
                [
                    4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 1, 0, 6, 8, 8, 9, 9, 9, 9, 9, 9, 9,
                ],
            ),
        ];
        for ((num_buckets, max_distance, is_bidirectional), expected) in cases {
            let buckets = RelativeBuckets {
                num_buckets,
                max_distance,
                is_bidirectional,
            };
            assert_eq!(
                positions.map(|it| buckets.bucket(it)),
                expected,
                "{buckets:?}"
            );
        }
    }
}
