//! Data sets of the [Hugging Face hub](https://huggingface.co/datasets) as files that
//! training reads.
//!
//! `burn-dataset` has Python load a data set and write it into a database, a table for each
//! split. That is done once ([`Import`]); from there on ([`Database`]) rows become JSON
//! lines, columns with tabs or running text ([`Form`], [`write`](write::write)), and the `[data]` of a config
//! that reads them ([`section`](section::section)).
//!
//! It is a crate of its own, so that no run links an SQL engine.

mod database;
mod error;
mod form;
mod import;
mod row;
pub mod section;
mod splits;
pub mod write;

pub use self::database::Database;
pub use self::error::HubError;
pub use self::form::Form;
pub use self::import::Import;
pub use self::row::{Cell, Row};
pub use self::splits::{Choice, Part, choose};
