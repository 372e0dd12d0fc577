//! Whether attention can be what a file asks for, in its place.
//!
//! The models refuse the same, but only once they are made; here a line can be named.

use zoo_spec::{KvHeads, MechanismConfig};

use super::fit::Fit;
use crate::{Config, Model, Positions};

/// Sizes of attention, by the names all models have for them.
struct Heads<'a> {
    d_model: usize,
    heads: usize,
    kv_heads: Option<usize>,
    positions: &'a Positions,
    dropout: f64,
}

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
            let heads = Heads {
                d_model: model.d_model,
                heads: model.heads,
                kv_heads: model.kv_heads,
                positions: &model.positions,
                dropout: model.attention_dropout,
            };
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
            let heads = Heads {
                d_model: model.d_model,
                heads: model.heads,
                kv_heads: model.kv_heads,
                positions: &model.positions,
                dropout: model.attention_dropout,
            };
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
            let heads = Heads {
                d_model: model.d_model,
                heads: model.heads,
                kv_heads: model.kv_heads,
                positions: &model.positions,
                dropout: model.attention_dropout,
            };
            heads.check_sizes(fit);
            heads.check(fit, "model.attention", &model.attention, Looks::BothWays);
        }
        Model::Seq2Seq(_) | Model::Han(_) => {}
    }
}

impl Heads<'_> {
    fn check_sizes(&self, fit: &mut Fit<'_>) {
        let &Self { d_model, heads, .. } = self;
        if !d_model.is_multiple_of(heads) {
            let why = format!("d_model = {d_model} must be a multiple of heads = {heads}");
            fit.misfit(&["model.heads", "model.d_model"], why);
            return;
        }
        let d_head = d_model / heads;
        if matches!(self.positions, Positions::Rotary(_)) && !d_head.is_multiple_of(2) {
            let why =
                format!("rotary turns pairs of numbers: d_model / heads = {d_head} must be even");
            fit.misfit(&["model.positions"], why);
        }
        if let Some(kv_heads) = self.kv_heads.filter(|few| !heads.is_multiple_of(*few)) {
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
        let own = mechanism.kv_heads(self.heads);
        if let Some(own) = own {
            if own == 0 || !self.heads.is_multiple_of(own) {
                let why = format!(
                    "heads = {} must be a multiple of kv_heads = {own}",
                    self.heads
                );
                fit.misfit(&[key], why);
            }
            if let Some(given) = self.kv_heads.filter(|given| *given != own) {
                let why =
                    format!("kv_heads = {given} was given to {word}, which has {own} of them");
                fit.misfit(&["model.kv_heads"], why);
            }
        }
        let (heads, fewer) = (self.heads, self.kv_heads.filter(|few| *few != self.heads));
        if let (KvHeads::FromQueries, Some(kv_heads)) = (capabilities.kv_heads, fewer) {
            let why = format!(
                "{word} uses its queries as keys: kv_heads = {kv_heads} must be heads = {heads}"
            );
            fit.misfit(&["model.kv_heads"], why);
        }
        let is_alibi = *self.positions == Positions::Alibi && looks != Looks::Across;
        let has_dropout = self.dropout > 0.0;
        let options = capabilities.options;
        for (keys, option, is_asked_for, support) in [
            (
                "model.attention_dropout",
                "attention_dropout",
                has_dropout,
                options.dropout,
            ),
            ("model.positions", "alibi", is_alibi, options.alibi),
        ] {
            if let (true, Err(reason)) = (is_asked_for, support) {
                let why = format!("{option} is not supported by {key} = {word}: {reason}");
                fit.misfit(&[keys], why);
            }
        }
    }
}
