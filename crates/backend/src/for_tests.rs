//! The device under test.

use std::process::ExitCode;

use zoo_spec::{BackendId, Dtype};

use crate::{OpenDevice, open};

/// Opens the device named by `ZOO_BACKEND` (default: flex) in `f32` and prints it.
///
/// # Errors
///
/// If it cannot be opened, prints why and returns the exit code of the test program: a missing
/// device is a failure, not a skipped test.
pub fn open_for_tests() -> Result<OpenDevice, ExitCode> {
    let name = std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned());
    let opened = name
        .parse::<BackendId>()
        .map_err(|error| error.to_string())
        .and_then(|id| open(id, Dtype::F32).map_err(|error| error.to_string()));
    match opened {
        Ok(opened) => {
            println!("device: {opened}");
            Ok(opened)
        }
        Err(error) => {
            eprintln!("error: {error}");
            Err(ExitCode::FAILURE)
        }
    }
}
