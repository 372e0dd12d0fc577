//! Training, evaluation and inspection of attention models, from one TOML file.
//!
//! ```text
//! config  ->  Task: texts, tokenizers, examples, model  ->  Trainer  ->  run folder
//!                                                              |            |
//!                                                           Reporter    TrainedRun: evaluate, ...
//! ```
//!
//! - `Task`: a kind of training, from texts to evaluation;
//! - [`train`]: the training loop with logging, validation and checkpoints;
//! - [`RunFolder`], [`Checkpoints`]: the files of a run;
//! - [`TrainedRun`]: a run opened for inference; [`Metrics`] are the results of an evaluation,
//!   [`AttentionMaps`] the attention weights for a text;
//! - [`average`](average()): checkpoint averaging;
//! - [`cli`]: the commands of the `zoo` program.

#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(test)]
#[path = "../tests/shared/temp_dir.rs"]
mod temp_dir;

mod attend;
mod average;
pub mod cli;
mod error;
mod evaluate;
mod files;
mod generate;
mod interrupter;
mod memory;
mod out;
mod pretrained;
mod queries;
mod report;
mod run;
mod serve;
mod task;
mod trained;
mod training;
mod unknown;

pub use self::attend::{AttentionKind, AttentionMaps, AttentionRequest};
pub use self::average::average;
pub(crate) use self::error::Result;
pub use self::error::{Fallback, TrainError};
pub use self::evaluate::Metrics;
pub(crate) use self::evaluate::{DataSplit, EvalSet};
#[doc(hidden)]
pub use self::files::faults;
pub use self::interrupter::Interrupter;
pub use self::queries::Queries;
pub use self::run::{BestCheckpoint, Checkpoint, Checkpoints, RunFolder};
pub use self::task::ClassPrediction;
pub(crate) use self::trained::AVERAGE;
pub use self::trained::{CheckpointChoice, TrainedRun};
pub use self::training::{StopReason, TrainOptions, TrainOutput, train};
