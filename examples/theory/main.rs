//! Numerical checks of the claims in `docs/theory`; a claim that does not hold panics. The
//! arguments are the backend and the topic:
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin theory -- flex scaling
//! ```

mod inference;
mod log_sum_exp;
mod masks;
mod positions;
mod scaling;

use std::process::ExitCode;

use zoo_backend::OpenDevice;
use zoo_examples::{Outcome, argument};

/// Name and function of a topic.
type Topic = (&'static str, fn(&OpenDevice) -> Outcome);

const TOPICS: [Topic; 14] = [
    ("scaling", scaling::scaling),
    ("saturation", scaling::saturation),
    ("qk-norm-softcap", scaling::qk_norm_softcap),
    ("masking", masks::masking),
    ("fully-masked-rows", masks::fully_masked_rows),
    ("nan-propagation", masks::nan_propagation),
    ("cross-attention", inference::cross_attention),
    (
        "permutation-equivariance",
        positions::permutation_equivariance,
    ),
    ("position-encodings", positions::position_encodings),
    ("incremental-decoding", inference::incremental_decoding),
    ("cache-sizes", inference::cache_sizes),
    ("train-eval-mode", inference::train_eval_mode),
    ("split-kv", log_sum_exp::split_kv),
    ("online-softmax", log_sum_exp::online_softmax),
];

/// Asserts that a difference is rounding error, or clearly not.
fn assert_same(is_same: bool, difference: f32) {
    let is_expected = if is_same {
        difference < 1e-5
    } else {
        difference > 1e-2
    };
    assert!(is_expected, "{difference}");
}

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let topic: String = argument(1, String::new())?;
        match TOPICS.iter().find(|(name, _)| *name == topic) {
            Some((_, run)) => run(opened),
            None => {
                let names = TOPICS.map(|(name, _)| name).join(", ");
                Err(format!("argument 2, {topic:?}: a topic must be one of {names}").into())
            }
        }
    })
}
