//! What docs/migrating.md says of burn-nn's attention, done: it gives what burn-nn gives.

use burn::module::Module;
use burn::nn::attention as burn_nn;
use burn::nn::transformer::{
    PositionWiseFeedForward, TransformerEncoderConfig, TransformerEncoderLayer,
};
use burn::nn::{Dropout, LayerNorm};
use burn::tensor::{Bool, Device, Distribution, Tensor};
use zoo_attention::{
    CannotDecode, Mechanism, MultiHeadAttention, MultiHeadAttentionConfig, Pattern,
};

use crate::{blocks_standing_in, device};

fn taken_over(theirs: burn_nn::MultiHeadAttention, device: &Device) -> MultiHeadAttention {
    MultiHeadAttentionConfig::new(theirs.d_model, theirs.n_heads)
        .with_dropout(theirs.dropout.prob)
        .init(device)
        .load_record(theirs.into_record())
}

fn seen(mask_pad: Option<Tensor<2, Bool>>, mask_attn: Option<Tensor<3, Bool>>) -> Pattern {
    let mut pattern = Pattern::Full;
    if let Some(mask_pad) = mask_pad {
        pattern = pattern.and(Pattern::KeyPadding(mask_pad)); // [batch, seq_k]
    }
    if let Some(mask_attn) = mask_attn {
        pattern = pattern.and(Pattern::Dense(mask_attn.unsqueeze_dim(1))); // [batch, 1, seq_q, seq_k]
    }
    pattern
}

fn one_by_one(layer: &MultiHeadAttention, x: Tensor<3>) -> Result<Tensor<3>, CannotDecode> {
    let [_, seq, _] = x.dims();
    let mut cache = layer.decode_cache(seq)?;
    let places = (0..seq).map(|at| {
        let place = x.clone().slice_dim(1, at..at + 1); // [batch, 1, d_model]
        layer.step(place, &mut cache)
    });
    Ok(Tensor::cat(places.collect(), 1))
}

fn looking_elsewhere(layer: &MultiHeadAttention, x: Tensor<3>, encoded: Tensor<3>) -> Tensor<3> {
    let memory = layer.remember(encoded.clone(), encoded);
    let [_, seq, _] = x.dims();
    let places = (0..seq).map(|at| {
        let place = x.clone().slice_dim(1, at..at + 1); // [batch, 1, d_model]
        layer.recall(place, &memory, Pattern::Full)
    });
    Tensor::cat(places.collect(), 1)
}

#[derive(Module, Debug)]
struct Layer {
    attention: MultiHeadAttention,
    feed_forward: PositionWiseFeedForward,
    norm_1: LayerNorm,
    norm_2: LayerNorm,
    dropout: Dropout,
}

impl Layer {
    /// A post-norm layer of burn-nn's, which is its default, with another attention in it.
    fn of(layer: TransformerEncoderLayer, mechanism: Mechanism, device: &Device) -> Self {
        let attention = MultiHeadAttentionConfig::new(layer.mha.d_model, layer.mha.n_heads)
            .with_mechanism(mechanism.into())
            .init(device)
            .load_record(layer.mha.into_record());
        Self {
            attention,
            feed_forward: layer.pwff,
            norm_1: layer.norm_1,
            norm_2: layer.norm_2,
            dropout: layer.dropout,
        }
    }

    fn forward(&self, x: Tensor<3>, pattern: Pattern) -> Tensor<3> {
        let attended = self
            .attention
            .forward(x.clone(), x.clone(), x.clone(), pattern);
        let x = self.norm_1.forward(x + self.dropout.forward(attended));
        let fed = self.feed_forward.forward(x.clone());
        self.norm_2.forward(x + self.dropout.forward(fed))
    }
}

const D_MODEL: usize = 16;

fn draw(seq: usize, device: &Device) -> Tensor<3> {
    Tensor::random([2, seq, D_MODEL], Distribution::Normal(0.0, 1.0), device)
}

