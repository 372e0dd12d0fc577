//! Comparison of mechanisms with the oracle on a device.
//!
//! Tests and benchmarks both check mechanisms with this crate, so that a benchmark never times a
//! result that the tests would reject. It also reads golden files and has the helpers that the test
//! programs share.

mod compare;
mod golden;
mod shard;
mod suite;
mod tensors;

pub use compare::{
    Errors, accepts, all_queries, assert_not_full_attention, check_forward, check_gradients,
    compare_context, compare_forward, compare_gradients, compare_library, dropout_mask,
    forward_tolerance, precision, reference_problem,
};
pub use golden::Golden;
pub use shard::shard;
pub use suite::{
    Suite, Test, apply_weights, assert_close, assert_close_as, assert_error,
    assert_panics_containing, assert_panics_with, assert_results_close, is_close, merge_heads,
    must, panic_message, random_normal, split_heads,
};
pub use tensors::{RESULT_NAMES, Tensors, gradient_or_zeros, tensor_of, to_vec};
