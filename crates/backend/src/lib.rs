//! A word becomes a Burn [`Device`] here, and nowhere else.
//!
//! ```no_run
//! let opened = zoo_backend::open("wgpu:0".parse()?, "f32".parse()?)?;
//! println!("{opened}");
//! let device = opened.device; // from here on, no code names a backend
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A word that cannot be honoured is a [`BackendError`] that says what was
//! found and what to do. There is no falling back to another backend, and no
//! panic: a benchmark on the wrong device is worse than none.

#![allow(
    missing_docs,
    reason = "not published: comments are for what names and types do not say"
)]

mod allocator;
mod cpu;
mod error;
mod for_tests;
mod guard;
#[cfg(feature = "tch")]
mod libtorch;
mod meter;
mod open;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use allocator::settle_allocator;
pub use burn::tensor::Device;
pub use error::BackendError;
pub use for_tests::open_for_tests;
pub use meter::Meter;
pub use open::{Opened, compiled, open};
pub use zoo_spec::{Backend, BackendWord, Dtype, ParseBackendError, UnknownWord};
