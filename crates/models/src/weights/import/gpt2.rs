//! GPT-2's checkpoints, and those of models that are named like it.

use super::matrix::turned;
use super::{Import, are_equal};
use crate::weights::{Held, Weights, WeightsError};

/// Names that wrappers put before all others.
const WRAPPERS: [&str; 2] = ["_orig_mod.", "transformer."];

/// The weights of a [`Gpt`](crate::Gpt) from those of a GPT-2: `wte`, `wpe`, `h.N.ln_1`,
/// `h.N.attn.c_attn`, `h.N.attn.c_proj`, `h.N.ln_2`, `h.N.mlp.c_fc`, `h.N.mlp.c_proj` and
/// `ln_f`, perhaps all below `transformer`.
///
/// Matrices may lie either way, as GPT-2 has them or as `nn.Linear` does. A head that is the
/// embedding again is left out: the model is tied then.
///
/// # Errors
///
/// [`WeightsError`] if a tensor is missing, cannot be cut, or belongs nowhere.
pub fn gpt2(weights: Weights) -> Result<Weights, WeightsError> {
    let mut import = Import::new(weights.with_keys(unwrapped)?);
    // Masks that were saved along.
    import.leave_out(|key| key.ends_with(".attn.bias") || key.ends_with(".attn.masked_bias"));
    let is_tied = are_equal(
        import.from.get("lm_head.weight"),
        import.from.get("wte.weight"),
    );
    import.leave_out(|key| is_tied && key == "lm_head.weight");

    let layers = import.layers("h.");
    let lies = match import
        .from
        .get("h.0.attn.c_attn.weight")
        .map(|data| data.shape())
    {
        Some(shape) if shape.len() == 2 && shape[1] == 3 * shape[0] => Lies::AsPublished,
        _ => Lies::AsLinear,
    };
    import.keep("wte.weight", "embedding.weight")?;
    if import.has("wpe.weight") {
        import.keep("wpe.weight", "positions.table")?;
    }
    for layer in 0..layers {
        let (from, to) = (format!("h.{layer}"), format!("layers.{layer}"));
        let mut matrix = |from_name: &str, to_name: Option<&str>| {
            let from = format!("{from}.{from_name}");
            lies.turn_to_linear(&mut import, &from)?;
            match to_name {
                Some(name) => import.linear(&from, &format!("{to}.{name}")),
                None => {
                    let [weight, bias] = ["weight", "bias"].map(|part| format!("{from}.{part}"));
                    import.projections(&weight, &bias, &format!("{to}.attention"))
                }
            }
        };
        matrix("attn.c_attn", None)?;
        matrix("attn.c_proj", Some("attention.output"))?;
        matrix("mlp.c_fc", Some("feed_forward.inner"))?;
        matrix("mlp.c_proj", Some("feed_forward.outer"))?;
        import.norm(&format!("{from}.ln_1"), &format!("{to}.attention_norm"))?;
        import.norm(&format!("{from}.ln_2"), &format!("{to}.feed_forward_norm"))?;
    }
    import.norm("ln_f", "norm")?;
    if import.has("lm_head.weight") {
        import.linear("lm_head", "head")?;
    }
    import.finish()
}

/// Which way a file's matrices lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    /// `[from, to]`.
    AsPublished,
    /// `[to, from]`.
    AsLinear,
}

impl Lies {
    /// The matrix of a layer, as `nn.Linear` has it from now on.
    fn turn_to_linear(self, import: &mut Import, from: &str) -> Result<(), WeightsError> {
        if self == Self::AsLinear {
            return Ok(());
        }
        let key = format!("{from}.weight");
        let held = import.from.take(&key)?;
        let data = turned(&held)?;
        import.from.tensors.insert(key, Held { data, ..held });
        Ok(())
    }
}

/// A name without what wrappers put before it.
fn unwrapped(key: &str) -> String {
    let strip = |key, wrapper: &&str| str::strip_prefix(key, *wrapper).unwrap_or(key);
    WRAPPERS.iter().fold(key, strip).to_owned()
}
