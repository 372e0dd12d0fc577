//! `config.json` to the config of a [`Gpt`](crate::Gpt).
//!
//! A key with an effect on the output is either translated, or its value must be the one that this
//! crate computes. Keys of training and of the Python library are listed in [`IGNORED`]; any other
//! key is an error.

use serde_json::{Value, json};
use zoo_spec::{
    Activation, GptSpec, LayerMechanisms, Mechanism, MechanismConfig, PositionEncoding,
    SlidingWindow,
};

use super::Family;
use super::json::Keys;
use super::rope::rotary;
use crate::{GptConfig, ModelError};

/// Keys without an effect on the logits: of training, of heads for other tasks, of the Python
/// library, and defaults of generation, which has options of its own here.
const IGNORED: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "attention_dropout",
    "attn_pdrop",
    "bos_token_id",
    "chunk_size_feed_forward",
    "do_sample",
    "dtype",
    "embd_pdrop",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "n_ctx",
    "num_beams",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "reorder_and_upcast_attn",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
];

/// Keys of which one value is implemented.
fn check_constants(keys: &mut Keys) -> Result<(), ModelError> {
    for (key, supported) in [
        ("add_cross_attention", json!(false)),
        ("is_encoder_decoder", json!(false)),
        ("quantization_config", json!(null)),
        ("rope_interleaved", json!(false)),
        ("scale_attn_by_inverse_layer_idx", json!(false)),
        ("scale_attn_weights", json!(true)),
        ("use_mrope", json!(false)),
    ] {
        keys.only(key, &supported)?;
    }
    Ok(())
}

/// The model's family, its config and its end tokens.
pub(super) fn parse(keys: Keys) -> Result<(Family, GptConfig, Vec<u64>), ModelError> {
    let mut keys = keys;
    let family = family(&mut keys)?;
    check_architecture(&mut keys, family)?;
    check_constants(&mut keys)?;
    let vocabulary = keys.required_count("vocab_size")?;
    let spec = match family {
        Family::Gpt2 => gpt2(&mut keys)?,
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => {
            llama(&mut keys, family)?
        }
    };
    let ends = keys.ids("eos_token_id")?.unwrap_or_default();
    keys.finish(IGNORED)?;
    Ok((family, GptConfig { vocabulary, spec }, ends))
}

fn family(keys: &mut Keys) -> Result<Family, ModelError> {
    let Some(name) = keys.text("model_type")? else {
        return Err(keys.missing("model_type"));
    };
    let known = Family::ALL.into_iter().find(|family| family.name() == name);
    known.ok_or_else(|| {
        let names = Family::ALL.map(Family::name).join(", ");
        let help = "models of other architectures cannot be loaded";
        keys.error(
            "model_type",
            &format!("one of {names}"),
            &format!("{name:?}"),
            help,
        )
    })
}

/// The file must be that of a language model, not of a classifier on top of it.
fn check_architecture(keys: &mut Keys, family: Family) -> Result<(), ModelError> {
    let architectures = keys.texts("architectures")?.unwrap_or_default();
    let expected = family.architecture();
    match architectures.iter().find(|name| *name != expected) {
        None => Ok(()),
        Some(other) => Err(keys.unsupported(
            "architectures",
            &format!("[{expected:?}]"),
            &format!("[{other:?}]"),
        )),
    }
}

fn gpt2(keys: &mut Keys) -> Result<GptSpec, ModelError> {
    let context = keys.required_count("n_positions")?;
    let name = keys.text("activation_function")?;
    let activation = match name.as_deref().unwrap_or("gelu_new") {
        "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
        "gelu" => Activation::Gelu,
        "relu" => Activation::Relu,
        other => {
            let supported = "\"gelu_new\", \"gelu_pytorch_tanh\", \"gelu\" or \"relu\"";
            let got = format!("{other:?}");
            return Err(keys.unsupported("activation_function", supported, &got));
        }
    };
    Ok(GptSpec {
        d_model: keys.required_count("n_embd")?,
        n_heads: keys.required_count("n_head")?,
        layers: keys.required_count("n_layer")?,
        context,
        d_feed_forward: keys.count("n_inner")?,
        activation,
        positions: PositionEncoding::learned(context),
        epsilon: keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        tie_embeddings: keys.boolean("tie_word_embeddings")?.unwrap_or(true),
        ..GptSpec::default()
    })
}

