//! Whether attention can be what a file asks for, in its place.
//!
//! The models refuse the same, but only once they are made; here a line can be named.

use zoo_spec::{Mechanism, MechanismConfig};

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
            if !mechanism.can_decode() {
                let why = format!(
                    "{}, and so a translation cannot be written",
                    cannot_decode(mechanism)
                );
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
            if !model.attention.can_decode() && config.validation.samples > 0 {
                let why = format!(
                    "{}, and so there are no samples: write validation.samples = 0",
                    cannot_decode(&model.attention)
                );
                fit.misfit(&["model.attention"], why);
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

fn cannot_decode(mechanism: &MechanismConfig) -> String {
    let word = mechanism.mechanism();
    match mechanism {
        MechanismConfig::Strided { .. } => {
            format!("{word} without a stride cannot go place by place")
        }
        MechanismConfig::Fixed { .. } => format!("{word} without a block cannot go place by place"),
        _ => format!("{word} cannot go place by place"),
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
        let place = match (looks, word) {
            (Looks::BothWays, Mechanism::Retention) => {
                Some("what it forgets is behind, and an encoder looks ahead, too")
            }
            (Looks::Across, _) => cannot_look_across(word),
            _ => None,
        };
        if let Some(why) = place {
            fit.misfit(&[key], format!("{word} cannot be used there: {why}"));
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
        if let (Mechanism::Lsh, Some(kv_heads)) = (word, fewer) {
            let why = format!(
                "{word} makes a key of each query: kv_heads = {kv_heads} must be heads = {heads}"
            );
            fit.misfit(&["model.kv_heads"], why);
        }
        let is_alibi = *self.positions == Positions::Alibi && looks != Looks::Across;
        for (keys, option, is_asked_for) in [
            (
                "model.attention_dropout",
                "attention_dropout",
                self.dropout > 0.0,
            ),
            ("model.positions", "alibi", is_alibi),
        ] {
            let why = match word {
                Mechanism::Linear | Mechanism::Performer | Mechanism::Retention => {
                    "has no scores or weights for it to change"
                }
                Mechanism::Lsh => "sorts places by their hashes, which it cannot follow",
                _ => continue,
            };
            if is_asked_for {
                fit.misfit(
                    &[keys],
                    format!("{option} cannot be used with {key} = {word}, which {why}"),
                );
            }
        }
    }
}

/// Why a mechanism cannot look from one sequence at another.
fn cannot_look_across(mechanism: Mechanism) -> Option<&'static str> {
    match mechanism {
        Mechanism::SlidingWindow
        | Mechanism::Block
        | Mechanism::Strided
        | Mechanism::Fixed
        | Mechanism::Longformer
        | Mechanism::BigBird => Some("it sees by places of one sequence, and there are two"),
        Mechanism::Lsh => Some("it makes its keys of its queries, and has no others"),
        Mechanism::Retention => {
            Some("what it forgets is behind, and nothing of another sequence is")
        }
        Mechanism::Standard
        | Mechanism::Flash
        | Mechanism::MultiQuery
        | Mechanism::GroupedQuery
        | Mechanism::Dot
        | Mechanism::Multiplicative
        | Mechanism::Additive
        | Mechanism::Hard
        | Mechanism::LocalM
        | Mechanism::LocalP
        | Mechanism::Linear
        | Mechanism::Performer => None,
    }
}
