//! Benchmarks of attention mechanisms and models: planning, execution and reports.
//!
//! This crate does not depend on a tensor library. `zoo-bench` does the measuring and shares
//! [`case`] and [`record`] with it.

#![allow(
    missing_docs,
    reason = "not published: only items whose names and types are not enough are documented"
)]

pub mod burn;
pub mod case;
pub mod child;
pub mod compare;
pub mod findings;
pub mod library;
pub mod machine;
pub mod model;
pub mod plan;
pub mod plot;
pub mod pool;
pub mod pytorch;
pub mod record;
mod reference;
pub mod report;
pub mod run;
pub mod screen;
mod summary;
pub mod table;
#[doc(hidden)]
pub mod test_utils;
pub mod units;
mod work;
