//! An attention problem: its sizes, options, mask and inputs.

use zoo_spec::SplitMix64;

use crate::dropout::noise;
use crate::formula::Formula;
use crate::mask::Mask;

/// Sizes, options and mask of an attention call.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Name in tests and benchmarks, and seed of the inputs.
    pub name: &'static str,
    /// Batch size.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; `heads / kv_heads` query heads share each.
    pub kv_heads: usize,
    /// Number of queries.
    pub seq_q: usize,
    /// Number of keys and values.
    pub seq_k: usize,
    /// Dimension of queries and keys.
    pub d_head: usize,
    /// Dimension of values.
    pub d_value: usize,
    /// Scale of the scores; the default is `1/sqrt(d_head)`.
    pub scale: Option<f64>,
    /// Softcap of the scores.
    pub softcap: Option<f64>,
    /// Whether scores have ALiBi with [`slopes`](Self::slopes).
    pub alibi: bool,
    /// Shape of the bias added to the scores; dimensions of 1 are broadcast.
    pub bias: Option<[usize; 4]>,
    /// Dropout probability and seed.
    pub dropout: Option<(f64, u64)>,
    /// `[batch, heads, seq_q, seq_k]`: whether a weight is dropped, for backends with their own
    /// random generator.
    pub dropout_mask: Option<Vec<bool>>,
    /// Formula of the weights.
    pub formula: Formula,
    /// Visible keys of each query.
    pub mask: Mask,
    /// Standard deviation of the inputs.
    pub std: f64,
}

/// Inputs of a [`Problem`], in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// `[batch, heads, seq_q, d_head]`
    pub query: Vec<f32>,
    /// `[batch, kv_heads, seq_k, d_head]`
    pub key: Vec<f32>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub value: Vec<f32>,
    /// `[batch, heads, seq_q, d_value]`: gradient of the context. It is random, because a constant
    /// one hides errors that sum to zero.
    pub output_grad: Vec<f32>,
    /// Values of the bias; empty if the problem has none.
    pub bias: Vec<f32>,
}

impl Problem {
    /// An unmasked problem `[batch, heads, seq_q, seq_k, d_head]` with as many KV heads as query
    /// heads and `d_value = d_head`.
    pub const fn new(name: &'static str, sizes: [usize; 5]) -> Self {
        let [batch, heads, seq_q, seq_k, d_head] = sizes;
        Self {
            name,
            batch,
            heads,
            kv_heads: heads,
            seq_q,
            seq_k,
            d_head,
            d_value: d_head,
            scale: None,
            softcap: None,
            alibi: false,
            bias: None,
            dropout: None,
            dropout_mask: None,
            formula: Formula::Softmax,
            mask: Mask::Full,
            std: 1.0,
        }
    }

    /// Sets the mask.
    pub fn with_mask(self, mask: Mask) -> Self {
        Self { mask, ..self }
    }

    /// Sets the number of key and value heads.
    pub fn with_kv_heads(self, kv_heads: usize) -> Self {
        Self { kv_heads, ..self }
    }

    /// Sets the dimension of the values.
    pub fn with_d_value(self, d_value: usize) -> Self {
        Self { d_value, ..self }
    }

    /// Sets the scale of the scores.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Sets the softcap of the scores.
    pub fn with_softcap(mut self, softcap: f64) -> Self {
        self.softcap = Some(softcap);
        self
    }

    /// Enables ALiBi.
    pub fn with_alibi(mut self) -> Self {
        self.alibi = true;
        self
    }

    /// Adds a bias of this shape.
    pub fn with_bias(mut self, shape: [usize; 4]) -> Self {
        self.bias = Some(shape);
        self
    }

    /// Sets the dropout probability and seed.
    pub fn with_dropout(mut self, dropout: (f64, u64)) -> Self {
        self.dropout = Some(dropout);
        self
    }

    /// Sets the formula.
    pub fn with_formula(self, formula: Formula) -> Self {
        Self { formula, ..self }
    }

    /// Sets the standard deviation of the inputs.
    pub fn with_std(self, std: f64) -> Self {
        Self { std, ..self }
    }

