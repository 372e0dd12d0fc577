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
    match &config.model {
        Model::Transformer(model) => {
            let heads = Heads(model.into());
            heads.check_sizes(fit);
            for (key, mechanism, looks) in [
                (
                    "model.encoder_attention",
                    &model.encoder_attention,
                    Looks::BothWays,
                ),
                (
                    "model.decoder_attention",
                    &model.decoder_attention,
                    Looks::Back,
                ),
                (
                    "model.cross_attention",
                    &model.cross_attention,
                    Looks::Across,
                ),
            ] {
                heads.check(fit, key, mechanism, looks);
            }
            let mechanism = &model.decoder_attention;
            if let Err(reason) = mechanism.capabilities().decoding {
                let name = mechanism.mechanism();
                let why = format!("{name} cannot decode token by token: {reason}");
                fit.misfit(&["model.decoder_attention"], why);
            }
        }
        Model::Gpt(model) => {
            let heads = Heads(model.into());
            heads.check_sizes(fit);
            heads.check(fit, "model.attention", &model.attention, Looks::Back);
            match model.attention.capabilities().decoding {
                Err(reason) if config.validation.samples > 0 => {
                    let name = model.attention.mechanism();
                    let why = format!(
                        "{name} cannot decode token by token: {reason}; write \
                         validation.samples = 0 to train it without samples"
                    );
                    fit.misfit(&["model.attention"], why);
                }
                Ok(()) | Err(_) => {}
            }
        }
        Model::Classifier(model) => {
            let heads = Heads(model.into());
            heads.check_sizes(fit);
            heads.check(fit, "model.attention", &model.attention, Looks::BothWays);
        }
        Model::Seq2Seq(_) | Model::Han(_) => {}
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
        let own = mechanism.kv_heads(self.0.heads);
        if let Some(own) = own {
            if own == 0 || !self.0.heads.is_multiple_of(own) {
                let why = format!(
                    "heads = {} must be a multiple of kv_heads = {own}",
                    self.0.heads
                );
                fit.misfit(&[key], why);
            }
            if let Some(given) = self.0.kv_heads.filter(|given| *given != own) {
                let why =
                    format!("kv_heads = {given} was given to {word}, which has {own} of them");
                fit.misfit(&["model.kv_heads"], why);
            }
        }
        let (heads, fewer) = (
            self.0.heads,
            self.0.kv_heads.filter(|few| *few != self.0.heads),
        );
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
        for (option_key, option, is_asked_for, support) in [
            (
                "model.attention_dropout",
                "attention_dropout",
                has_dropout,
                options.dropout,
            ),
            ("model.positions", "alibi", is_alibi, options.alibi),
            (
                "model.temperature",
                "temperature",
                has_temperature,
                options.temperature,
            ),
            ("model.softcap", "softcap", has_softcap, options.softcap),
            (
                "model.entropy_penalty",
                "entropy_penalty",
                has_penalty,
                options.entropy,
            ),
        ] {
            if let (true, Err(reason)) = (is_asked_for, support) {
                let why = format!("{option} is not supported by {key} = {word}: {reason}");
                fit.misfit(&[option_key], why);
            }
        }
    }
}
