//! A tagger of long sequences, before and after: `before.rs` is on burn-nn alone, and
//! `after.rs` is the same file with a few lines changed.

pub mod after;
pub mod before;
