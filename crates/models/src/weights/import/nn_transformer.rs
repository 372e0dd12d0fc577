//! PyTorch's `nn.Transformer`.

use super::Import;
use crate::ModelError;
use crate::weights::Weights;

/// Converts the weights of an `nn.Transformer` named `transformer`, with embeddings
/// `source_embedding` and `target_embedding` and a linear layer `output`, to those of a
/// [`Transformer`](crate::Transformer).
///
/// Learned positions are embeddings `source_positions` and `target_positions`. An output without
/// bias that equals the target embedding is dropped, and then also a source embedding that equals
/// it; the model must be [tied](crate::Tying) likewise.
///
/// # Errors
///
/// [`ModelError`] if a key is missing or unexpected, or a tensor cannot be split.
pub fn nn_transformer(weights: Weights) -> Result<Weights, ModelError> {
    let mut import = Import::new(weights);
    let embeddings = ["source", "target"].map(|side| format!("{side}_embedding.weight"));
    let [source, target] = &embeddings;
    let output_is_target = import.are_equal("output.weight", target) && !import.has("output.bias");
    // An untied output implies both embeddings, even if they are equal.
    let source_is_target = output_is_target && import.are_equal(source, target);
    import.discard(|key| {
        (source_is_target && key == source) || (output_is_target && key == "output.weight")
    });
    for (side, embedding) in ["source", "target"].iter().zip(&embeddings) {
        if !(source_is_target && embedding == source) {
            import.copy(embedding, embedding)?;
        }
        let [from, to] = ["weight", "table"].map(|part| format!("{side}_positions.{part}"));
        import.copy_if_present(&from, &to)?;
    }
    for half in ["encoder", "decoder"] {
        let from = format!("transformer.{half}");
        for layer in 0..import.num_layers(&format!("{from}.layers.")) {
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
            for (i, (from_name, name)) in attentions.iter().enumerate() {
                let [from, to] = part(from_name, name);
                import.multi_head(&from, &to)?;
                let [from, to] = part(&format!("norm{}", i + 1), &format!("{name}_norm"));
                import.norm(&from, &to)?;
            }
            for (from_name, to_name) in [
                ("linear1", "feed_forward.inner"),
                ("linear2", "feed_forward.outer"),
            ] {
                let [from, to] = part(from_name, to_name);
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
