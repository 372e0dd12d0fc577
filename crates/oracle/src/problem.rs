//! One attention problem: its sizes, its mask, and the numbers that go in.

use zoo_spec::Draw;

use crate::formula::Formula;
use crate::mask::Mask;

/// The sizes and the mask of one attention call, under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// How tests and benches call it.
    pub name: &'static str,
    /// Examples.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; `heads / kv_heads` query heads share each.
    pub kv_heads: usize,
    /// Queries.
    pub seq_q: usize,
    /// Keys and values.
    pub seq_k: usize,
    /// Numbers in a query and in a key.
    pub d_head: usize,
    /// Numbers in a value.
    pub d_value: usize,
    /// What scores are multiplied by; `None` is `1/sqrt(d_head)`.
    pub scale: Option<f64>,
    /// What products are kept within, on either side of zero.
    pub softcap: Option<f64>,
    /// Whether scores fall with the distance, by a slope for each head.
    pub alibi: bool,
    /// The shape of what is added to the scores: theirs, or 1 where one stands for all.
    pub bias: Option<[usize; 4]>,
    /// The share of weights that are forgotten, and the seed that says which.
    pub dropout: Option<(f64, u64)>,
    /// For every `[batch, heads, seq_q, seq_k]` whether its weight is forgotten, where the
    /// seed does not say it by our definition.
    pub dropped: Option<Vec<bool>>,
    /// How scores become weights.
    pub formula: Formula,
    /// Who sees whom.
    pub mask: Mask,
    /// Standard deviation of the inputs.
    pub spread: f64,
}

/// The numbers of a [`Problem`], each tensor row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// `[batch, heads, seq_q, d_head]`
    pub query: Vec<f32>,
    /// `[batch, kv_heads, seq_k, d_head]`
    pub key: Vec<f32>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub value: Vec<f32>,
    /// `[batch, heads, seq_q, d_value]`: the gradient that arrives at the
    /// result. Random, because a constant one hides errors that sum to zero.
    pub upstream: Vec<f32>,
    /// Of the problem's bias, if it has one.
    pub bias: Vec<f32>,
}

