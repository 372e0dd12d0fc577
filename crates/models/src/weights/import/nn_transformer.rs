//! PyTorch's `nn.Transformer`.

use super::{Import, are_equal};
use crate::weights::{Weights, WeightsError};

/// The weights of a [`Transformer`](crate::Transformer) from those of an `nn.Transformer`
/// that is called `transformer`, between embeddings called `source_embedding` and
/// `target_embedding` and a linear layer called `output`.
///
/// Learned positions are embeddings called `source_positions` and `target_positions`. Where
/// the output has no bias and is the target's embedding again, it is left out, and so is then
/// a source's embedding that is the target's: the model must be [tied](crate::Tying) likewise.
///
/// # Errors
///
/// [`WeightsError`] if a tensor is missing, cannot be cut, or belongs nowhere.
pub fn nn_transformer(weights: Weights) -> Result<Weights, WeightsError> {
    let mut import = Import::new(weights);
    let embeddings = ["source", "target"].map(|side| format!("{side}_embedding.weight"));
    let [source, target] = &embeddings;
    let of = |key: &str| import.from.get(key);
    let output_is_target = are_equal(of("output.weight"), of(target)) && !import.has("output.bias");
    // With an output of its own, a model has both embeddings, though they may be equal.
    let source_is_target = output_is_target && are_equal(of(source), of(target));
    import.leave_out(|key| {
        (source_is_target && key == source) || (output_is_target && key == "output.weight")
    });
    for (side, embedding) in ["source", "target"].iter().zip(&embeddings) {
        if !(source_is_target && embedding == source) {
            import.keep(embedding, embedding)?;
        }
        let positions = format!("{side}_positions");
        import.keep_any(
            &format!("{positions}.weight"),
            &format!("{positions}.table"),
        )?;
    }
    for half in ["encoder", "decoder"] {
        let from = format!("transformer.{half}");
        for layer in 0..import.layers(&format!("{from}.layers.")) {
            let part = |from_name: &str, to_name: &str| {
                let to = format!("{half}.layers.{layer}.{to_name}");
                [format!("{from}.layers.{layer}.{from_name}"), to]
            };
            let all = [
                ("self_attn", "attention"),
                ("multihead_attn", "cross_attention"),
            ];
            let (attentions, last_norm) = match half {
                "decoder" => (&all[..], "norm3"),
                _ => (&all[..1], "norm2"),
            };
            for (at, (own, name)) in attentions.iter().enumerate() {
                let [from, to] = part(own, name);
                import.multi_head(&from, &to)?;
                let [from, to] = part(&format!("norm{}", at + 1), &format!("{name}_norm"));
                import.norm(&from, &to)?;
            }
            for (own, name) in [
                ("linear1", "feed_forward.inner"),
                ("linear2", "feed_forward.outer"),
            ] {
                let [from, to] = part(own, name);
                import.linear(&from, &to)?;
            }
            let [from, to] = part(last_norm, "feed_forward_norm");
            import.norm(&from, &to)?;
        }
        if import.has(&format!("{from}.norm.weight")) {
            import.norm(&format!("{from}.norm"), &format!("{half}.norm"))?;
        }
    }
    if import.has("output.weight") {
        import.linear("output", "head")?;
    }
    import.finish()
}
