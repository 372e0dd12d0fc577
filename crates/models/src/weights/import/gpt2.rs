//! GPT-2's checkpoints, and those of models that are named like it.

use super::matrix::turned;
use super::{Import, are_equal};
use crate::weights::{Weights, WeightsError};

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

    let first = import.from.get("h.0.attn.c_attn.weight");
    // As they were published, matrices are `[from, to]`; those of `nn.Linear` are `[to, from]`.
    let is_published = first.is_some_and(|data| match data.shape()[..] {
        [from, to] => to == 3 * from,
        _ => false,
    });
    import.keep("wte.weight", "embedding.weight")?;
    import.keep_any("wpe.weight", "positions.table")?;
    for layer in 0..import.layers("h.") {
        let (from, to) = (format!("h.{layer}"), format!("layers.{layer}"));
        for (name, own) in [
            ("attn.c_attn", "attention"),
            ("attn.c_proj", "attention.output"),
            ("mlp.c_fc", "feed_forward.inner"),
            ("mlp.c_proj", "feed_forward.outer"),
        ] {
            let [weight, bias] = ["weight", "bias"].map(|part| format!("{from}.{name}.{part}"));
            if is_published {
                let as_linear = turned(import.from.take(&weight)?)?;
                import.from.tensors.insert(weight.clone(), as_linear);
            }
            match own {
                "attention" => import.projections(&weight, &bias, &format!("{to}.{own}"))?,
                _ => import.linear(&format!("{from}.{name}"), &format!("{to}.{own}"))?,
            }
        }
        import.norm(&format!("{from}.ln_1"), &format!("{to}.attention_norm"))?;
        import.norm(&format!("{from}.ln_2"), &format!("{to}.feed_forward_norm"))?;
    }
    import.norm("ln_f", "norm")?;
    if import.has("lm_head.weight") {
        import.linear("lm_head", "head")?;
    }
    import.finish()
}

/// A name without what wrappers put before it.
fn unwrapped(key: &str) -> String {
    let strip = |key, wrapper: &&str| str::strip_prefix(key, *wrapper).unwrap_or(key);
    WRAPPERS.iter().fold(key, strip).to_owned()
}
