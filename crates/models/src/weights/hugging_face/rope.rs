//! Rotary positions of a `config.json`: `rope_parameters`, or `rope_theta` and `rope_scaling` of
//! files written by earlier versions of transformers.

use serde_json::json;
use zoo_spec::{Llama3Scaling, PairLayout, Rotary, RotaryScaling, ScalingFactor, YarnScaling};

use super::json::Keys;
use crate::ModelError;

const DEFAULT_THETA: f64 = 10_000.0;

/// Reads the rotary positions of a model with this context.
pub(super) fn rotary(config: &mut Keys, context: usize) -> Result<Rotary, ModelError> {
    // In files of earlier versions, beside the scaling.
    let own_theta = config.number("rope_theta")?;
    let scaling = config.object("rope_scaling")?;
    let parameters = config.object("rope_parameters")?;
    if scaling.is_some() && parameters.is_some() {
        let got = "both";
        return Err(config.unsupported("rope_scaling", "absent beside rope_parameters", got));
    }
    let mut theta = own_theta;
    let scaling = match parameters.or(scaling) {
        None => RotaryScaling::None,
        Some(mut keys) => {
            theta = keys.number("rope_theta")?.or(theta);
            keys.only("partial_rotary_factor", &json!(1.0))?;
            let scaling = read_scaling(&mut keys, context)?;
            keys.finish(&[])?;
            scaling
        }
    };
    config.only("partial_rotary_factor", &json!(1.0))?;
    // A factor of 1 is the default, and Llama's pairs are halves.
    let theta = theta.unwrap_or(DEFAULT_THETA);
    Ok(Rotary::new(theta)
        .with_layout(PairLayout::Halves)
        .with_scaling(scaling))
}

fn read_scaling(keys: &mut Keys, context: usize) -> Result<RotaryScaling, ModelError> {
    let former = keys.text("type")?;
    let kind = keys.text("rope_type")?.or(former);
    Ok(match kind.as_deref().unwrap_or("default") {
        "default" => RotaryScaling::None,
        "linear" => RotaryScaling::Linear(ScalingFactor {
            factor: keys.required_number("factor")?,
        }),
        "yarn" => {
            // Factors of DeepSeek's models.
            for key in ["mscale", "mscale_all_dim"] {
                keys.only(key, &json!(null))?;
            }
            keys.only("truncate", &json!(true))?;
            let original = keys.count("original_max_position_embeddings")?;
            RotaryScaling::Yarn(YarnScaling {
                factor: keys.required_number("factor")?,
                original_context: original.unwrap_or(context),
                beta_fast: keys.number("beta_fast")?.unwrap_or(32.0),
                beta_slow: keys.number("beta_slow")?.unwrap_or(1.0),
                attention_factor: keys.number("attention_factor")?,
            })
        }
        "llama3" => RotaryScaling::Llama3(Llama3Scaling {
            factor: keys.required_number("factor")?,
            original_context: keys.required_count("original_max_position_embeddings")?,
            low_frequency_factor: keys.required_number("low_freq_factor")?,
            high_frequency_factor: keys.required_number("high_freq_factor")?,
        }),
        other => {
            let supported = "\"default\", \"linear\", \"yarn\" or \"llama3\"";
            return Err(keys.unsupported("rope_type", supported, &format!("{other:?}")));
        }
    })
}
