//! Attention with any pattern by the memory-efficient kernel: the keys of rows of queries are
//! gathered, and rows with about as many keys are one call.
//!
//! ```text
//! rows of queries   [rows, 64, heads, d]      gathered by index
//! their keys        [rows, keys, heads, d]    likewise, padded to the longest row of the call
//! bias              [rows, 1, 64, keys]       masks the pairs that are not visible
//! ```
//!
//! A query can be in several rows, with different keys, such as a global token that attends to all
//! of them: contexts are merged by their log-sum-exp,
//! and the backward pass starts from the log-sum-exp of all keys, so that the gradients of the rows
//! only need to be added. [Indices and masks](plan) are uploaded once for each pattern and cached.
//!
//! The gradients of a key are summed in the order of its rows, and a query is once in a call, so
//! that results are deterministic.

mod plan;

use tch::{Kind, Tensor};
use zoo_kernels::aten::Mask;

pub(super) use self::plan::is_supported;
use self::plan::{DevicePlan, Layout, RowCall};
use super::call::{BackwardInputs, EfficientArgs, kernel_dropout};
use super::efficient::{
    FULLY_MASKED, MASKED_BIAS, broadcast_bias, kernel_backward, kernel_forward, pad_to_32,
};
use crate::flash::call::TiledSettings;

pub(super) fn forward(tensors: &[Tensor; 3], settings: &TiledSettings) -> [Tensor; 2] {
    let plan = DevicePlan::cached(settings, tensors[0].device());
    let layout = &plan.layout;
    let shape = &settings.shape;
    let [query, key, value] = layout.split_all(tensors);
    let (heads, d_value) = (layout.heads, shape.d_value as i64);
    let options = (query.kind(), query.device());
    let mut context = Tensor::zeros([layout.num_queries(), heads, d_value], options);
    let size = [layout.num_queries(), heads, 1];
    let mut log_sum_exp = Tensor::full(size, MASKED_BIAS, (Kind::Float, query.device()));
    for (index, call) in plan.calls.iter().enumerate() {
        let args = kernel_args(index, call, layout, &query, settings);
        let part = kernel_forward(
            [
                &call.select_queries(&query),
                &call.select_keys(&key),
                &call.select_keys(&value),
            ],
            &args,
        );
        let [part_context, part_log_sum_exp] = part;
        let part_context = part_context.reshape([-1, heads, d_value]);
        // The kernel pads the log-sum-exp.
        let part_log_sum_exp = part_log_sum_exp.narrow(2, 0, call.num_queries);
        let part_log_sum_exp = part_log_sum_exp.transpose(1, 2).reshape([-1, heads, 1]);
        let part = call.merge_rows([part_context, part_log_sum_exp]);
        let queries = call.targets();
        let [part_context, part_log_sum_exp] = if call.is_first {
            part
        } else {
            let all = [&context, &log_sum_exp].map(|tensor| tensor.index_select(0, queries));
            merge([all, part])
        };
        let _ = context.index_copy_(0, queries, &part_context);
        let _ = log_sum_exp.index_copy_(0, queries, &part_log_sum_exp);
    }
    let fully_masked = log_sum_exp.le(FULLY_MASKED);
    [
        layout.join_queries(&context.masked_fill(&fully_masked, 0.0), shape),
        layout.join_queries(&log_sum_exp.masked_fill(&fully_masked, MASKED_BIAS), shape),
    ]
}

/// Merges contexts and log-sum-exps over different keys.
fn merge([[context_a, lse_a], [context_b, lse_b]]: [[Tensor; 2]; 2]) -> [Tensor; 2] {
    let log_sum_exp = lse_a.logaddexp(&lse_b);
    let weight = |part: Tensor| (part - &log_sum_exp).exp();
    let context = context_a * weight(lse_a) + context_b * weight(lse_b);
    [context, log_sum_exp]
}

