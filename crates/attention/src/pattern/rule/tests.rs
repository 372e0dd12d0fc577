//! Tests of every rule, by tiles and by bits, against its definition for one pair.

use super::*;
use crate::Pattern;

fn shape(seq_q: usize, seq_k: usize) -> AttentionShape {
    AttentionShape::single_head(2, seq_q, seq_k)
}

const DOCUMENTS: [[usize; 12]; 2] = [
    [3, 3, 3, 3, 0, 0, 0, 1, 1, 3, 3, 2],
    [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
];

/// Whether key `j` is visible to query `i`, by the definition of the rule.
fn visible(rule: &Rule, shape: &AttentionShape, example: usize, i: usize, j: usize) -> bool {
    let query = i as i64 + shape.seq_k as i64 - shape.seq_q as i64;
    let key = j as i64;
    match rule {
        Rule::Full => true,
        Rule::Causal => key <= query,
        Rule::Window { left, right } => {
            let (left, right) = (*left as i128, *right as i128);
            let (query, key) = (i128::from(query), i128::from(key));
            (query - left..=query + right).contains(&key)
        }
        Rule::Block { size } => query >= 0 && query as usize / size == j / size,
        Rule::Blocks { size, visible } => {
            query >= 0 && visible[query as usize / size].contains(&(j / size))
        }
        Rule::Strided { stride } => (query - key) % *stride as i64 == 0,
        Rule::Monotonic { window } => i.abs_diff(j) <= *window,
        Rule::SummaryColumns(SummaryColumns { block, summary }) => j % block + summary >= *block,
        Rule::BlockCausal(mask) if mask.is_causal => j / mask.block_k < i / mask.block_q,
        Rule::BlockCausal(mask) => j / mask.block_k != i / mask.block_q,
        Rule::Global(positions) => positions.iter().any(|&p| p == j || p as i64 == query),
        Rule::Documents(_) => {
            let ids = DOCUMENTS[example];
            query >= 0 && ids[query as usize] == ids[j]
        }
        Rule::KeyLengths(lengths) => j < lengths[example],
        Rule::Predicate(predicate) => predicate.is_visible(example, query, key),
        Rule::And(a, b) => visible(a, shape, example, i, j) && visible(b, shape, example, i, j),
        Rule::Or(a, b) => visible(a, shape, example, i, j) || visible(b, shape, example, i, j),
    }
}

fn rules(seq_k: usize) -> Vec<Rule> {
    let window = |left, right| Rule::Window { left, right };
    let lengths = || Rule::KeyLengths(vec![seq_k.min(7), 0]);
    let some_blocks = |size: usize| {
        let blocks = seq_k.div_ceil(size);
        let visible = |own: usize| vec![(own * 7 + 3) % blocks, own / 2];
        Rule::blocks(size, &(0..blocks).map(visible).collect::<Vec<_>>())
    };
    let documents = DOCUMENTS.map(|ids| ids[..seq_k].to_vec());
    let columns = |block, summary| Rule::SummaryColumns(SummaryColumns { block, summary });
    let block_causal = |block_q, block_k, is_causal| {
        Rule::BlockCausal(BlockCausal {
            block_q,
            block_k,
            is_causal,
        })
    };
    let odd = || Pattern::from_fn(|query, key| (query ^ key) & 1 == 1).rule();
    vec![
        Rule::Full,
        Rule::Causal,
        window(0, 0),
        window(3, 1),
        window(usize::MAX >> 1, 2),
        Rule::Block { size: 1 },
        Rule::Block { size: 4 },
        some_blocks(1),
        some_blocks(3),
        Rule::Strided { stride: 1 },
        Rule::Strided { stride: 4 },
        columns(1, 1),
        columns(4, 1),
        columns(5, 3),
        columns(3, 0),
        columns(3, 7),
        Rule::Monotonic { window: 0 },
        Rule::Monotonic { window: 2 },
        Rule::Monotonic {
            window: usize::MAX >> 2,
        },
        block_causal(1, 1, true),
        block_causal(4, 2, true),
        block_causal(1, 1, false),
        block_causal(3, 2, false),
        block_causal(2, 5, false),
        Rule::global(&[3, 0]),
        Rule::global(&[]),
        Rule::documents(&documents),
        lengths(),
        Rule::Causal.and(lengths()),
        Rule::Or(Box::new(window(2, 0)), Box::new(lengths())),
        odd(),
        odd().and(window(3, 1)),
    ]
}

#[test]
fn bits_and_tiles_agree_with_the_definition() {
    for (seq_q, seq_k) in [(9, 9), (5, 12), (12, 5), (1, 8)] {
        let shape = shape(seq_q, seq_k);
        for rule in rules(seq_k) {
            for example in 0..2 {
                for (tile_q, tile_k) in [(1, 1), (4, 3), (64, 64)] {
                    for i0 in (0..seq_q).step_by(tile_q) {
                        for j0 in (0..seq_k).step_by(tile_k) {
                            let queries = i0..seq_q.min(i0 + tile_q);
                            let keys = j0..seq_k.min(j0 + tile_k);
                            check(&rule, &shape, example, queries, keys);
                        }
                    }
                }
            }
        }
    }
}

fn check(
    rule: &Rule,
    shape: &AttentionShape,
    example: usize,
    queries: Range<usize>,
    keys: Range<usize>,
) {
    let mut count = 0;
    for key in keys.clone() {
        let bits = rule.visible_queries(shape, example, queries.clone(), key);
        for (bit, query) in queries.clone().enumerate() {
            let expected = visible(rule, shape, example, query, key);
            assert_eq!(bits >> bit & 1 == 1, expected, "{rule:?} {query} {key}");
            count += usize::from(expected);
        }
    }
    let coverage = rule.coverage(shape, example, queries.clone(), keys.clone());
    match coverage {
        Coverage::Masked => assert_eq!(count, 0, "{rule:?} {queries:?} {keys:?}"),
        Coverage::Full => assert_eq!(count, queries.len() * keys.len(), "{rule:?}"),
        Coverage::Partial => {}
    }
    // A simple rule is exact for a single pair.
    if queries.len() * keys.len() == 1 && !matches!(rule, Rule::And(..) | Rule::Or(..)) {
        assert_ne!(coverage, Coverage::Partial, "{rule:?} {queries:?} {keys:?}");
    }
}

#[test]
fn depends_on_example_is_exact() {
    for rule in rules(9) {
        let mask_of = |example| {
            let mut mask = Vec::new();
            rule.write_mask(&shape(9, 9), example, [0..9, 0..9], &mut mask);
            mask
        };
        assert_eq!(
            mask_of(0) != mask_of(1),
            rule.depends_on_example(),
            "{rule:?}"
        );
    }
}

#[test]
fn bits_are_in_the_order_of_the_elements() {
    let elements: [u8; 64] = std::array::from_fn(|i| u8::from(i % 7 == 2 || i == 63));
    let expected = (0..64).fold(0, |bits, i| bits | u64::from(elements[i]) << i);
    assert_eq!(pack_bits(&elements), expected);
}
