//! Masks of rules on the device.

use std::ops::Range;

use tch::{Device, Kind, Tensor};

use crate::AttentionShape;
use crate::pattern::rule::{Rule, query_position};

/// The mask of some queries and keys, `[1 or batch, 1, queries, keys]`; `true` masks.
pub(super) fn device_mask(
    rule: &Rule,
    shape: &AttentionShape,
    [queries, keys]: [Range<usize>; 2],
    device: Device,
) -> Tensor {
    let range = |range: &Range<usize>| {
        Tensor::arange_start(range.start as i64, range.end as i64, (Kind::Int64, device))
    };
    let indices = Indices {
        shape,
        queries: range(&queries).unsqueeze(1),
        keys: range(&keys),
        ranges: [queries, keys],
    };
    indices.visible(rule).logical_not()
}

struct Indices<'a> {
    shape: &'a AttentionShape,
    /// `[queries, 1]`
    queries: Tensor,
    /// `[keys]`
    keys: Tensor,
    ranges: [Range<usize>; 2],
}

impl Indices<'_> {
    /// `[1 or batch, 1, queries, keys]`, where each dimension may be 1.
    fn visible(&self, rule: &Rule) -> Tensor {
        let keys = &self.keys;
        let positions = || &self.queries + query_position(self.shape, 0);
        let within = |positions: &Tensor, left: usize, right: usize| {
            let distance = keys - positions;
            distance
                .ge(-(left as i64))
                .logical_and(&distance.le(right as i64))
        };
        let visible = match rule {
            Rule::Full => keys.ge(0),
            Rule::Causal => keys.le_tensor(&positions()),
            Rule::Window { left, right } => within(&positions(), *left, *right),
            Rule::Monotonic { window } => within(&self.queries, *window, *window),
            Rule::Block { size } => block_of(&positions(), *size).eq_tensor(&block_of(keys, *size)),
            Rule::Strided { stride } => (positions() - keys).remainder(*stride as i64).eq(0),
            Rule::SummaryColumns(columns) => {
                let block = columns.block as i64;
                keys.remainder(block).ge(block - columns.summary as i64)
            }
            Rule::BlockCausal(blocks) => {
                let own = block_of(&self.queries, blocks.block_q);
                let other = block_of(keys, blocks.block_k);
                if blocks.is_causal {
                    other.lt_tensor(&own)
                } else {
                    other.ne_tensor(&own)
                }
            }
            Rule::KeyLengths(lengths) => {
                let lengths: Vec<i64> = lengths.iter().map(|length| *length as i64).collect();
                let lengths = Tensor::from_slice(&lengths).to_device(keys.device());
                keys.lt_tensor(&lengths.reshape([-1, 1, 1, 1]))
            }
            Rule::And(a, b) => self.visible(a).logical_and(&self.visible(b)),
            Rule::Or(a, b) => self.visible(a).logical_or(&self.visible(b)),
            // Lists of positions and functions on the host.
            Rule::Blocks { .. } | Rule::Global(_) | Rule::Documents(_) | Rule::Predicate(_) => {
                self.upload(rule)
            }
        };
        match visible.dim() {
            4 => visible,
            _ => visible.reshape([1, 1, -1, self.keys.size()[0]]),
        }
    }

    fn upload(&self, rule: &Rule) -> Tensor {
        let examples = rule.num_distinct_examples(self.shape);
        let mut mask = Vec::new();
        for example in 0..examples {
            rule.write_mask(self.shape, example, self.ranges.clone(), &mut mask);
        }
        let [queries, keys] = self.ranges.each_ref().map(|range| range.len() as i64);
        let mask = Tensor::from_slice(&mask).reshape([examples as i64, 1, queries, keys]);
        mask.to_device(self.keys.device()).logical_not()
    }
}

fn block_of(positions: &Tensor, size: usize) -> Tensor {
    positions.floor_divide_scalar(size as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;
    use crate::pattern::BlockCausal;

    #[test]
    fn masks_are_those_of_the_rule() {
        let blocks = Pattern::Blocks {
            size: 9,
            visible: (0..5).map(|block| vec![block / 2, 4]).collect(),
        };
        let patterns = [
            Pattern::Full,
            Pattern::Causal,
            Pattern::Window { left: 3, right: 1 },
            Pattern::Window {
                left: usize::MAX,
                right: 0,
            },
            Pattern::Block { size: 6 },
            blocks,
            Pattern::fixed(7, 2).and(Pattern::Causal),
            Pattern::Monotonic { window: 2 },
            Pattern::longformer(2, [1, 30]),
            Pattern::sparse_transformer(5),
            Pattern::documents([vec![0; 41], (0..41).map(|i| i / 8).collect()]),
            Pattern::key_lengths([41, 7]).and(Pattern::Causal),
            Pattern::from_fn(|query, key| (query + key) % 3 == 0),
        ];
        let block_causal = |is_causal| {
            Rule::BlockCausal(BlockCausal {
                block_q: 5,
                block_k: 3,
                is_causal,
            })
        };
        let mut rules: Vec<Rule> = patterns.iter().map(Pattern::rule).collect();
        rules.extend([true, false].map(block_causal));
        for seq_q in [41, 20, 50] {
            let shape = AttentionShape::single_head(2, seq_q, 41);
            let ranges = [5..seq_q, 2..41];
            for rule in &rules {
                let mask = device_mask(rule, &shape, ranges.clone(), Device::Cpu);
                let size = [2, 1, seq_q as i64 - 5, 39];
                let mask: Vec<bool> =
                    Vec::try_from(mask.expand(size, false).reshape([-1])).expect("a vector");
                let mut expected = Vec::new();
                for example in 0..2 {
                    rule.write_mask(&shape, example, ranges.clone(), &mut expected);
                }
                assert_eq!(mask, expected, "{rule:?}");
            }
        }
    }
}
