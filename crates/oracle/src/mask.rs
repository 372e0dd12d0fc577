//! Who may see whom, said one query at a time.

use zoo_spec::Draw;

use crate::problem::Problem;

/// A rule for which keys a query sees. Deliberately naive: it answers for one
/// query at a time and knows nothing of tensors or tiles.
#[derive(Debug, Clone, PartialEq)]
pub enum Mask {
    /// Everyone sees everything.
    Full,
    /// A query sees the keys up to its own place, the last query being level
    /// with the last key.
    Causal,
    /// A query sees the keys from `left` before its own place to `right` after it,
    /// the last query being level with the last key.
    Window {
        /// Keys before its own place.
        left: usize,
        /// Keys after it.
        right: usize,
    },
    /// A query sees the keys of its own block of so many places.
    Block(usize),
    /// A query in block `b` of `size` places sees the blocks `seen[b]`.
    Blocks {
        /// Places in a block.
        size: usize,
        /// The blocks seen from each.
        seen: Vec<Vec<usize>>,
    },
    /// A query sees the keys that are a multiple of this away from its own place.
    Strided(usize),
    /// Everyone sees the last `summary` keys of each block of `block` places.
    Summaries {
        /// Places in a block.
        block: usize,
        /// Keys seen of each.
        summary: usize,
    },
    /// A query sees the keys up to so many before and after the key of its own number, the
    /// first query being level with the first key.
    Monotonic(usize),
    /// A query sees its own place and those a power of two before it, as a function says that
    /// is no other word.
    PowersOfTwo,
    /// Keys at these places are seen by all, queries at these places see all.
    Global(Vec<usize>),
    /// Place `j` of example `b` belongs to document `ids[b][j]`, and sees only that.
    Documents(Vec<Vec<usize>>),
    /// Example `b` has only its first `lengths[b]` keys.
    KeyLengths(Vec<usize>),
    /// Key `j` of example `b` is padding where `padding[b][j]`.
    KeyPadding(Vec<Vec<bool>>),
    /// A random dense mask, different for each example and head.
    Scattered {
        /// The share of pairs that are hidden.
        hidden: f64,
        /// Every so many queries, one sees nothing at all.
        blind_every: usize,
    },
    /// Seen only if every part sees it.
    All(Vec<Mask>),
    /// Seen if any part sees it.
    Any(Vec<Mask>),
}

impl Mask {
    /// For every key: is it hidden from the query `[example, head, i]`?
    pub fn hidden_from(&self, problem: &Problem, [example, head, i]: [usize; 3]) -> Vec<bool> {
        let keys = 0..problem.seq_k;
        match self {
            Mask::Scattered {
                hidden,
                blind_every,
            } => {
                let row = (example * problem.heads + head) * problem.seq_q + i;
                let mut draw = Draw::named(&format!("{} row {row}", problem.name));
                let blind = row.is_multiple_of(*blind_every);
                keys.map(|_| draw.uniform() < *hidden || blind).collect()
            }
            Mask::All(parts) => combine(parts, problem, [example, head, i], |a, b| a || b),
            Mask::Any(parts) => combine(parts, problem, [example, head, i], |a, b| a && b),
            _ => keys.map(|j| self.hides(problem, example, i, j)).collect(),
        }
    }

    /// Whether key `j` is hidden from query `i`, by a mask that is neither drawn nor combined.
    fn hides(&self, problem: &Problem, example: usize, i: usize, j: usize) -> bool {
        // Both counted from the end, where query and key are level.
        let (query, key) = (problem.seq_q - i, problem.seq_k - j);
        let own = own(problem, i);
        match self {
            Mask::Full => false,
            Mask::Causal => query > key,
            Mask::Window { left, right } => key > query + left || query > key + right,
            Mask::Block(size) => own.is_none_or(|own| own / size != j / size),
            Mask::Blocks { size, seen } => {
                own.is_none_or(|own| !seen[own / size].contains(&(j / size)))
            }
            Mask::Strided(stride) => query.abs_diff(key) % stride != 0,
            Mask::Summaries { block, summary } => block - j % block > *summary,
            Mask::PowersOfTwo => query > key || (query < key && !(key - query).is_power_of_two()),
            Mask::Monotonic(window) => i.abs_diff(j) > *window,
            Mask::Global(positions) => {
                let sees_all = own.is_some_and(|own| positions.contains(&own));
                !positions.contains(&j) && !sees_all
            }
            Mask::Documents(ids) => own.is_none_or(|own| ids[example][own] != ids[example][j]),
            Mask::KeyLengths(lengths) => j >= lengths[example],
            Mask::KeyPadding(padding) => padding[example][j],
            Mask::Scattered { .. } | Mask::All(_) | Mask::Any(_) => {
                unreachable!("these are not of single keys")
            }
        }
    }

