//! The tensors of each family: their names in a file, their shapes, and the parameters they become.
//!
//! `nn.Linear` stores `[out_features, in_features]`, the transpose of a parameter here; GPT-2's
//! `Conv1D` stores `[in_features, out_features]`.

use std::collections::BTreeMap;

use burn::tensor::DType;
use zoo_spec::GptSpec;

use super::Family;
use crate::weights::import::{split_columns, transpose};
use crate::weights::{NamedTensor, Weights};
use crate::{GptConfig, ModelError};

/// A tensor of a file.
struct Entry {
    /// Name in the file, without the prefix of the language model.
    name: String,
    shape: Vec<usize>,
    parameter: Parameter,
}

/// What a tensor becomes.
enum Parameter {
    Same(String),
    Transposed(String),
    /// Query, key and value projections beside each other: the name of the attention, and `weight` or
    /// `bias`.
    Projections(String, &'static str),
}

/// Converts the tensors of a file to the parameters of a [`Gpt`](crate::Gpt).
pub(super) fn convert(
    weights: Weights,
    family: Family,
    config: &GptConfig,
) -> Result<Weights, ModelError> {
    let mut weights = weights.map_keys(|key| {
        let key = key.strip_prefix(family.prefix()).unwrap_or(key);
        key.to_owned()
    })?;
    weights.tensors.retain(|key, _| !is_buffer(family, key));
    discard_tied_head(&mut weights, family, config)?;
    let mut to = BTreeMap::new();
    for entry in entries(family, config) {
        let Some(tensor) = weights.tensors.remove(&entry.name) else {
            let names = entries(family, config).map(|entry| entry.name);
            return Err(weights.missing(&entry.name, &names.collect()));
        };
        check(&tensor, &entry)?;
        match entry.parameter {
            Parameter::Same(parameter) => {
                to.insert(parameter, tensor);
            }
            Parameter::Transposed(parameter) => {
                to.insert(parameter, transpose(tensor)?);
            }
            Parameter::Projections(attention, kind) => {
                let parts = ["query", "key", "value"].into_iter();
                for (part, tensor) in parts.zip(split_columns(&tensor, 3)?) {
                    to.insert(format!("{attention}.{part}.{kind}"), tensor);
                }
            }
        }
    }
    weights.check_all_used()?;
    Ok(Weights { tensors: to })
}

/// Masks and frequencies that earlier versions saved.
fn is_buffer(family: Family, key: &str) -> bool {
    match family {
        Family::Gpt2 => key.ends_with(".attn.bias") || key.ends_with(".attn.masked_bias"),
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => {
            key.ends_with(".self_attn.rotary_emb.inv_freq")
        }
    }
}

/// Drops the copy of a tied embedding; an error if it is no copy.
fn discard_tied_head(
    weights: &mut Weights,
    family: Family,
    config: &GptConfig,
) -> Result<(), ModelError> {
    if !config.spec.tie_embeddings {
        return Ok(());
    }
    let Some(head) = weights.tensors.remove(HEAD) else {
        return Ok(());
    };
    match weights.get(family.embedding()) {
        Some(embedding) if *embedding != head.data => Err(ModelError::Tensor {
            key: HEAD.to_owned(),
            expected: format!(
                "the elements of {}, as tie_word_embeddings is true",
                family.embedding()
            ),
            got: "others".to_owned(),
            help: "set tie_word_embeddings in config.json to false if the model was trained so",
        }),
        _ => Ok(()),
    }
}

fn check(tensor: &NamedTensor, entry: &Entry) -> Result<(), ModelError> {
    let mismatch = |expected, got, help| ModelError::Tensor {
        key: tensor.origin.clone(),
        expected,
        got,
        help,
    };
    let (dtype, shape) = (tensor.data.dtype(), tensor.data.shape().to_vec());
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        let help = "convert the weights before saving them";
        let expected = "dtype f32, f16 or bf16".to_owned();
        return Err(mismatch(expected, format!("{dtype:?}"), help));
    }
    if shape != entry.shape {
        let help = "use the config.json that was saved with these weights";
        let expected = format!("shape {:?}", entry.shape);
        return Err(mismatch(expected, format!("{shape:?}"), help));
    }
    Ok(())
}

const HEAD: &str = "lm_head.weight";

impl Family {
    /// Prefix of all tensors except the head's.
    fn prefix(self) -> &'static str {
        match self {
            Self::Gpt2 => "transformer.",
            Self::Llama | Self::Mistral | Self::Qwen2 | Self::Qwen3 => "model.",
        }
    }

    fn embedding(self) -> &'static str {
        match self {
            Self::Gpt2 => "wte.weight",
            Self::Llama | Self::Mistral | Self::Qwen2 | Self::Qwen3 => "embed_tokens.weight",
        }
    }
}

/// All tensors of a model.
fn entries(family: Family, config: &GptConfig) -> impl Iterator<Item = Entry> {
    let layers =
        (0..config.spec.layers).flat_map(move |layer| in_layer(family, &config.spec, layer));
    global(family, config).chain(layers)
}

