//! A comparison of attention mechanisms, alone and in models: planned, run, and shown.
//!
//! - [`case`], [`model`]: what is measured;
//! - [`plan`]: which cases a person's choice comes to;
//! - [`run`]: one child process per case, watched for time and memory;
//! - [`record`]: what is written down, a line of JSON as each case ends;
//! - [`pool`]: the rounds of a case put together;
//! - [`findings`]: how time and memory grow, and which mechanism overtakes which;
//! - [`table`], [`plot`], [`report`], [`compare`]: what people look at;
//! - [`pytorch`]: the other side of `--vs pytorch`.
//!
//! No tensor library is in here. The measuring itself is done by `zoo-bench`,
//! which shares [`case`] and [`record`] with this crate.

#![allow(
    missing_docs,
    reason = "not published: comments are for what names and types do not say"
)]

pub mod case;
pub mod child;
pub mod compare;
pub mod findings;
#[doc(hidden)]
pub mod for_tests;
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
pub mod units;
mod work;
