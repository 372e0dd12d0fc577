//! The commands of the `zoo` program.

pub mod train;
