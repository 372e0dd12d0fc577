//! What examples have in common: a device by its word, errors as sentences, and how far two
//! results are apart.

#[cfg(doctest)]
mod pages;

use std::error::Error;
use std::process::ExitCode;

use burn::tensor::Tensor;
use zoo_backend::{BackendWord, Dtype, Opened};

/// How an example ends.
pub type Outcome = Result<(), Box<dyn Error>>;

/// Runs an example on the device that the first argument names (default: flex).
pub fn on_device(example: impl FnOnce(&Opened) -> Outcome) -> ExitCode {
    let word = argument(0, "flex".to_owned());
    let opened = word.and_then(|word| open(&word));
    let outcome = opened.and_then(|opened| {
        println!("device: {opened}\n");
        // The same numbers each time.
        opened.device.seed(1);
        example(&opened)?;
        // A driver that still compiles or computes when the process ends may crash it.
        Ok(opened.device.sync()?)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(word: &str) -> Result<Opened, Box<dyn Error>> {
    Ok(zoo_backend::open(word.parse::<BackendWord>()?, Dtype::F32)?)
}

/// The largest difference between two tensors of one shape.
pub fn difference<const D: usize>(a: &Tensor<D>, b: &Tensor<D>) -> f32 {
    (a.clone() - b.clone()).abs().max().into_scalar()
}

/// An argument by its number, or what is usual if there are fewer.
///
/// # Errors
///
/// If it is not what it should be.
pub fn argument<T>(number: usize, usual: T) -> Result<T, Box<dyn Error>>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    match std::env::args_os().nth(1 + number) {
        None => Ok(usual),
        Some(word) => {
            let text = word.to_string_lossy();
            let read = text.parse();
            read.map_err(|error| format!("argument {}, {text:?}: {error}", 1 + number).into())
        }
    }
}
