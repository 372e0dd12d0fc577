//! Every rule, for tiles and for bits, against what it means for one pair.

use super::*;
use crate::Pattern;
use crate::pattern::summary::Steps;

fn shape(seq_q: usize, seq_k: usize) -> AttentionShape {
    AttentionShape::of_sequences(2, seq_q, seq_k)
}

const DOCUMENTS: [[usize; 12]; 2] = [
    [3, 3, 3, 3, 0, 0, 0, 1, 1, 3, 3, 2],
    [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
];

/// The rule said one pair at a time, by its definition.
fn sees(rule: &Rule, shape: &AttentionShape, example: usize, i: usize, j: usize) -> bool {
    let (at, key) = (i as i64 + shape.seq_k as i64 - shape.seq_q as i64, j as i64);
    match rule {
        Rule::Full => true,
        Rule::Causal => key <= at,
        Rule::Window { left, right } => {
            let (left, right) = (*left as i128, *right as i128);
            let (at, key) = (i128::from(at), i128::from(key));
            (at - left..=at + right).contains(&key)
        }
        Rule::Block { size } => at >= 0 && at as usize / size == j / size,
        Rule::Blocks { size, seen } => at >= 0 && seen[at as usize / size].contains(&(j / size)),
        Rule::Strided { stride } => (at - key) % *stride as i64 == 0,
        Rule::Monotonic { window } => i.abs_diff(j) <= *window,
        Rule::Summaries(Summaries { block, summary }) => j % block + summary >= *block,
        Rule::Stairs(Stairs { rise, run, seen }) => match seen {
            Steps::Before => j / run < i / rise,
            Steps::Others => j / run != i / rise,
        },
        Rule::Global(places) => places.iter().any(|&place| place == j || place as i64 == at),
        Rule::Documents(_) => {
            let ids = DOCUMENTS[example];
            at >= 0 && ids[at as usize] == ids[j]
        }
        Rule::KeyLengths(lengths) => j < lengths[example],
        Rule::Sees(sees) => sees.one(at, key),
        Rule::And(a, b) => sees(a, shape, example, i, j) && sees(b, shape, example, i, j),
        Rule::Or(a, b) => sees(a, shape, example, i, j) || sees(b, shape, example, i, j),
    }
}

fn rules(seq_k: usize) -> Vec<Rule> {
    let window = |left, right| Rule::Window { left, right };
    let lengths = || Rule::KeyLengths(vec![seq_k.min(7), 0]);
    let some_blocks = |size: usize| {
        let blocks = seq_k.div_ceil(size);
        let seen = |own: usize| vec![(own * 7 + 3) % blocks, own / 2];
        Rule::blocks(size, &(0..blocks).map(seen).collect::<Vec<_>>())
    };
    let documents = DOCUMENTS.map(|ids| ids[..seq_k].to_vec());
    let summaries = |block, summary| Rule::Summaries(Summaries { block, summary });
    let stairs = |rise, run, seen| Rule::Stairs(Stairs { rise, run, seen });
    let odd = || Pattern::sees(|query, key| (query ^ key) & 1 == 1).rule();
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
        summaries(1, 1),
        summaries(4, 1),
        summaries(5, 3),
        summaries(3, 0),
        summaries(3, 7),
        Rule::Monotonic { window: 0 },
        Rule::Monotonic { window: 2 },
        Rule::Monotonic {
            window: usize::MAX >> 2,
        },
        stairs(1, 1, Steps::Before),
        stairs(4, 2, Steps::Before),
        stairs(1, 1, Steps::Others),
        stairs(3, 2, Steps::Others),
        stairs(2, 5, Steps::Others),
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
                            judge(&rule, &shape, example, queries, keys);
                        }
                    }
                }
            }
        }
    }
}

fn judge(
    rule: &Rule,
    shape: &AttentionShape,
    example: usize,
    queries: Range<usize>,
    keys: Range<usize>,
) {
    let mut count = 0;
    for key in keys.clone() {
        let bits = rule.seen(shape, example, queries.clone(), key);
        for (bit, query) in queries.clone().enumerate() {
            let wanted = sees(rule, shape, example, query, key);
            assert_eq!(bits >> bit & 1 == 1, wanted, "{rule:?} {query} {key}");
            count += usize::from(wanted);
        }
    }
    let said = rule.tile(shape, example, queries.clone(), keys.clone());
    match said {
        Coverage::Masked => assert_eq!(count, 0, "{rule:?} {queries:?} {keys:?}"),
        Coverage::Full => assert_eq!(count, queries.len() * keys.len(), "{rule:?}"),
        Coverage::Partial => {}
    }
    // A single pair of a simple rule is never a matter of opinion.
    if queries.len() * keys.len() == 1 && !matches!(rule, Rule::And(..) | Rule::Or(..)) {
        assert_ne!(said, Coverage::Partial, "{rule:?} {queries:?} {keys:?}");
    }
}

/// An example's own places make a difference only where the rule says so.
#[test]
fn rules_of_all_examples_are_known_as_such() {
    for rule in rules(9) {
        let of = |example| {
            let mut hidden = Vec::new();
            rule.write_hidden(&shape(9, 9), example, [0..9, 0..9], &mut hidden);
            hidden
        };
        assert_eq!(of(0) != of(1), rule.depends_on_example(), "{rule:?}");
    }
}
