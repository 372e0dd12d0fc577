//! A catalogue problem on a device, and what came out of it against the oracle.
//!
//! Tests and benches both judge a mechanism through here, so a bench can never
//! time a result that the tests would refuse. What other programs computed is read here, too,
//! and the test programs have what they share.

mod differs;
mod golden;
mod judge;
mod share;
mod suite;
mod tensors;

pub use differs::differs_from_full;
pub use golden::Golden;
pub use judge::{
    Errors, all_queries, check_forward, check_gradients, dropped, given, judge_context,
    judge_forward, judge_gradients, precision, takes,
};
pub use share::share;
pub use suite::{
    Suite, Test, is_refused, is_refused_with, is_same, must, normal, refusal, same, same_as,
    same_results,
};
pub use tensors::{RESULTS, Tensors, numbers};
