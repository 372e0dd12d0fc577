//! From a TOML file to a trained model that can be looked into.
//!
//! ```text
//! config  ->  Task: texts, tokens, examples, model  ->  Trainer  ->  a run's folder
//!                                                          |            |
//!                                                        show        Trained: evaluate, attend, ...
//! ```
//!
//! - `Task`: what is learned, from texts to evaluation;
//! - [`train`]: learning, with everything that is written on the way;
//! - [`RunFolder`], [`Checkpoints`]: what is kept of a run;
//! - [`Trained`]: a run that is used; [`Judgement`] says how good a model is, [`Attention`] where
//!   it looks;
//! - [`average`](average()): the mean of several checkpoints;
//! - [`cli`]: the commands of the `zoo` program.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod attend;
mod average;
pub mod cli;
mod error;
mod evaluate;
mod files;
mod generate;
mod learn;
mod memory;
mod out;
mod run;
mod show;
mod task;
mod trained;

pub use self::attend::{Attention, Side};
pub use self::average::average;
pub(crate) use self::error::Result;
pub use self::error::{Instead, TrainError};
pub use self::evaluate::Judgement;
pub(crate) use self::evaluate::{DataPart, Source};
#[doc(hidden)]
pub use self::files::faults;
pub use self::learn::{Ending, Finished, TrainOptions, train};
pub use self::run::{Best, Checkpoint, Checkpoints, RunFolder};
pub use self::task::Classified;
pub(crate) use self::trained::AVERAGE;
pub use self::trained::{Trained, Which};
