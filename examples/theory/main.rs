//! Numerical checks of the claims in `docs/theory`; a claim that does not hold panics. The
//! arguments are the backend and the topics:
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
use zoo_examples::Outcome;

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
        let names = TOPICS.map(|(name, _)| name).join(", ");
        let expected = format!("a topic must be one of {names}");
        let topics: Vec<String> = std::env::args().skip(2).collect();
        if topics.is_empty() {
            return Err(expected.into());
        }
        for (i, topic) in topics.iter().enumerate() {
            let found = TOPICS.iter().find(|(name, _)| name == topic);
            let unknown = || format!("argument {}, {topic:?}: {expected}", i + 2);
            let (_, run) = found.ok_or_else(unknown)?;
            // The same random tensors as if it were the only topic.
            opened.device.seed(1);
            run(opened)?;
        }
        Ok(())
    })
}