/// Tensors outside of the layers.
fn global(family: Family, config: &GptConfig) -> impl Iterator<Item = Entry> + use<> {
    let GptConfig { vocabulary, spec } = config;
    let table = vec![*vocabulary, spec.d_model];
    let mut entries = vec![same(family.embedding(), table.clone(), "embedding.weight")];
    match family {
        Family::Gpt2 => {
            let positions = vec![spec.context, spec.d_model];
            entries.push(same("wpe.weight", positions, "positions.table"));
            entries.push(same("ln_f.weight", vec![spec.d_model], "norm.gamma"));
            entries.push(same("ln_f.bias", vec![spec.d_model], "norm.beta"));
        }
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => {
            entries.push(same("norm.weight", vec![spec.d_model], "norm.gamma"));
        }
    }
    if !spec.tie_embeddings {
        entries.push(transposed(HEAD, table, "head.weight"));
    }
    entries.into_iter()
}

/// Tensors of a layer.
fn in_layer(family: Family, spec: &GptSpec, layer: usize) -> Vec<Entry> {
    let (entries, from) = match family {
        Family::Gpt2 => (gpt2_layer(spec), format!("h.{layer}.")),
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => {
            (llama_layer(spec), format!("layers.{layer}."))
        }
    };
    let to = |name: String| format!("layers.{layer}.{name}");
    let in_layer = |entry: Entry| Entry {
        name: from.clone() + &entry.name,
        shape: entry.shape,
        parameter: match entry.parameter {
            Parameter::Same(name) => Parameter::Same(to(name)),
            Parameter::Transposed(name) => Parameter::Transposed(to(name)),
            Parameter::Projections(name, kind) => Parameter::Projections(to(name), kind),
        },
    };
    entries.into_iter().map(in_layer).collect()
}

fn gpt2_layer(spec: &GptSpec) -> Vec<Entry> {
    let d = spec.d_model;
    let inner = spec.d_feed_forward.unwrap_or(4 * d);
    let projections = |kind| Parameter::Projections("attention".to_owned(), kind);
    let entry = |name: &str, shape, parameter| Entry {
        name: name.to_owned(),
        shape,
        parameter,
    };
    vec![
        same("ln_1.weight", vec![d], "attention_norm.gamma"),
        same("ln_1.bias", vec![d], "attention_norm.beta"),
        entry("attn.c_attn.weight", vec![d, 3 * d], projections("weight")),
        entry("attn.c_attn.bias", vec![3 * d], projections("bias")),
        same("attn.c_proj.weight", vec![d, d], "attention.output.weight"),
        same("attn.c_proj.bias", vec![d], "attention.output.bias"),
        same("ln_2.weight", vec![d], "feed_forward_norm.gamma"),
        same("ln_2.bias", vec![d], "feed_forward_norm.beta"),
        same(
            "mlp.c_fc.weight",
            vec![d, inner],
            "feed_forward.inner.weight",
        ),
        same("mlp.c_fc.bias", vec![inner], "feed_forward.inner.bias"),
        same(
            "mlp.c_proj.weight",
            vec![inner, d],
            "feed_forward.outer.weight",
        ),
        same("mlp.c_proj.bias", vec![d], "feed_forward.outer.bias"),
    ]
}

fn llama_layer(spec: &GptSpec) -> Vec<Entry> {
    let d = spec.d_model;
    let d_head = spec.d_head.unwrap_or(d / spec.n_heads);
    let queries = spec.n_heads * d_head;
    let keys = spec.n_heads_kv.unwrap_or(spec.n_heads) * d_head;
    let inner = spec.d_feed_forward.unwrap_or(4 * d);
    let mut entries = vec![
        same("input_layernorm.weight", vec![d], "attention_norm.gamma"),
        same(
            "post_attention_layernorm.weight",
            vec![d],
            "feed_forward_norm.gamma",
        ),
        transposed(
            "mlp.gate_proj.weight",
            vec![inner, d],
            "feed_forward.gate.weight",
        ),
        transposed(
            "mlp.up_proj.weight",
            vec![inner, d],
            "feed_forward.inner.weight",
        ),
        transposed(
            "mlp.down_proj.weight",
            vec![d, inner],
            "feed_forward.outer.weight",
        ),
        transposed(
            "self_attn.o_proj.weight",
            vec![d, queries],
            "attention.output.weight",
        ),
    ];
    for (from, to, width) in [
        ("q", "query", queries),
        ("k", "key", keys),
        ("v", "value", keys),
    ] {
        let from = format!("self_attn.{from}_proj");
        let to = format!("attention.{to}");
        entries.push(transposed(
            &format!("{from}.weight"),
            vec![width, d],
            &format!("{to}.weight"),
        ));
        if spec.qkv_bias.unwrap_or(spec.bias) {
            entries.push(same(
                &format!("{from}.bias"),
                vec![width],
                &format!("{to}.bias"),
            ));
        }
    }
    if spec.qk_norm {
        entries.push(same(
            "self_attn.q_norm.weight",
            vec![d_head],
            "attention.query_norm.gamma",
        ));
        entries.push(same(
            "self_attn.k_norm.weight",
            vec![d_head],
            "attention.key_norm.gamma",
        ));
    }
    entries
}

fn same(name: &str, shape: Vec<usize>, parameter: &str) -> Entry {
    Entry {
        name: name.to_owned(),
        shape,
        parameter: Parameter::Same(parameter.to_owned()),
    }
}

fn transposed(name: &str, shape: Vec<usize>, parameter: &str) -> Entry {
    Entry {
        name: name.to_owned(),
        shape,
        parameter: Parameter::Transposed(parameter.to_owned()),
    }
}
