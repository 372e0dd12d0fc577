//! What models are built of: positions, feed-forward networks, and layers of attention.
//!
//! Parameters of a layer, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `attention.{query,key,value,output}.{weight,bias}` | self-attention |
//! | `attention_norm.{gamma,beta}` | before it, or after |
//! | `cross_attention.…`, `cross_attention_norm.…` | in a decoder that looks at an encoder |
//! | `feed_forward.{inner,gate,outer}.{weight,bias}` | `gate` for `swiglu` alone |
//! | `feed_forward_norm.{gamma,beta}` | before it, or after |
//!
//! A weight is `[from, to]`, the transpose of PyTorch's.

mod decoder;
mod encoder;
mod feed_forward;
mod plan;
mod positions;
mod self_attention;

use burn::nn::{Embedding, LayerNorm, Linear};
use burn::tensor::{Int, Tensor};
use zoo_kernels::layer_norm;

pub use self::decoder::DecoderLayer;
pub(crate) use self::decoder::DecoderLayerState;
pub use self::encoder::EncoderLayer;
pub use self::feed_forward::FeedForward;
pub(crate) use self::plan::{LayerPlan, Role, learned, linear};
pub use self::positions::AddedPositions;
pub(crate) use self::self_attention::{Notes, Sight};

/// Places that a cache has room for to begin with; it grows when it is full.
pub(crate) const ROOM: usize = 64;

/// What each place `[batch, seq, d_model]` says of every token, `[batch, seq, vocabulary]`, by a
/// head of its own or by the embedding's vectors.
pub(crate) fn logits(places: Tensor<3>, head: Option<&Linear>, embedding: &Embedding) -> Tensor<3> {
    if let Some(head) = head {
        return head.forward(places);
    }
    let [batch, seq, d_model] = places.dims();
    let vectors = embedding.weight.val(); // [vocabulary, d_model]
    let [vocabulary, _] = vectors.dims();
    places
        .reshape([batch * seq, d_model])
        .matmul(vectors.transpose())
        .reshape([batch, seq, vocabulary])
}

/// Tokens `[batch, seq]` with their places, the first of them at `first`: `[batch, seq, d_model]`.
pub(crate) fn embedded(
    embedding: &Embedding,
    scaled: bool,
    positions: &AddedPositions,
    tokens: Tensor<2, Int>,
    first: usize,
) -> Tensor<3> {
    positions.forward(scaled_embeddings(embedding.forward(tokens), scaled), first)
}

/// Vectors of `d_model` numbers times its root, if they are scaled.
pub(crate) fn scaled_embeddings(vectors: Tensor<3>, scaled: bool) -> Tensor<3> {
    let [_, _, d_model] = vectors.dims();
    match scaled {
        true => vectors.mul_scalar((d_model as f64).sqrt()),
        false => vectors,
    }
}

/// After the last layer, if there is a norm.
pub(crate) fn normed(norm: Option<&LayerNorm>, epsilon: f64, places: Tensor<3>) -> Tensor<3> {
    match norm {
        Some(norm) => layer_norm(norm, epsilon, places),
        None => places,
    }
}
