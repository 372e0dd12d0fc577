//! The claims of `docs/theory`, as numbers. The arguments are the backend and the topic:
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin theory -- flex scaling
//! ```

mod caches;
mod crossing;
mod decoding;
mod encodings;
mod masks;
mod merging;
mod one_nan;
mod order;
mod restraint;
mod running;
mod saturation;
mod scaling;
mod training;
mod visibility;

use std::process::ExitCode;

use zoo_backend::Opened;
use zoo_examples::{Outcome, argument};

/// The name of a topic, and its program.
type Topic = (&'static str, fn(&Opened) -> Outcome);

const TOPICS: [Topic; 14] = [
    ("scaling", scaling::run),
    ("saturation", saturation::run),
    ("restraint", restraint::run),
    ("visibility", visibility::run),
    ("masks", masks::run),
    ("one-nan", one_nan::run),
    ("crossing", crossing::run),
    ("order", order::run),
    ("encodings", encodings::run),
    ("decoding", decoding::run),
    ("caches", caches::run),
    ("training", training::run),
    ("merging", merging::run),
    ("running", running::run),
];

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
