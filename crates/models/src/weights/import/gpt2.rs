//! GPT-2 checkpoints, and those of models with the same keys.

use super::Import;
use super::matrix::transpose;
use crate::ModelError;
use crate::weights::Weights;

/// Converts the weights of a GPT-2 (`wte`, `wpe`, `h.N.ln_1`, `h.N.attn.c_attn`,
/// `h.N.attn.c_proj`, `h.N.ln_2`, `h.N.mlp.c_fc`, `h.N.mlp.c_proj` and `ln_f`, optionally below
/// `transformer`) to those of a [`Gpt`](crate::Gpt).
///
/// Weights may have GPT-2's layout (`Conv1D`) or that of `nn.Linear`. A head that equals the
/// embedding is dropped; the model must be tied then.
///
/// # Errors
///
/// [`ModelError`] if a key is missing or unexpected, or a tensor cannot be split.
pub fn gpt2(weights: Weights) -> Result<Weights, ModelError> {
    let mut import = Import::new(weights.map_keys(strip_wrappers)?);
    // Causal masks saved as buffers.
    import.discard(|key| key.ends_with(".attn.bias") || key.ends_with(".attn.masked_bias"));
    let is_tied = import.are_equal("lm_head.weight", "wte.weight");
    import.discard(|key| is_tied && key == "lm_head.weight");

    let first = import.from.get("h.0.attn.c_attn.weight");
    // `Conv1D` weights are `[in_features, out_features]`, those of `nn.Linear` the transpose.
    let is_conv1d = first.is_some_and(|data| match data.shape()[..] {
        [from, to] => to == 3 * from,
        _ => false,
    });
    import.copy("wte.weight", "embedding.weight")?;
    import.copy_if_present("wpe.weight", "positions.table")?;
    for layer in 0..import.num_layers("h.") {
        let (from, to) = (format!("h.{layer}"), format!("layers.{layer}"));
        for (name, to_name) in [
            ("attn.c_attn", "attention"),
            ("attn.c_proj", "attention.output"),
            ("mlp.c_fc", "feed_forward.inner"),
            ("mlp.c_proj", "feed_forward.outer"),
        ] {
            let [weight, bias] = ["weight", "bias"].map(|part| format!("{from}.{name}.{part}"));
            if is_conv1d {
                let as_linear = transpose(import.from.take(&weight)?)?;
                import.from.tensors.insert(weight.clone(), as_linear);
            }
            match to_name {
                "attention" => import.projections(&weight, &bias, &format!("{to}.{to_name}"))?,
                _ => import.linear(&format!("{from}.{name}"), &format!("{to}.{to_name}"))?,
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

/// Removes the key prefixes of wrapper modules.
fn strip_wrappers(key: &str) -> String {
    let key = key.strip_prefix("_orig_mod.").unwrap_or(key);
    key.strip_prefix("transformer.").unwrap_or(key).to_owned()
}