pub(super) fn backward(
    tensors: &[Tensor; 3],
    results: &BackwardInputs<'_>,
    settings: &TiledSettings,
) -> [Tensor; 3] {
    let plan = DevicePlan::cached(settings, tensors[0].device());
    let layout = &plan.layout;
    let shape = &settings.shape;
    let [query, key, value] = layout.split_all(tensors);
    let [context, d_context] =
        [results.context, results.d_context].map(|tensor| layout.split_queries(tensor));
    // Fully masked rows have zero weights.
    let fully_masked = results.log_sum_exp.le(FULLY_MASKED);
    let log_sum_exp = results.log_sum_exp.masked_fill(&fully_masked, 1e30);
    let log_sum_exp = layout.split_queries(&log_sum_exp);
    let zeros_like = |tensor: &Tensor| Tensor::zeros(tensor.size(), (query.kind(), query.device()));
    let [mut d_query, mut d_key, mut d_value] = [&query, &key, &value].map(zeros_like);
    for (index, call) in plan.calls.iter().enumerate() {
        let args = kernel_args(index, call, layout, &query, settings);
        let log_sum_exp = call.select_queries(&log_sum_exp).squeeze_dim(3);
        let (grads, _) = kernel_backward(
            [
                &call.select_queries(&query),
                &call.select_keys(&key),
                &call.select_keys(&value),
            ],
            [
                &call.select_queries(&context),
                &pad_to_32(&log_sum_exp.transpose(1, 2)),
                &call.select_queries(&d_context),
            ],
            &args,
            false,
        );
        let [d_queries, d_keys, d_values] = grads;
        let _ = d_query.index_add_(0, call.targets(), &call.sum_queries(&d_queries));
        d_key += call.sum_keys(&d_keys);
        d_value += call.sum_keys(&d_values);
    }
    [
        layout.join_queries(&d_query, shape),
        layout.join_keys(&d_key, shape),
        layout.join_keys(&d_value, shape),
    ]
}

fn kernel_args(
    index: usize,
    call: &RowCall,
    layout: &Layout,
    query: &Tensor,
    settings: &TiledSettings,
) -> EfficientArgs {
    let dims = [call.rows, layout.heads, call.num_queries, call.num_keys];
    EfficientArgs {
        mask: Mask::None,
        bias: bias(call, layout, query, settings).map(|bias| broadcast_bias(&bias, dims)),
        may_mask_rows: false,
        scale: settings.scale,
        dropout: kernel_dropout(settings, index),
    }
}

/// The bias of masked keys and ALiBi, `[rows, 1 or heads, queries, keys]`.
fn bias(
    call: &RowCall,
    layout: &Layout,
    query: &Tensor,
    settings: &TiledSettings,
) -> Option<Tensor> {
    let (rows, keys) = (call.rows, call.num_keys);
    let (group, per_head) = (layout.group, call.num_queries / layout.group);
    let mask = call.mask_bias(group);
    let Some(slopes) = &settings.alibi else {
        return mask;
    };
    let shape = &settings.shape;
    let [seq_q, seq_k] = [shape.seq_q, shape.seq_k].map(|seq| seq as i64);
    // All heads of a group have the same positions.
    let positions = call
        .queries()
        .reshape([rows, group, per_head, 1])
        .select(1, 0);
    let positions = positions.remainder(seq_q) + (seq_k - seq_q);
    let key_positions = call.keys().remainder(seq_k).reshape([rows, 1, keys]);
    let distance = (key_positions - positions).abs().to_kind(query.kind()); // [rows, queries, keys]
    let slopes = Tensor::from_slice(slopes).to_device(query.device());
    // The kernel's heads are those of one example, or of all.
    let slopes = slopes.to_kind(query.kind()).reshape([1, -1, group]);
    let kv_heads = slopes.size()[1];
    let slopes = slopes.expand([layout.heads / kv_heads, kv_heads, group], false);
    let penalty = slopes.reshape([1, layout.heads, group, 1, 1])
        * distance.reshape([rows, 1, 1, per_head, keys]);
    let bias = match mask {
        Some(mask) => mask.reshape([rows, 1, group, per_head, keys]) - penalty,
        None => -penalty,
    };
    Some(bias.reshape([rows, layout.heads, group * per_head, keys]))
}

#[cfg(test)]
mod tests;
