//! The names, keys, defaults and capabilities of mechanisms and models, and the names of backends
//! and dtypes. Nothing here depends on Burn.
//!
//! - [`Mechanism`] and [`MechanismConfig`] are generated from the list of mechanisms;
//! - [`Model`] has the sizes and choices of each model;
//! - [`BackendWord`] is turned into a Burn device by `zoo-backend` and into cargo features by
//!   `xtask`, which does not link Burn;
//! - [`keys`](mod@keys) has the macros that declare a struct of keys with their allowed values;
//! - [`Draw`] draws data and problems by a seed or a name.

mod backend;
mod draw;
mod dtype;
mod encoding;
pub mod keys;
mod libtorch;
mod mechanisms;
mod models;
mod printable;
mod unknown;

pub use backend::{Backend, BackendWord, ParseBackendError};
pub use draw::Draw;
pub use dtype::Dtype;
pub use encoding::NotUtf8;
pub use libtorch::libtorch_version;
pub use mechanisms::*;
pub use models::*;
pub use printable::{Printable, printable_text};
pub use unknown::UnknownWord;
