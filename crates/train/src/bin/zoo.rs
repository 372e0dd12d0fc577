//! The `zoo` program.

fn main() {}