    /// How many keys an example has, those behind its last one being padding.
    pub(crate) fn keys_of(&self, example: usize, seq_k: usize) -> usize {
        match self {
            Self::KeyLengths(lengths) => lengths[example],
            Self::KeyPadding(padding) => {
                let is_key = |is_padding: &bool| !is_padding;
                let last = padding[example].iter().rposition(is_key);
                last.map_or(0, |last| last + 1)
            }
            Self::All(parts) => (parts.iter())
                .map(|part| part.keys_of(example, seq_k))
                .fold(seq_k, usize::min),
            _ => seq_k,
        }
    }

    /// Whether it is drawn at random, for each head on its own.
    pub(crate) fn is_drawn(&self) -> bool {
        match self {
            Self::Scattered { .. } => true,
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::is_drawn),
            _ => false,
        }
    }
}

/// The key that a query is level with, if there is one.
fn own(problem: &Problem, i: usize) -> Option<usize> {
    (i + problem.seq_k).checked_sub(problem.seq_q)
}

fn combine(
    parts: &[Mask],
    problem: &Problem,
    query: [usize; 3],
    join: impl Fn(bool, bool) -> bool,
) -> Vec<bool> {
    parts
        .iter()
        .map(|part| part.hidden_from(problem, query))
        .reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| join(a, b)).collect())
        .expect("a combination of at least one mask")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;

    /// The mask of a one-example, one-head problem, `x` for hidden and `.` for seen.
    fn picture(mask: Mask, seq_q: usize, seq_k: usize) -> Vec<String> {
        let problem = Problem::new("picture", [1, 1, seq_q, seq_k, 1]).with_mask(mask);
        problem
            .hidden()
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
    fn a_window_goes_with_the_query() {
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
    fn sparse_masks_look_as_they_should() {
        assert_eq!(
            picture(Mask::Block(2), 5, 5),
            ["..xxx", "..xxx", "xx..x", "xx..x", "xxxx."]
        );
        let blocks = Mask::Blocks {
            size: 2,
            seen: vec![vec![1], vec![0, 1]],
        };
        assert_eq!(picture(blocks, 4, 4), ["xx..", "xx..", "....", "...."]);
        assert_eq!(picture(Mask::Strided(2), 3, 4), ["x.x.", ".x.x", "x.x."]);
        let summaries = |block, summary| Mask::Summaries { block, summary };
        assert_eq!(picture(summaries(3, 1), 2, 7), ["xx.xx.x", "xx.xx.x"]);
        assert_eq!(picture(summaries(3, 2), 1, 5), ["x..x."]);
        assert_eq!(picture(summaries(2, 5), 1, 3), ["..."]);
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
    fn an_example_ends_with_its_last_key() {
        let padding = Mask::KeyPadding(vec![
            vec![true, false, true, false, true],
            vec![true, true, true, true, true],
        ]);
        assert_eq!([0, 1].map(|example| padding.keys_of(example, 5)), [4, 0]);
        let lengths = Mask::KeyLengths(vec![3, 5]);
        let both = Mask::All(vec![Mask::Causal, lengths, padding]);
        assert_eq!([0, 1].map(|example| both.keys_of(example, 5)), [3, 0]);
        assert_eq!(Mask::Causal.keys_of(0, 5), 5);
    }

    #[test]
    fn scattered_blinds_the_rows_it_says() {
        let mask = Mask::Scattered {
            hidden: 0.0,
            blind_every: 2,
        };
        assert_eq!(picture(mask, 3, 2), ["xx", "..", "xx"]);
    }
}
