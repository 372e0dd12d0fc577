//! Whether a file says what it may: first key by key, then all together.

mod data;
mod fit;
mod shape;
mod sight;

pub(crate) use self::fit::check_fit;
pub(crate) use self::shape::{allowed, check_shape};
