//! Whether each attention mechanism supports what the model needs of it.
//!
//! The models check the same at initialisation; this check reports the line of the config.

use zoo_spec::keys::InvalidValue;
use zoo_spec::{KvHeads, MechanismConfig};

use super::consistency::Checker;
use crate::{Config, LayerSpec, Model, PositionEncoding, Rotary};

/// The use of an attention layer.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Bidirectional,
    Causal,
    Cross,
}

/// What to do about a mechanism that only supports causal attention.
const CAUSAL_HELP: &str = "; set model.causal = true for causal attention";

/// Checks every attention layer of the model.
pub(super) fn check(checker: &mut Checker<'_>, config: &Config) {
    let Some(layers) = config.model.layer_spec() else {
        return;
    };
    let attentions = match &config.model {
        Model::Transformer(model) => vec![
            (
                "encoder_attention",
                model.encoder_attention.list(),
                Use::Bidirectional,
            ),
            (
                "decoder_attention",
                model.decoder_attention.list(),
                Use::Causal,
            ),
            (
                "cross_attention",
                std::slice::from_ref(&model.cross_attention),
                Use::Cross,
            ),
        ],
        Model::Gpt(model) => vec![("attention", model.attention.list(), Use::Causal)],
        Model::Classifier(model) if model.causal => {
            vec![("attention", model.attention.list(), Use::Causal)]
        }
        Model::Classifier(model) => {
            vec![("attention", model.attention.list(), Use::Bidirectional)]
        }
        Model::Seq2Seq(_) | Model::Han(_) => vec![],
    };
    let uses = attentions
        .iter()
        .flat_map(|(_, list, usage)| list.iter().map(|one| (one, *usage)));
    check_sizes(checker, &layers, &uses.collect::<Vec<_>>());
    let is_gpt = matches!(config.model, Model::Gpt(_));
    let is_classifier = matches!(config.model, Model::Classifier(_));
    let attentions = attentions.into_iter();
    let attentions = attentions.flat_map(|(key, list, usage)| {
        // Repetitions would be reported several times.
        let is_first = |i: &usize| !list[..*i].contains(&list[*i]);
        let distinct = (0..list.len()).filter(is_first);
        distinct.map(move |i| (key, &list[i], usage))
    });
    for (key, mechanism, usage) in attentions {
        let key = format!("model.{key}");
        let is_causal = mechanism.capabilities().causal.is_ok();
        if is_classifier && is_causal && usage == Use::Bidirectional {
            check_layer(checker, &layers, &key, mechanism, usage, CAUSAL_HELP);
        } else {
            check_layer(checker, &layers, &key, mechanism, usage, "");
        }
        // A GPT can be trained without decoding, and a classifier never decodes.
        let decodes = !is_classifier && (!is_gpt || config.validation.samples > 0);
        let must_decode = usage == Use::Causal && decodes;
        if let (true, Err(reason)) = (must_decode, mechanism.capabilities().decoding) {
            let help = if is_gpt {
                "; set validation.samples = 0 to train without generating samples"
            } else {
                ""
            };
            let name = mechanism.mechanism();
            let why = format!("{name} cannot decode token by token: {reason}{help}");
            checker.report(&[&key], why);
        }
    }
}

fn check_sizes(
    checker: &mut Checker<'_>,
    layers: &LayerSpec,
    attentions: &[(&MechanismConfig, Use)],
) {
    let (d_model, n_heads) = (layers.d_model, layers.n_heads);
    let d_head = match layers.d_head {
        Some(d_head) => d_head,
        None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
        None => {
            let why = format!(
                "d_model = {d_model} must be a multiple of n_heads = {n_heads}, or d_head must be set"
            );
            return checker.report(&["model.n_heads", "model.d_model"], why);
        }
    };
    if let PositionEncoding::Rotary(rotary) = layers.positions {
        let mut rotated = Vec::new();
        for (mechanism, _) in attentions.iter().filter(|(_, usage)| *usage != Use::Cross) {
            let name = match mechanism {
                MechanismConfig::Mla(_) => "rope",
                _ => "d_head",
            };
            let elements = (name, mechanism.rotary_width(d_head));
            if !rotated.contains(&elements) {
                rotated.push(elements);
                check_rotary(checker, &rotary, elements);
            }
        }
    }
    if let Some(n_heads_kv) = layers.n_heads_kv
        && !n_heads.is_multiple_of(n_heads_kv)
    {
        let why = format!("n_heads = {n_heads} must be a multiple of n_heads_kv = {n_heads_kv}");
        checker.report(&["model.n_heads_kv"], why);
    }
}