/// Llama's architecture: RMS norm, SwiGLU, rotary positions and grouped queries.
fn llama(keys: &mut Keys, family: Family) -> Result<GptSpec, ModelError> {
    let context = keys.required_count("max_position_embeddings")?;
    let layers = keys.required_count("num_hidden_layers")?;
    let n_heads = keys.required_count("num_attention_heads")?;
    keys.only("hidden_act", &json!("silu"))?;
    let n_heads_kv = match family {
        Family::Llama => keys.count("num_key_value_heads")?,
        Family::Gpt2 | Family::Mistral | Family::Qwen2 | Family::Qwen3 => {
            Some(keys.required_count("num_key_value_heads")?)
        }
    };
    let d_head = match family {
        Family::Qwen3 => Some(keys.required_count("head_dim")?),
        Family::Gpt2 | Family::Llama | Family::Mistral | Family::Qwen2 => keys.count("head_dim")?,
    };
    // Biases of all projections of the attention, or of the feed-forward network.
    for key in ["attention_bias", "mlp_bias"] {
        keys.only(key, &json!(false))?;
    }
    Ok(GptSpec {
        d_model: keys.required_count("hidden_size")?,
        n_heads,
        n_heads_kv,
        d_head,
        layers,
        context,
        attention: attention(keys, family, layers)?,
        d_feed_forward: Some(keys.required_count("intermediate_size")?),
        activation: Activation::Swiglu,
        positions: PositionEncoding::Rotary(rotary(keys, context)?),
        rms_norm: true,
        qk_norm: family == Family::Qwen3,
        bias: false,
        qkv_bias: Some(family == Family::Qwen2),
        epsilon: keys.number("rms_norm_eps")?.unwrap_or(1e-6),
        tie_embeddings: keys.boolean("tie_word_embeddings")?.unwrap_or(false),
        ..GptSpec::default()
    })
}

/// The mechanism of each layer: all keys, or a sliding window.
fn attention(
    keys: &mut Keys,
    family: Family,
    layers: usize,
) -> Result<LayerMechanisms, ModelError> {
    let full = LayerMechanisms::from(Mechanism::Flash);
    match family {
        Family::Gpt2 | Family::Llama => Ok(full),
        Family::Mistral => Ok(match window(keys, Some(4096))? {
            Some(window) => MechanismConfig::from(window).into(),
            None => full,
        }),
        Family::Qwen2 | Family::Qwen3 => {
            let uses_window = keys.boolean("use_sliding_window")?.unwrap_or(false);
            let window = window(keys, Some(4096))?.filter(|_| uses_window);
            let first = keys.count("max_window_layers")?.unwrap_or(28);
            let types = keys.texts("layer_types")?;
            // As transformers derives them for files that do not list the layers.
            let derived = || {
                (0..layers)
                    .map(|layer| window.is_some() && layer >= first)
                    .collect()
            };
            let windowed: Vec<bool> = match types {
                None => derived(),
                Some(types) => layer_types(keys, &types, layers)?,
            };
            let mechanism = |windowed: &bool| match (windowed, window) {
                (false, _) => Ok(Mechanism::Flash.into()),
                (true, Some(window)) => Ok(window.into()),
                (true, None) => {
                    let key = "sliding_window";
                    Err(keys.unsupported(key, "set, for the layers with a window", "null"))
                }
            };
            if windowed.iter().all(|windowed| !windowed) {
                return Ok(full);
            }
            let list = windowed.iter().map(mechanism).collect::<Result<_, _>>()?;
            Ok(LayerMechanisms::repeating(list).unwrap_or(full))
        }
    }
}

/// Whether each layer has a sliding window.
fn layer_types(keys: &Keys, types: &[String], layers: usize) -> Result<Vec<bool>, ModelError> {
    if types.len() != layers {
        let expected = format!("a list of num_hidden_layers = {layers} types");
        return Err(keys.unsupported("layer_types", &expected, &format!("{} types", types.len())));
    }
    let is_windowed = |name: &String| match name.as_str() {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        other => {
            let supported = "a list of \"full_attention\" and \"sliding_attention\"";
            Err(keys.unsupported("layer_types", supported, &format!("{other:?}")))
        }
    };
    types.iter().map(is_windowed).collect()
}

/// The window of a query: `sliding_window` keys, with its own.
fn window(keys: &mut Keys, default: Option<usize>) -> Result<Option<SlidingWindow>, ModelError> {
    const KEY: &str = "sliding_window";
    let size = match keys.take_or_null(KEY) {
        None => default,
        Some(Value::Null) => None,
        Some(value) => match value.as_u64().and_then(|size| usize::try_from(size).ok()) {
            Some(size) if size > 0 => Some(size),
            _ => return Err(keys.unsupported(KEY, "at least 1", &value.to_string())),
        },
    };
    Ok(size.map(|size| SlidingWindow { window: size - 1 }))
}