fn assert_same(got: Tensor<3>, want: Tensor<3>) {
    assert_eq!(got.dims(), want.dims());
    let difference = (got - want).abs().max().into_scalar::<f32>();
    assert!(difference < 1e-5, "{difference}");
}

/// Both sides: theirs, and ours with its weights.
fn pair(device: &Device) -> (burn_nn::MultiHeadAttention, MultiHeadAttention) {
    let theirs = burn_nn::MultiHeadAttentionConfig::new(D_MODEL, 4).init(device);
    let ours = taken_over(theirs.clone(), device);
    (theirs, ours)
}

#[test]
fn weights_and_masks_are_taken_over() {
    let device = &device();
    let (theirs, ours) = pair(device);
    let x = draw(6, device);
    let padded = [[false; 6], [false, false, false, false, true, true]];
    let padded = Tensor::<2, Bool>::from_data(padded, device);
    let causal = burn_nn::generate_autoregressive_mask(2, 6, device);
    for (pad, attn) in [(false, false), (true, false), (false, true), (true, true)] {
        let pad = pad.then(|| padded.clone());
        let attn = attn.then(|| causal.clone());
        let mut input = burn_nn::MhaInput::self_attn(x.clone());
        if let Some(pad) = pad.clone() {
            input = input.mask_pad(pad);
        }
        if let Some(attn) = attn.clone() {
            input = input.mask_attn(attn);
        }
        let want = theirs.forward(input).context;
        let got = ours.forward(x.clone(), x.clone(), x.clone(), seen(pad, attn));
        assert_same(got, want);
    }
    // A causal mask has a word, and padding at the end has lengths.
    let input = burn_nn::MhaInput::self_attn(x.clone());
    let want = theirs.forward(input.mask_attn(causal).mask_pad(padded));
    let pattern = Pattern::Causal.and(Pattern::key_lengths([6, 4]));
    let got = ours.forward(x.clone(), x.clone(), x, pattern);
    assert_same(got, want.context);
}

#[test]
fn caches_give_the_same_text() {
    let device = &device();
    let (theirs, ours) = pair(device);
    let (x, encoded) = (draw(6, device), draw(9, device));
    let mut cache = burn_nn::MhaCache::autoregressive();
    let mut want = Vec::new();
    for at in 0..6 {
        // Theirs takes the text so far, and a mask for it.
        let so_far = x.clone().slice_dim(1, 0..at + 1);
        let causal = burn_nn::generate_autoregressive_mask(2, at + 1, device);
        let input = burn_nn::MhaInput::self_attn(so_far).mask_attn(causal);
        let context = theirs.forward_cache(input, &mut cache).context;
        want.push(context.slice_dim(1, at..at + 1));
    }
    let got = one_by_one(&ours, x.clone()).expect("flash goes place by place");
    assert_same(got, Tensor::cat(want, 1));

    let input = burn_nn::MhaInput::new(x.clone(), encoded.clone(), encoded.clone());
    let want = theirs.forward(input).context;
    assert_same(looking_elsewhere(&ours, x, encoded), want);
}

#[test]
fn a_layer_of_an_encoder_is_taken_over() {
    let device = &device();
    let config = TransformerEncoderConfig::new(D_MODEL, 32, 4, 1);
    let theirs = TransformerEncoderLayer::new(&config, device);
    let ours = Layer::of(theirs.clone(), Mechanism::Flash, device);
    let x = draw(6, device);
    let want = theirs.forward(x.clone(), None, None);
    assert_same(ours.forward(x.clone(), Pattern::Full), want.clone());
    // Another word, the same weights: it sees less.
    let local = Layer::of(theirs, Mechanism::Strided, device);
    let seen = local.forward(x, Pattern::Causal);
    assert!((seen - want).abs().max().into_scalar::<f32>() > 1e-2);
}

#[test]
fn every_block_of_the_page_is_in_this_file() {
    let page = include_str!("../../../docs/migrating.md");
    assert_eq!(blocks_standing_in(page, include_str!("migrating.rs")), 5);
}