    /// The scale, or its default.
    pub fn scale(&self) -> f64 {
        self.scale.unwrap_or(1.0 / (self.d_head as f64).sqrt())
    }

    /// ALiBi slope of each query head. They differ from those of the paper, and some are negative.
    pub fn slopes(&self) -> Vec<f32> {
        (0..self.heads)
            .map(|head| 0.4 / (1 << head) as f32 - 0.05)
            .collect()
    }

    /// `[batch, heads, seq_q, seq_k]`: whether the pair is masked.
    pub fn dense_mask(&self) -> Vec<bool> {
        (0..self.queries())
            .flat_map(|row| self.mask_row(row))
            .collect()
    }

    /// Whether each key is masked for query `row`, an index into `[batch, heads, seq_q]`.
    pub fn mask_row(&self, row: usize) -> Vec<bool> {
        let example = row / (self.heads * self.seq_q);
        let head = row / self.seq_q % self.heads;
        self.mask.mask_row(self, [example, head, row % self.seq_q])
    }

    /// The noise that [`Formula::Sampled`] adds to the scores of query `row`, an index into
    /// `[batch, heads, seq_q]`. Empty for other formulas.
    pub fn noise_row(&self, row: usize) -> Vec<f32> {
        let Formula::Sampled { seed, .. } = self.formula else {
            return Vec::new();
        };
        let example = row / (self.heads * self.seq_q);
        let head = row / self.seq_q % self.heads;
        let index = |key| [example, head, row % self.seq_q, key];
        (0..self.seq_k)
            .map(|key| noise(seed, index(key)) as f32)
            .collect()
    }

    /// Number of queries over all examples and heads.
    pub fn queries(&self) -> usize {
        self.batch * self.heads * self.seq_q
    }

    /// Fraction of visible pairs of query and key.
    pub fn density(&self) -> f64 {
        self.density_within(self.seq_k)
    }

    /// Fraction of visible pairs if each query attends to at most `max_keys` of its visible keys.
    pub fn density_within(&self, max_keys: usize) -> f64 {
        if self.mask == Mask::Full {
            return max_keys.min(self.seq_k) as f64 / self.seq_k as f64;
        }
        // Only random masks differ between heads.
        let heads = if self.mask.is_random() { self.heads } else { 1 };
        let mut visible = 0;
        for example in 0..self.batch {
            for row in 0..heads * self.seq_q {
                let mask = self.mask_row(example * self.heads * self.seq_q + row);
                let keys = mask.iter().filter(|&&masked| !masked).count();
                visible += keys.min(max_keys);
            }
        }
        visible as f64 / (self.batch * heads * self.seq_q * self.seq_k) as f64
    }

    /// The same problem with `n` keys and, unless it has a single query, `n` queries. `None` if its
    /// mask, bias or sizes are made for one length.
    pub fn at_length(&self, n: usize) -> Option<Self> {
        let is_decoding = self.seq_q == 1;
        let resizable = matches!(self.mask, Mask::Full | Mask::Causal | Mask::Window { .. })
            && self.bias.is_none()
            && (is_decoding || self.seq_q == self.seq_k);
        resizable.then(|| Self {
            seq_q: if is_decoding { 1 } else { n },
            seq_k: n,
            ..self.clone()
        })
    }

