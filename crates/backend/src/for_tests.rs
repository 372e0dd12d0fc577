//! The device that tests run on.

use std::process::ExitCode;

use zoo_spec::{BackendWord, Dtype};

use crate::{Opened, open};

/// Opens the device that `ZOO_BACKEND` names, flex if nobody says, in `f32`, and says which one
/// it is.
///
/// If it cannot be opened, that is printed, and the test program is to end with what is returned:
/// a device that is asked for and is not there is a failure.
pub fn open_for_tests() -> Result<Opened, ExitCode> {
    let word = std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned());
    let opened = word
        .parse::<BackendWord>()
        .map_err(|error| error.to_string())
        .and_then(|word| open(word, Dtype::F32).map_err(|error| error.to_string()));
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
