//! The folder of a run: everything that is needed to trust it, go on with it, and use it.
//!
//! ```text
//! runs/NAME/
//!   config.toml           the config with every default in it
//!   run.json              seed, versions, commit, device: written before the first step
//!   tokenizer*.json       what makes tokens of texts; labels.json has the classes
//!   log.txt               what was shown while training
//!   metrics.jsonl         every number, a JSON object a line; train.csv and valid.csv, too
//!   loss.svg METRIC.svg   the curves
//!   checkpoints/step-N/   weights.safetensors, optimizer.bpk, state.json, checksums.json
//!   best.json             which checkpoint was best
//!   result.json           what came of the test
//!   average.safetensors   by `zoo average`; attention.html by `zoo attend`
//!   lock                  held by the process that learns, while it does
//! ```
//!
//! Whatever is written is whole or not there, at any time. A folder is a run by its `run.json`,
//! which names the version of zoo that created it. Nothing in it is removed but these files.

mod about;
mod checkpoint;
mod contents;
mod folder;
mod lock;
mod numbers;
mod progress;

pub(crate) use self::about::{about, resumed};
pub(crate) use self::checkpoint::WEIGHTS;
pub use self::checkpoint::{Checkpoint, Checkpoints};
pub(crate) use self::folder::Opening;
pub use self::folder::RunFolder;
pub(crate) use self::lock::Lock;
pub(crate) use self::numbers::{Numbers, Row, TEST, last_rows};
pub use self::progress::Best;
pub(crate) use self::progress::{Progress, ScaleState};
pub(crate) use crate::files::write_atomic;