/// `name` is what determines the number of elements.
fn check_rotary(checker: &mut Checker<'_>, rotary: &Rotary, (name, count): (&str, usize)) {
    if rotary.fraction == 1.0 && !count.is_multiple_of(2) {
        let why = format!("rotary requires an even {name}, found {count}");
        checker.report(&["model.positions"], why);
    } else if let Err(InvalidValue { key, allowed, got }) = rotary.check(count) {
        let key = format!("model.positions.{key}");
        checker.require(&[&key], false, &allowed, got);
    }
}

fn check_layer(
    checker: &mut Checker<'_>,
    layers: &LayerSpec,
    key: &str,
    mechanism: &MechanismConfig,
    usage: Use,
    help: &str,
) {
    let name = mechanism.mechanism();
    let capabilities = mechanism.capabilities();
    let (what, support) = match usage {
        Use::Bidirectional => ("bidirectional attention", capabilities.bidirectional),
        Use::Causal => ("causal attention", capabilities.causal),
        Use::Cross => ("cross-attention", capabilities.cross_attention),
    };
    if let Err(reason) = support {
        let why = format!("{name} cannot be used for {what}: {reason}{help}");
        return checker.report(&[key], why);
    }
    let (n_heads, n_heads_kv) = (layers.n_heads, layers.n_heads_kv);
    if let Some(own) = mechanism.kv_heads(n_heads) {
        if own == 0 || !n_heads.is_multiple_of(own) {
            let why = format!("n_heads = {n_heads} must be a multiple of n_heads_kv = {own}");
            checker.report(&[key], why);
        }
        if let Some(n_heads_kv) = n_heads_kv.filter(|n_heads_kv| *n_heads_kv != own) {
            let why = format!("{name} requires n_heads_kv = {own}, found {n_heads_kv}");
            checker.report(&["model.n_heads_kv"], why);
        }
    }
    let fewer = n_heads_kv.filter(|n_heads_kv| *n_heads_kv != n_heads);
    if let (KvHeads::FromQueries, Some(n_heads_kv)) = (capabilities.kv_heads, fewer) {
        let why = format!(
            "{name} uses its queries as keys, so n_heads_kv = {n_heads_kv} must equal n_heads = {n_heads}"
        );
        checker.report(&["model.n_heads_kv"], why);
    }
    let divides = layers.d_model.is_multiple_of(n_heads);
    let d_head = layers.d_head.or(divides.then(|| layers.d_model / n_heads));
    if let (Some(d_head), Err(reason)) = (d_head, capabilities.odd_d_head)
        && !d_head.is_multiple_of(2)
    {
        let why = format!("{name} requires an even d_head, found {d_head}: {reason}");
        checker.report(&[key], why);
    }
    let is_alibi = layers.positions == PositionEncoding::Alibi && usage != Use::Cross;
    let has_dropout = layers.attention_dropout > 0.0;
    let has_temperature = layers.temperature != 1.0;
    let has_penalty = layers.entropy_penalty != 0.0;
    let has_softcap = layers.softcap.is_some();
    let options = capabilities.options;
    for (option, is_requested, support) in [
        ("attention_dropout", has_dropout, options.dropout),
        ("alibi", is_alibi, options.alibi),
        ("temperature", has_temperature, options.temperature),
        ("softcap", has_softcap, options.softcap),
        ("entropy_penalty", has_penalty, options.entropy),
    ] {
        if let (true, Err(reason)) = (is_requested, support) {
            let option_key = match option {
                "alibi" => "model.positions".to_owned(),
                option => format!("model.{option}"),
            };
            let why = format!("{option} is not supported by {key} = {name}: {reason}");
            checker.report(&[&option_key], why);
        }
    }
}
