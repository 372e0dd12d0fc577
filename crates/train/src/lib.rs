//! From a TOML file to a trained model that can be looked into.
//!
//! ```text
//! config  ->  texts  ->  tokenizers, examples  ->  model  ->  learn  ->  a run's folder
//!                                                              |            |
//!                                                            show        Trained: judge, write, ...
//! ```
//!
//! - [`read_texts`], [`Tokenizers`]: what the config's data is, as texts and as tokens;
//! - [`AnyModel`]: the config's model;
//! - [`train`]: learning, with everything that is written on the way;
//! - [`RunFolder`], [`Checkpoints`]: what is kept of a run;
//! - [`Trained`]: a run that is used; [`Judged`] says how good a model is, [`Translates`] what it
//!   writes, [`Attention`] where it looks;
//! - [`average`](average()): the mean of several checkpoints;
//! - [`cli`]: the commands of the `zoo` program.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod attend;
mod average;
mod classify;
pub mod cli;
mod error;
mod evaluate;
mod files;
mod judge;
mod learn;
mod memory;
mod models;
mod out;
mod run;
mod show;
mod texts;
mod trained;
mod translate;
mod vocabulary;
mod write;

pub use self::attend::{Attention, Side};
pub use self::average::average;
pub use self::classify::Classified;
pub use self::error::{Instead, TrainError};
pub use self::evaluate::DataPart;
#[doc(hidden)]
pub use self::files::faults;
pub use self::judge::{Exam, Judge, Judged, Judgement, Outcome, Sample, Speech, bleu_of};
pub use self::learn::{Ending, Example, Finished, Learns, TextWindow, TrainOptions, train};
pub use self::run::{Best, Checkpoint, Checkpoints, RunFolder};
pub use self::texts::{Texts, TextsRead, read_texts};
pub use self::trained::{AVERAGE, AnyModel, Trained, Which};
pub use self::translate::{Translated, Translation};
pub use self::vocabulary::{Examples, Tokenizers};
pub use self::write::Translates;
