//! Runs every topic of the example `theory` on the backend in `ZOO_BACKEND`. The topics assert the
//! claims of docs/theory.

mod common;

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
    qk_norm_temperature_and_softcap_limit_scores: "restraint",
    masked_keys_have_no_influence: "visibility",
    a_fully_masked_query_gets_zeros: "masks",
    one_nan_spreads_to_all_weights_in_one_step: "one-nan",
    cross_attention_memory_may_have_any_length: "crossing",
    attention_is_permutation_equivariant_without_positions: "order",
    position_encodings_break_the_symmetry: "encodings",
    cached_decoding_equals_the_parallel_pass: "decoding",
    cache_sizes_match_the_documentation: "caches",
    randomness_is_limited_to_training: "training",
    merging_of_parts_is_exact: "merging",
    online_softmax_does_not_overflow: "running",
}
