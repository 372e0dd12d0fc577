//! Whether attention can be what a file asks for, in its place.
//!
//! The models refuse the same, but only once they are made; here a line can be named.

use zoo_spec::{KvHeads, MechanismConfig};

use super::fit::Fit;
use crate::{Config, LayerSpec, Model, PositionEncoding};

/// What an attention looks at.
#[derive(Clone, Copy, PartialEq)]
enum Looks {
    BothWays,
    Back,
    Across,
}

/// Checks every attention of the model.
pub(super) fn check(fit: &mut Fit<'_>, config: &Config) {
    let Some(layers) = config.model.layer_spec() else {
        return;
    };
    let heads = Heads(layers);
    heads.check_sizes(fit);
    // The attention that decodes, and what to do where it cannot.
    let mut decodes = None;
    match &config.model {
        Model::Transformer(model) => {
            let encoder = &model.encoder_attention;
            heads.check(fit, "model.encoder_attention", encoder, Looks::BothWays);
            let decoder = &model.decoder_attention;
            heads.check(fit, "model.decoder_attention", decoder, Looks::Back);
            let cross = &model.cross_attention;
            heads.check(fit, "model.cross_attention", cross, Looks::Across);
            decodes = Some(("model.decoder_attention", decoder, ""));
        }
        Model::Gpt(model) => {
            heads.check(fit, "model.attention", &model.attention, Looks::Back);
            let help = "; write validation.samples = 0 to train it without samples";
            if config.validation.samples > 0 {
                decodes = Some(("model.attention", &model.attention, help));
            }
        }
        Model::Classifier(model) => {
            heads.check(fit, "model.attention", &model.attention, Looks::BothWays);
        }
        Model::Seq2Seq(_) | Model::Han(_) => {}
    }
    if let Some((key, mechanism, help)) = decodes
        && let Err(reason) = mechanism.capabilities().decoding
    {
        let name = mechanism.mechanism();
        let why = format!("{name} cannot decode token by token: {reason}{help}");
        fit.misfit(&[key], why);
    }
}

/// The layers whose attention is checked.
struct Heads(LayerSpec);

impl Heads {
    fn check_sizes(&self, fit: &mut Fit<'_>) {
        let LayerSpec { d_model, heads, .. } = self.0;
        let d_head = match self.0.d_head {
            Some(d_head) => d_head,
            None if d_model.is_multiple_of(heads) => d_model / heads,
            None => {
                let why = format!(
                    "d_model = {d_model} must be a multiple of heads = {heads}, or d_head must be \
                     given"
                );
                fit.misfit(&["model.heads", "model.d_model"], why);
                return;
            }
        };
        if matches!(self.0.positions, PositionEncoding::Rotary(_)) && !d_head.is_multiple_of(2) {
            let why = format!("rotary turns pairs of numbers: d_head = {d_head} must be even");
            fit.misfit(&["model.positions"], why);
        }
        if let Some(kv_heads) = self.0.kv_heads.filter(|few| !heads.is_multiple_of(*few)) {
            let why = format!("heads = {heads} must be a multiple of kv_heads = {kv_heads}");
            fit.misfit(&["model.kv_heads"], why);
        }
    }

    fn check(&self, fit: &mut Fit<'_>, key: &str, mechanism: &MechanismConfig, looks: Looks) {
        let word = mechanism.mechanism();
        let capabilities = mechanism.capabilities();
        let (what, support) = match looks {
            Looks::BothWays => ("bidirectional attention", capabilities.bidirectional),
            Looks::Back => ("causal attention", Ok(())),
            Looks::Across => ("cross-attention", capabilities.cross_attention),
        };
        if let Err(reason) = support {
            let why = format!("{word} cannot be used for {what}: {reason}");
            fit.misfit(&[key], why);
            return;
        }
        let LayerSpec {
            heads, kv_heads, ..
        } = self.0;
        if let Some(own) = mechanism.kv_heads(heads) {
            if own == 0 || !heads.is_multiple_of(own) {
                let why = format!("heads = {heads} must be a multiple of kv_heads = {own}");
                fit.misfit(&[key], why);
            }
            if let Some(given) = kv_heads.filter(|given| *given != own) {
                let why =
                    format!("kv_heads = {given} was given to {word}, which has {own} of them");
                fit.misfit(&["model.kv_heads"], why);
            }
        }
        let fewer = kv_heads.filter(|few| *few != heads);
        if let (KvHeads::FromQueries, Some(kv_heads)) = (capabilities.kv_heads, fewer) {
            let why = format!(
                "{word} uses its queries as keys: kv_heads = {kv_heads} must be heads = {heads}"
            );
            fit.misfit(&["model.kv_heads"], why);
        }
        let is_alibi = self.0.positions == PositionEncoding::Alibi && looks != Looks::Across;
        let has_dropout = self.0.attention_dropout > 0.0;
        let has_temperature = self.0.temperature != 1.0;
        let has_penalty = self.0.entropy_penalty != 0.0;
        let has_softcap = self.0.softcap.is_some();
        let options = capabilities.options;
        for (option, is_asked_for, support) in [
            ("attention_dropout", has_dropout, options.dropout),
            ("alibi", is_alibi, options.alibi),
            ("temperature", has_temperature, options.temperature),
            ("softcap", has_softcap, options.softcap),
            ("entropy_penalty", has_penalty, options.entropy),
        ] {
            if let (true, Err(reason)) = (is_asked_for, support) {
                let option_key = match option {
                    "alibi" => "model.positions".to_owned(),
                    option => format!("model.{option}"),
                };
                let why = format!("{option} is not supported by {key} = {word}: {reason}");
                fit.misfit(&[&option_key], why);
            }
        }
    }
}
