//! Helpers shared by the examples: device selection, error reporting, random tensors and
//! comparison of tensors.

#[cfg(doctest)]
mod pages;

use std::error::Error;
use std::process::ExitCode;

use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::{AttentionInput, AttentionShape, MultiHeadAttention, Pattern};
use zoo_backend::{BackendId, Dtype, OpenDevice};

/// Result of an example.
pub type Outcome = Result<(), Box<dyn Error>>;

/// Runs an example on the device that the first argument names (default: flex).
pub fn on_device(example: impl FnOnce(&OpenDevice) -> Outcome) -> ExitCode {
    let name = argument(0, "flex".to_owned());
    let outcome = name.and_then(|name| {
        let opened = zoo_backend::open(name.parse::<BackendId>()?, Dtype::F32)?;
        println!("device: {opened}\n");
        // Reproducible random tensors.
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

/// Tensor with standard normal elements.
pub fn normal<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Random query, key and value of the same shape: `[batch, heads, seq, d_head]`.
pub fn query_key_value(shape: [usize; 4], device: &Device) -> [Tensor<4>; 3] {
    [(); 3].map(|()| normal(shape, device))
}

/// Attention shape with batch size 1 and one head.
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

/// Self-attention of `x`, `[batch, seq, d_model]`.
pub fn self_attention(layer: &MultiHeadAttention, x: &Tensor<3>, pattern: Pattern) -> Tensor<3> {
    let input = AttentionInput::self_attn(x.clone()).pattern(pattern);
    layer.forward(input).context
}

/// Rows of a pattern, with `█` for each key that the query attends to and `·` for masked ones.
pub fn pattern_rows(
    pattern: &Pattern,
    [seq_q, seq_k]: [usize; 2],
    device: &Device,
) -> Result<Vec<String>, Box<dyn Error>> {
    let mask = pattern.dense_mask("example", &shape(seq_q, seq_k), device);
    let mask = mask.ok_or("the pattern masks nothing")?.into_data();
    let symbols = mask.iter::<bool>();
    let symbols: Vec<&str> = symbols
        .map(|is_masked| if is_masked { "·" } else { "█" })
        .collect();
    Ok(symbols.chunks(seq_k).map(|row| row.join(" ")).collect())
}

/// Largest absolute difference between two tensors of the same shape.
pub fn difference<const D: usize>(a: &Tensor<D>, b: &Tensor<D>) -> f32 {
    (a.clone() - b.clone()).abs().max().into_scalar()
}

/// Parses the command-line argument at `index`, or returns the default.
pub fn argument<T>(index: usize, default: T) -> Result<T, Box<dyn Error>>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    let Some(text) = std::env::args_os().nth(1 + index) else {
        return Ok(default);
    };
    let text = text.to_string_lossy();
    let parsed = text.parse();
    parsed.map_err(|error| format!("argument {}, {text:?}: {error}", 1 + index).into())
}
