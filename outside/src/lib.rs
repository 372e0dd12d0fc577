//! A sequence tagger: `before.rs` uses burn-nn alone, and `after.rs` is the same file with a few
//! lines changed to use `zoo-attention` and `zoo-models`.

pub mod after;
pub mod before;
