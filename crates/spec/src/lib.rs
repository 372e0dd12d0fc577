//! The names, keys, defaults and capabilities of mechanisms and models, and the names of backends
//! and dtypes. Nothing here depends on Burn.
//!
//! - [`Mechanism`] and [`MechanismConfig`] are generated from the list of mechanisms;
//! - [`Model`] has the sizes and choices of each model;
//! - [`BackendId`] selects a Burn device (`zoo-backend`) or cargo features (`xtask`, which does not
//!   link Burn);
//! - [`keys`](mod@keys) has the macros that declare a struct of keys with their allowed values;
//! - [`SplitMix64`] is the random number generator of synthetic data and test problems.

mod backend;
mod builder;
mod dtype;
mod encoding;
pub mod keys;
mod libtorch;
mod mechanisms;
mod models;
mod printable;
mod rotary;
mod splitmix64;
mod unknown;

pub use backend::{Backend, BackendId, ParseBackendError};
pub use dtype::{Dtype, Precision};
pub use encoding::NotUtf8;
pub use libtorch::libtorch_version;
pub use mechanisms::*;
pub use models::*;
#[doc(hidden)]
pub use pastey;
pub use printable::{Printable, printable_text};
pub use rotary::{Llama3Scaling, PairLayout, Rotary, RotaryScaling, ScalingFactor, YarnScaling};
pub use splitmix64::SplitMix64;
pub use unknown::{UnknownName, closest_path, closest_run};