impl Problem {
    /// An unmasked problem `[batch, heads, seq_q, seq_k, d_head]` with as many
    /// KV heads as heads and values as wide as keys.
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
            dropped: None,
            formula: Formula::Softmax,
            mask: Mask::Full,
            spread: 1.0,
        }
    }

    /// With this mask.
    pub fn with_mask(self, mask: Mask) -> Self {
        Self { mask, ..self }
    }

    /// With this number of key and value heads.
    pub fn with_kv_heads(self, kv_heads: usize) -> Self {
        Self { kv_heads, ..self }
    }

    /// With values of this width.
    pub fn with_d_value(self, d_value: usize) -> Self {
        Self { d_value, ..self }
    }

    /// With scores that are multiplied by this.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = Some(scale);
        self
    }

    /// With this cap on products.
    pub fn with_softcap(mut self, softcap: f64) -> Self {
        self.softcap = Some(softcap);
        self
    }

    /// With scores that fall with the distance.
    pub fn with_alibi(mut self) -> Self {
        self.alibi = true;
        self
    }

    /// With a bias of this shape.
    pub fn with_bias(mut self, shape: [usize; 4]) -> Self {
        self.bias = Some(shape);
        self
    }

    /// With this share of weights dropped, by this seed.
    pub fn with_dropout(mut self, dropout: (f64, u64)) -> Self {
        self.dropout = Some(dropout);
        self
    }

    /// With this formula.
    pub fn with_formula(self, formula: Formula) -> Self {
        Self { formula, ..self }
    }

    /// With inputs of this standard deviation.
    pub fn with_spread(self, spread: f64) -> Self {
        Self { spread, ..self }
    }

    /// The scale in force.
    pub fn scale(&self) -> f64 {
        self.scale.unwrap_or(1.0 / (self.d_head as f64).sqrt())
    }

    /// For each query head, what scores lose with each place: halves of halves, and
    /// some growing, none of them those of any paper.
    pub fn slopes(&self) -> Vec<f32> {
        (0..self.heads)
            .map(|head| 0.4 / (1 << head) as f32 - 0.05)
            .collect()
    }

    /// Where `[example, head, query, key]` is among the numbers of all places.
    pub(crate) fn place(&self, [example, head, query, key]: [usize; 4]) -> usize {
        ((example * self.heads + head) * self.seq_q + query) * self.seq_k + key
    }

    /// For every `[batch, heads, seq_q, seq_k]`, row by row: is it hidden?
    pub fn hidden(&self) -> Vec<bool> {
        (0..self.queries())
            .flat_map(|row| self.hidden_from(row))
            .collect()
    }

    /// For every key: is it hidden from query `row`, counted over `[batch, heads, seq_q]`?
    pub fn hidden_from(&self, row: usize) -> Vec<bool> {
        let example = row / (self.heads * self.seq_q);
        let head = row / self.seq_q % self.heads;
        self.mask
            .hidden_from(self, [example, head, row % self.seq_q])
    }

    /// Queries of all examples and heads together.
    pub fn queries(&self) -> usize {
        self.batch * self.heads * self.seq_q
    }

    /// The share of pairs of query and key that see each other.
    pub fn density(&self) -> f64 {
        if self.mask == Mask::Full {
            return 1.0;
        }
        // Only what is drawn differs from head to head.
        let heads = if self.mask.is_drawn() { self.heads } else { 1 };
        let mut seen = 0;
        for example in 0..self.batch {
            for row in 0..heads * self.seq_q {
                let hidden = self.hidden_from(example * self.heads * self.seq_q + row);
                seen += hidden.iter().filter(|&&hidden| !hidden).count();
            }
        }
        seen as f64 / (self.batch * heads * self.seq_q * self.seq_k) as f64
    }

    /// The same problem at another length, if its mask is one of any length: a
    /// single query looks at `n` keys, otherwise `n` queries at `n` keys.
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

    /// The problem's numbers, always the same for the same name and sizes.
    pub fn inputs(&self) -> Inputs {
        let mut draw = Draw::named(self.name);
        let count = |shape: [usize; 4]| shape.iter().product();
        Inputs {
            query: draw.normals(count(self.query_shape()), self.spread),
            key: draw.normals(count(self.key_shape()), self.spread),
            value: draw.normals(count(self.value_shape()), self.spread),
            upstream: draw.normals(count(self.context_shape()), 1.0),
            bias: draw.normals(self.bias.map_or(0, count), 1.0),
        }
    }
    /// A few queries that stand for a problem too large to be solved as a whole, counted over
    /// `[batch, heads, seq_q]`, in order: of each example and head the first, the last, and others
    /// in between, `least` or more in all if the problem has as many.
    ///
    /// The oracle takes a microsecond for each pair of query and key: at 16,384 of each, the better
    /// part of an hour. When the upstream gradient is zero but for a few queries, the gradients by
    /// *every* key and value follow from these alone, so a sample of them still checks whole
    /// tensors.
    pub fn sample_of_queries(&self, least: usize) -> Vec<usize> {
        let heads = self.batch * self.heads;
        let of_each = least.div_ceil(heads).clamp(1, self.seq_q);
        let mut draw = Draw::named(self.name);
        let mut queries = Vec::new();
        for head in 0..heads {
            let mut places = vec![0, self.seq_q - 1];
            // One from each stretch, so that no part of a long sequence is left out.
            let stretch = self.seq_q as f64 / of_each as f64;
            places.extend((0..of_each).map(|at| ((at as f64 + draw.uniform()) * stretch) as usize));
            places.sort_unstable();
            places.dedup();
            queries.extend(places.into_iter().map(|i| head * self.seq_q + i));
        }
        queries
    }
}

impl Inputs {
    /// Sets the upstream gradient to zero but for the given queries.
    pub fn keep_upstream_of(&mut self, queries: &[usize], d_value: usize) {
        let mut kept = vec![0.0; self.upstream.len()];
        for &row in queries {
            let range = row * d_value..(row + 1) * d_value;
            kept[range.clone()].copy_from_slice(&self.upstream[range]);
        }
        self.upstream = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn density_counts_what_is_seen() {
        let problem = Problem::new("density", [2, 1, 4, 4, 1]);
        assert_eq!(problem.density(), 1.0);
        let masked = |mask| problem.clone().with_mask(mask);
        assert_eq!(masked(Mask::Causal).density(), 10.0 / 16.0);
        assert_eq!(masked(Mask::KeyLengths(vec![4, 1])).density(), 5.0 / 8.0);
    }

    #[test]
    fn only_a_mask_of_any_length_takes_another() {
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
    fn every_head_and_both_ends_are_in_the_sample() {
        let problem = Problem::new("sampled", [2, 3, 1000, 10, 4]);
        let queries = problem.sample_of_queries(60);
        assert!((60..=72).contains(&queries.len()), "{}", queries.len());
        assert!(queries.is_sorted());
        for head in 0..6 {
            assert!(queries.contains(&(head * 1000)) && queries.contains(&(head * 1000 + 999)));
        }
    }

    #[test]
    fn a_small_problem_is_sampled_without_repeats() {
        let problem = Problem::new("small", [1, 1, 2, 3, 4]);
        assert_eq!(problem.sample_of_queries(50), [0, 1]);
    }
}
