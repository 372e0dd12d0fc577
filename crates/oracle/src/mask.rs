//! Attention masks, evaluated for one query at a time.

use zoo_spec::SplitMix64;

use crate::problem::Problem;

/// A rule for the keys that are visible to a query. It is deliberately naive: it is evaluated for
/// one query at a time, without tensors or tiles.
#[derive(Debug, Clone, PartialEq)]
pub enum Mask {
    /// All keys are visible.
    Full,
    /// Keys up to the query's own position are visible. The last query is aligned with the last key.
    Causal,
    /// Keys from `left` before the query's own position to `right` after it are visible. The last query is
    /// aligned with the last key.
    Window {
        /// Keys before the query's own position.
        left: usize,
        /// Keys after the query's own position.
        right: usize,
    },
    /// Keys in the query's own block of this size are visible.
    Block(usize),
    /// Queries in block `b` attend to the key blocks `visible[b]`.
    BlockSparse {
        /// Positions in a block.
        size: usize,
        /// Visible key blocks of each query block.
        visible: Vec<Vec<usize>>,
    },
    /// Keys whose distance from the query's own position is a multiple of this are visible.
    Strided(usize),
    /// The last `summary` keys of each block are visible.
    SummaryColumns {
        /// Positions in a block.
        block: usize,
        /// Summary columns of each block.
        summary: usize,
    },
    /// Keys within this distance are visible. The first query is aligned with the first key.
    Monotonic(usize),
    /// The own position and those a power of two before it are visible. Tests patterns that are
    /// defined by a function.
    PowersOfTwo,
    /// Global tokens: all queries attend to these positions, and these attend to all keys.
    Global(Vec<usize>),
    /// Position `j` of example `b` belongs to document `ids[b][j]` and attends only to it.
    Documents(Vec<Vec<usize>>),
    /// Only the first `lengths[b]` keys of example `b` are visible.
    KeyLengths(Vec<usize>),
    /// Key `j` of example `b` is padding where `padding[b][j]`.
    KeyPadding(Vec<Vec<bool>>),
    /// A random dense mask, different for each example and head.
    Random {
        /// Fraction of pairs that are masked.
        masked: f64,
        /// One query in this many is fully masked.
        fully_masked_every: usize,
    },
    /// Visible in all parts.
    All(Vec<Mask>),
    /// Visible in any part.
    Any(Vec<Mask>),
}

impl Mask {
    /// Whether each key is masked for the query `[example, head, i]`.
    pub fn mask_row(&self, problem: &Problem, [example, head, i]: [usize; 3]) -> Vec<bool> {
        let keys = 0..problem.seq_k;
        let rows = |parts: &[Mask]| -> Vec<Vec<bool>> {
            let row = |part: &Mask| part.mask_row(problem, [example, head, i]);
            parts.iter().map(row).collect()
        };
        match self {
            Mask::Random {
                masked,
                fully_masked_every,
            } => {
                let row = (example * problem.heads + head) * problem.seq_q + i;
                let mut rng = SplitMix64::named(&format!("{} row {row}", problem.name));
                let is_fully_masked = row.is_multiple_of(*fully_masked_every);
                keys.map(|_| rng.uniform() < *masked || is_fully_masked)
                    .collect()
            }
            Mask::All(parts) => {
                let rows = rows(parts);
                keys.map(|j| rows.iter().any(|row| row[j])).collect()
            }
            Mask::Any(parts) => {
                let rows = rows(parts);
                keys.map(|j| rows.iter().all(|row| row[j])).collect()
            }
            _ => keys
                .map(|j| self.is_masked(problem, example, i, j))
                .collect(),
        }
    }

    /// Whether key `j` is masked for query `i`, by a mask that is neither random nor combined.
    fn is_masked(&self, problem: &Problem, example: usize, i: usize, j: usize) -> bool {
        // Both counted from the end, where query and key are aligned.
        let (query, key) = (problem.seq_q - i, problem.seq_k - j);
        // The key that the query is aligned with, if there is one.
        let own = (i + problem.seq_k).checked_sub(problem.seq_q);
        match self {
            Mask::Full => false,
            Mask::Causal => query > key,
            Mask::Window { left, right } => key > query + left || query > key + right,
            Mask::Block(size) => own.is_none_or(|own| own / size != j / size),
            Mask::BlockSparse { size, visible } => {
                own.is_none_or(|own| !visible[own / size].contains(&(j / size)))
            }
            Mask::Strided(stride) => query.abs_diff(key) % stride != 0,
            Mask::SummaryColumns { block, summary } => block - j % block > *summary,
            Mask::PowersOfTwo => query > key || (query < key && !(key - query).is_power_of_two()),
            Mask::Monotonic(window) => i.abs_diff(j) > *window,
            Mask::Global(positions) => {
                let is_global = own.is_some_and(|own| positions.contains(&own));
                !positions.contains(&j) && !is_global
            }
            Mask::Documents(ids) => own.is_none_or(|own| ids[example][own] != ids[example][j]),
            Mask::KeyLengths(lengths) => j >= lengths[example],
            Mask::KeyPadding(padding) => padding[example][j],
            Mask::Random { .. } | Mask::All(_) | Mask::Any(_) => {
                unreachable!("handled by `mask_row`")
            }
        }
    }

