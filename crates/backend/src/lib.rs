//! Opening of Burn [`Device`]s by backend name. No other crate names a backend.
//!
//! ```no_run
//! let opened = zoo_backend::open("wgpu:0".parse()?, "f32".parse()?)?;
//! println!("{opened}");
//! let device = opened.device;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A device that cannot be opened is a [`BackendError`] that says what was found and what to do.
//! There is no fallback to another backend and no panic: a benchmark on the wrong device is worse
//! than none.

#![allow(
    missing_docs,
    reason = "not published: comments are for what names and types do not say"
)]

mod all_reduce;
mod allocator;
mod cpu;
#[cfg(feature = "tch")]
mod libtorch;
mod meter;
mod open;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use all_reduce::check_all_reduce;
pub use allocator::configure_allocator;
pub use burn::tensor::Device;
pub use meter::Meter;
pub use open::{BackendError, OpenDevice, compiled_features, open, open_for_tests};
pub use zoo_spec::{Backend, BackendId, Dtype, ParseBackendError, UnknownName};
