//! What examples have in common: a device by its name, errors as sentences, random tensors, and
//! how far two results are apart.

#[cfg(doctest)]
mod pages;

use std::error::Error;
use std::process::ExitCode;

use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::AttentionShape;
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

/// A tensor of normally distributed elements.
pub fn normal<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Query, key and value of one shape: `[batch, heads, seq, d_head]`.
pub fn query_key_value(shape: [usize; 4], device: &Device) -> [Tensor<4>; 3] {
    [(); 3].map(|()| normal(shape, device))
}

/// A shape of one example and one head.
pub fn shape(seq_q: usize, seq_k: usize) -> AttentionShape {
    AttentionShape {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        seq_q,
        seq_k,
        d_head: 16,
        d_value: 16,
    }
}

/// The largest difference between two tensors of one shape.
pub fn difference<const D: usize>(a: &Tensor<D>, b: &Tensor<D>) -> f32 {
    (a.clone() - b.clone()).abs().max().into_scalar()
}

/// An argument by its number, or what is usual if there are fewer.
pub fn argument<T>(number: usize, usual: T) -> Result<T, Box<dyn Error>>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    let Some(word) = std::env::args_os().nth(1 + number) else {
        return Ok(usual);
    };
    let text = word.to_string_lossy();
    let read = text.parse();
    read.map_err(|error| format!("argument {}, {text:?}: {error}", 1 + number).into())
}
