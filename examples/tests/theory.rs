//! What docs/theory claims, each program shows and asserts, on the device `ZOO_BACKEND` names.

mod common;

/// A test for each topic.
macro_rules! topics {
    ($($test:ident: $topic:literal,)*) => {
        $(#[test] fn $test() {
            common::run(env!("CARGO_BIN_EXE_theory"), &[$topic]);
        })*
    };
}

topics! {
    scores_grow_with_d_head_unless_they_are_scaled: "scaling",
    a_saturated_softmax_has_no_gradient: "saturation",
    scores_can_be_kept_from_growing: "restraint",
    hidden_is_as_if_not_there: "visibility",
    a_fully_masked_query_gets_zeros: "masks",
    one_nan_is_every_weight_a_step_later: "one-nan",
    a_memory_may_have_any_length_and_is_read_once: "crossing",
    order_is_seen_by_positions_and_masks_alone: "order",
    positions_are_encoded_in_five_ways: "encodings",
    steps_with_a_cache_are_the_whole_at_once: "decoding",
    caches_keep_what_the_page_says: "caches",
    sampling_is_for_training_alone: "training",
    parts_are_joined_exactly: "merging",
    a_running_softmax_does_not_overflow: "running",
}
