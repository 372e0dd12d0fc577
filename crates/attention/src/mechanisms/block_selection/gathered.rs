//! Attention to selected blocks with gathered tiles, in host memory.

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::{BlockSelection, Visibility};
use crate::flash::flash_gathered;
use crate::pattern::gather::{GatherPlan, GatheredRow, GatheredRows, MAX_QUERIES, RowBuilder};
use crate::pattern::rule::Rule;
use crate::{AttentionOptions, Pattern};

pub(super) fn attend(
    op: &str,
    tensors: [Tensor<4>; 3],
    selection: &BlockSelection,
    visibility: &Visibility<'_>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let plan = gather_plan(selection, visibility);
    let options = options.clone().with_pattern(Pattern::Full);
    flash_gathered(op, tensors, &options, Rule::Full, plan.into())
}

/// A row of tiles for the queries that selected a block.
fn gather_plan(selection: &BlockSelection, visibility: &Visibility<'_>) -> GatherPlan {
    let [batch, heads, ..] = visibility.shape.scores();
    let rows = |head: usize| {
        let mut rows = GatheredRows::default();
        for index in 0..selection.limit.max(1) {
            rows.add_pass(rows_of_pass(
                selection,
                visibility,
                [head / heads, head],
                index,
            ));
        }
        rows
    };
    let rows = (0..batch * heads).into_par_iter().map(rows).collect();
    GatherPlan::new(visibility.shape, rows)
}

/// The rows for the blocks with one index in the lists of a head. The first pass has all queries.
fn rows_of_pass(
    selection: &BlockSelection,
    visibility: &Visibility<'_>,
    [example, head]: [usize; 2],
    index: usize,
) -> Vec<GatheredRow> {
    let mut few = RowBuilder::default();
    let mut rows = Vec::new();
    let queries = selection.queries_by_block(head, index, visibility.num_blocks());
    for (block, queries) in queries.iter().enumerate() {
        for queries in queries.chunks(MAX_QUERIES) {
            let add_to = |builder: &mut RowBuilder| {
                let offset = builder.add_queries(queries);
                for key in visibility.keys(block as u32) {
                    let visible = (queries.iter().enumerate())
                        .filter(|(_, query)| visibility.is_visible(example, **query as usize, key))
                        .fold(0, |bits, (i, _)| bits | 1 << i);
                    builder.add_key(key as u32, visible << offset);
                }
            };
            // Queries of several blocks in one row would be computed with the keys of all of them.
            if 2 * queries.len() < MAX_QUERIES {
                add_to(&mut few);
                continue;
            }
            let mut builder = RowBuilder::default();
            add_to(&mut builder);
            rows.extend(builder.finish());
        }
    }
    if index == 0 {
        let without = (0..selection.seq_q).filter(|row| selection.blocks(head, *row).is_empty());
        for row in without {
            few.add_queries(&[row as u32]);
        }
    }
    rows.extend(few.finish());
    rows
}