    /// Number of keys of an example up to its last one that is not padding.
    pub(crate) fn num_keys(&self, example: usize, seq_k: usize) -> usize {
        match self {
            Self::KeyLengths(lengths) => lengths[example],
            Self::KeyPadding(padding) => {
                let is_key = |is_padding: &bool| !is_padding;
                let last = padding[example].iter().rposition(is_key);
                last.map_or(0, |last| last + 1)
            }
            Self::All(parts) => (parts.iter())
                .map(|part| part.num_keys(example, seq_k))
                .fold(seq_k, usize::min),
            _ => seq_k,
        }
    }

    /// Whether it is random and differs between heads.
    pub(crate) fn is_random(&self) -> bool {
        match self {
            Self::Random { .. } => true,
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::is_random),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;

    /// The mask of a problem with one example and one head: `x` masked, `.` visible.
    fn picture(mask: Mask, seq_q: usize, seq_k: usize) -> Vec<String> {
        let problem = Problem::new("picture", [1, 1, seq_q, seq_k, 1]).with_mask(mask);
        problem
            .dense_mask()
            .chunks(seq_k)
            .map(|row| row.iter().map(|&h| if h { 'x' } else { '.' }).collect())
            .collect()
    }

    #[test]
    fn causal_aligns_the_last_query_with_the_last_key() {
        assert_eq!(picture(Mask::Causal, 3, 3), [".xx", "..x", "..."]);
        assert_eq!(picture(Mask::Causal, 2, 4), ["...x", "...."]);
        assert_eq!(picture(Mask::Causal, 4, 2), ["xx", "xx", ".x", ".."]);
    }

    #[test]
    fn window_follows_the_query() {
        let window = |left, right| Mask::Window { left, right };
        assert_eq!(picture(window(1, 0), 3, 3), [".xx", "..x", "x.."]);
        assert_eq!(picture(window(0, 1), 3, 3), ["..x", "x..", "xx."]);
        assert_eq!(picture(window(1, 0), 2, 4), ["x..x", "xx.."]);
    }

    #[test]
    fn all_and_any_combine() {
        let parts = || vec![Mask::Causal, Mask::KeyLengths(vec![2])];
        assert_eq!(picture(Mask::All(parts()), 3, 3), [".xx", "..x", "..x"]);
        assert_eq!(picture(Mask::Any(parts()), 3, 3), ["..x", "..x", "..."]);
    }

    #[test]
    fn sparse_masks() {
        assert_eq!(
            picture(Mask::Block(2), 5, 5),
            ["..xxx", "..xxx", "xx..x", "xx..x", "xxxx."]
        );
        let blocks = Mask::BlockSparse {
            size: 2,
            visible: vec![vec![1], vec![0, 1]],
        };
        assert_eq!(picture(blocks, 4, 4), ["xx..", "xx..", "....", "...."]);
        assert_eq!(picture(Mask::Strided(2), 3, 4), ["x.x.", ".x.x", "x.x."]);
        let summary_columns = |block, summary| Mask::SummaryColumns { block, summary };
        assert_eq!(picture(summary_columns(3, 1), 2, 7), ["xx.xx.x", "xx.xx.x"]);
        assert_eq!(picture(summary_columns(3, 2), 1, 5), ["x..x."]);
        assert_eq!(picture(summary_columns(2, 5), 1, 3), ["..."]);
        assert_eq!(
            picture(Mask::Monotonic(1), 4, 6),
            ["..xxxx", "...xxx", "x...xx", "xx...x"]
        );
        assert_eq!(picture(Mask::Monotonic(1), 4, 2), ["..", "..", "x.", "xx"]);
        assert_eq!(
            picture(Mask::PowersOfTwo, 5, 4),
            ["xxxx", ".xxx", "..xx", "...x", "x..."]
        );
        assert_eq!(picture(Mask::Global(vec![1]), 3, 3), ["x.x", "...", "x.x"]);
        let documents = Mask::Documents(vec![vec![0, 0, 1]]);
        assert_eq!(picture(documents, 4, 3), ["xxx", "..x", "..x", "xx."]);
    }

    #[test]
    fn num_keys_ends_with_the_last_visible_key() {
        let padding = Mask::KeyPadding(vec![
            vec![true, false, true, false, true],
            vec![true, true, true, true, true],
        ]);
        assert_eq!([0, 1].map(|example| padding.num_keys(example, 5)), [4, 0]);
        let lengths = Mask::KeyLengths(vec![3, 5]);
        let both = Mask::All(vec![Mask::Causal, lengths, padding]);
        assert_eq!([0, 1].map(|example| both.num_keys(example, 5)), [3, 0]);
        assert_eq!(Mask::Causal.num_keys(0, 5), 5);
    }

    #[test]
    fn random_mask_has_fully_masked_rows() {
        let mask = Mask::Random {
            masked: 0.0,
            fully_masked_every: 2,
        };
        assert_eq!(picture(mask, 3, 2), ["xx", "..", "xx"]);
    }
}
