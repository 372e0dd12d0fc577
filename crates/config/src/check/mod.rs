//! Validation of a config: first key by key, then the consistency between keys.

mod attention;
mod consistency;
mod data;
mod schema;

pub(crate) use self::consistency::check_consistency;
pub(crate) use self::schema::{allowed, check_schema};
