//! The words people write on a command line or in a config file, and what they
//! mean before any backend is compiled.
//!
//! `zoo-backend` turns a [`BackendWord`] into a Burn device; `xtask` turns the
//! same word into cargo features. Both need the one list of words, and `xtask`
//! must never link Burn, so what the two share lives here with nothing around it.
//! So does the list of [`Mechanism`]s, which `zoo-attention` has the rooms for.

mod backend;
mod dtype;
mod encoding;
pub mod keys;
mod libtorch;
mod mechanisms;
mod printable;
mod unknown;

pub use backend::{Backend, BackendWord, ParseBackendError};
pub use dtype::Dtype;
pub use encoding::NotUtf8;
pub use libtorch::libtorch_version;
pub use mechanisms::*;
pub use printable::{Printable, printable_text};
pub use unknown::UnknownWord;
