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
    ("restraint", scaling::restraint),
    ("visibility", masks::visibility),
    ("masks", masks::masks),
    ("one-nan", masks::one_nan),
    ("crossing", inference::crossing),
    ("order", positions::order),
    ("encodings", positions::encodings),
    ("decoding", inference::decoding),
    ("caches", inference::caches),
    ("training", inference::training),
    ("merging", log_sum_exp::merging),
    ("running", log_sum_exp::running),
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