    /// `[batch, heads, seq_q, d_head]`
    pub fn query_shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq_q, self.d_head]
    }

    /// `[batch, kv_heads, seq_k, d_head]`
    pub fn key_shape(&self) -> [usize; 4] {
        [self.batch, self.kv_heads, self.seq_k, self.d_head]
    }

    /// `[batch, kv_heads, seq_k, d_value]`
    pub fn value_shape(&self) -> [usize; 4] {
        [self.batch, self.kv_heads, self.seq_k, self.d_value]
    }

    /// `[batch, heads, seq_q, d_value]`
    pub fn context_shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq_q, self.d_value]
    }

    /// `[batch, heads, seq_q, seq_k]`
    pub fn scores_shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq_q, self.seq_k]
    }

    /// Random inputs, a function of the name and the sizes.
    pub fn inputs(&self) -> Inputs {
        let mut rng = SplitMix64::named(self.name);
        let count = |shape: [usize; 4]| shape.iter().product();
        Inputs {
            query: rng.normals(count(self.query_shape()), self.std),
            key: rng.normals(count(self.key_shape()), self.std),
            value: rng.normals(count(self.value_shape()), self.std),
            output_grad: rng.normals(count(self.context_shape()), 1.0),
            bias: rng.normals(self.bias.map_or(0, count), 1.0),
        }
    }

    /// A sample of the queries, as sorted indices into `[batch, heads, seq_q]`, for problems that
    /// are too large to be solved completely. It has the first and the last query of each head and
    /// others in between, at least `min` in all if the problem has as many.
    ///
    /// The oracle takes a microsecond for each pair of query and key: at 16,384 of each, the better
    /// part of an hour. If the output gradient is zero for all other queries, the gradients of
    /// *all* keys and values follow from the sample, so that it still checks whole tensors.
    pub fn sample_queries(&self, min: usize) -> Vec<usize> {
        let heads = self.batch * self.heads;
        let per_head = min.div_ceil(heads).clamp(1, self.seq_q);
        let mut rng = SplitMix64::named(self.name);
        let mut queries = Vec::new();
        for head in 0..heads {
            let mut positions = vec![0, self.seq_q - 1];
            // One from each segment, so that all parts of a long sequence are covered.
            let segment = self.seq_q as f64 / per_head as f64;
            positions
                .extend((0..per_head).map(|i| ((i as f64 + rng.uniform()) * segment) as usize));
            positions.sort_unstable();
            positions.dedup();
            queries.extend(positions.into_iter().map(|i| head * self.seq_q + i));
        }
        queries
    }
}

impl Inputs {
    /// Sets the output gradient of all but the given queries to zero.
    pub fn zero_output_grad_except(&mut self, queries: &[usize], d_value: usize) {
        let mut output_grad = vec![0.0; self.output_grad.len()];
        for &row in queries {
            let range = row * d_value..(row + 1) * d_value;
            output_grad[range.clone()].copy_from_slice(&self.output_grad[range]);
        }
        self.output_grad = output_grad;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn density_counts_visible_pairs() {
        let problem = Problem::new("density", [2, 1, 4, 4, 1]);
        assert_eq!(problem.density(), 1.0);
        let masked = |mask| problem.clone().with_mask(mask);
        assert_eq!(masked(Mask::Causal).density(), 10.0 / 16.0);
        assert_eq!(problem.density_within(3), 12.0 / 16.0);
        assert_eq!(masked(Mask::Causal).density_within(3), 9.0 / 16.0);
        assert_eq!(masked(Mask::KeyLengths(vec![4, 1])).density(), 5.0 / 8.0);
    }

    #[test]
    fn at_length_rejects_masks_of_fixed_length() {
        let layer = Problem::new("layer", [1, 1, 4, 4, 1]);
        let longer = layer.at_length(9).expect("a full mask fits any length");
        assert_eq!((longer.seq_q, longer.seq_k), (9, 9));
        let step = Problem::new("step", [1, 1, 1, 4, 1]);
        let longer = step.at_length(9).expect("a full mask fits any length");
        assert_eq!((longer.seq_q, longer.seq_k), (1, 9));
        let lengths = layer.with_mask(Mask::KeyLengths(vec![3]));
        assert_eq!(lengths.at_length(9), None);
        assert_eq!(Problem::new("cross", [1, 1, 3, 4, 1]).at_length(9), None);
    }

    #[test]
    fn sample_covers_every_head_and_both_ends_without_duplicates() {
        let problem = Problem::new("sampled", [2, 3, 1000, 10, 4]);
        let queries = problem.sample_queries(60);
        assert!((60..=72).contains(&queries.len()), "{}", queries.len());
        assert!(queries.is_sorted());
        for head in 0..6 {
            assert!(queries.contains(&(head * 1000)) && queries.contains(&(head * 1000 + 999)));
        }
        let small = Problem::new("small", [1, 1, 2, 3, 4]);
        assert_eq!(small.sample_queries(50), [0, 1]);
    }
}
