//! A catalogue problem on a device, and what came out of it against the oracle.
//!
//! Tests and benches both judge a mechanism through here, so a bench can never
//! time a result that the tests would refuse. What other programs computed is read here, too.

mod differs;
mod golden;
mod judge;
mod share;
mod tensors;

pub use differs::differs_from_full;
pub use golden::{golden_data, golden_mask, golden_tensor};
pub use judge::{
    Errors, all_queries, check_forward, check_gradients, dropped, given, judge_context,
    judge_forward, judge_gradients, takes,
};
pub use share::share;
pub use tensors::{Tensors, numbers};
