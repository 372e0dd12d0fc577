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
        let learned = format!("{positions}.weight");
        if import.has(&learned) {
            import.keep(&learned, &format!("{positions}.table"))?;
        }
    }
    for half in ["encoder", "decoder"] {
        let from = format!("transformer.{half}");
        for layer in 0..import.layers(&format!("{from}.layers.")) {
            let from = format!("{from}.layers.{layer}");
            let to = format!("{half}.layers.{layer}");
            let at = |name: &str| [format!("{from}.{name}"), format!("{to}.{name}")];
            let part = |from_name: &str, to_name: &str| {
                let ([from, _], [_, to]) = (at(from_name), at(to_name));
                [from, to]
            };
            let [own, to] = part("self_attn", "attention");
            import.multi_head(&own, &to)?;
            let [norm, to] = part("norm1", "attention_norm");
            import.norm(&norm, &to)?;
            let last_norm = match half {
                "decoder" => {
                    let [across, to] = part("multihead_attn", "cross_attention");
                    import.multi_head(&across, &to)?;
                    let [norm, to] = part("norm2", "cross_attention_norm");
                    import.norm(&norm, &to)?;
                    "norm3"
                }
                _ => "norm2",
            };
            for (from_name, to_name) in [
                ("linear1", "feed_forward.inner"),
                ("linear2", "feed_forward.outer"),
            ] {
                let [from, to] = part(from_name, to_name);
                import.linear(&from, &to)?;
            }
            let [norm, to] = part(last_norm, "feed_forward_norm");
            import.norm(&norm, &to)?;
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
