//! Benchmarks of attention mechanisms and models: planning, execution and reports.
//!
//! - [`case`], [`model`]: benchmark cases and model sizes;
//! - [`plan`]: the cases selected by command-line flags;
//! - [`run`]: one child process per case, with time and memory limits;
//! - [`record`]: the results file, one JSON line per case;
//! - [`pool`]: statistics over the rounds of a case;
//! - [`findings`]: scaling exponents and crossover lengths;
//! - [`table`], [`plot`], [`report`], [`compare`]: output;
//! - [`pytorch`]: the PyTorch side of `--vs pytorch`.
//!
//! This crate does not depend on a tensor library. `zoo-bench` does the measuring and shares
//! [`case`] and [`record`] with it.

#![allow(
    missing_docs,
    reason = "not published: only items whose names and types are not enough are documented"
)]

pub mod case;
pub mod child;
pub mod compare;
pub mod findings;
pub mod machine;
pub mod model;
pub mod plan;
pub mod plot;
pub mod pool;
pub mod pytorch;
pub mod record;
pub mod report;
pub mod run;
pub mod table;
#[doc(hidden)]
pub mod test_utils;
pub mod units;
mod work;
