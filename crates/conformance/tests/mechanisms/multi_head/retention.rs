//! Retention with the group norm of its paper.

use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::Retention;
use zoo_attention::{
    AttentionOptions, MultiHeadAttention, MultiHeadAttentionConfig, Pattern, attend,
};
use zoo_conformance::*;

use super::{decode_all, names, self_attention};

const BATCH: usize = 2;
const SEQ: usize = 7;
const HEADS: usize = 3;
const D_HEAD: usize = 4;
const D_MODEL: usize = HEADS * D_HEAD;

pub(super) fn check_group_norm(device: &Device) {
    let [plain, layer] = [false, true].map(|group_norm| {
        MultiHeadAttentionConfig::new(D_MODEL, HEADS)
            .with_mechanism(Retention { group_norm })
            .init(device)
    });
    // The norm has no parameters.
    assert_eq!(names(&plain), names(&layer));
    let x = random_normal([BATCH, SEQ, D_MODEL], device);
    for (layer, group_norm) in [(&layer, true), (&plain, false)] {
        let want = layer.output.forward(reference(layer, &x, group_norm));
        assert_close(self_attention(layer, &x, Pattern::Causal), want.clone());
        let mut cache = must(layer.decode_cache(SEQ));
        assert_close(decode_all(layer, &x, &mut cache), want);
    }
}

/// `[batch, seq, d_model]`: retention, which the oracle checks, and the norm by its formula.
fn reference(layer: &MultiHeadAttention, x: &Tensor<3>, group_norm: bool) -> Tensor<3> {
    let heads = |projection: &Linear| {
        let projected: Tensor<3> = projection.forward(x.clone());
        let heads = projected.reshape([BATCH, SEQ, HEADS, D_HEAD]);
        heads.swap_dims(1, 2)
    };
    let key = layer.key.as_ref().expect("keys");
    let [query, key, value] = [&layer.query, key, &layer.value].map(heads);
    let options = AttentionOptions::new().with_pattern(Pattern::Causal);
    let mechanism = Retention { group_norm: false };
    let mut context = attend(mechanism, query, key, value, &options);
    if group_norm {
        let centred = context.clone() - context.mean_dim(3);
        let variance = centred.clone().square().mean_dim(3);
        context = centred / (variance + 1e-5).sqrt();
    }
    context.swap_dims(1, 2).reshape([BATCH, SEQ, D_MODEL])
}
