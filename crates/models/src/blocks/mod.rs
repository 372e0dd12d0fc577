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

use burn::nn::{Embedding, Linear};
use burn::tensor::Tensor;
use zoo_spec::{MechanismConfig, Support};

pub use self::decoder::DecoderLayer;
pub(crate) use self::decoder::DecoderLayerState;
pub use self::encoder::EncoderLayer;
pub use self::feed_forward::FeedForward;
pub(crate) use self::plan::{LayerPlan, learned, linear};
pub use self::positions::AddedPositions;
pub(crate) use self::self_attention::{Entropies, Sight};
use crate::ModelError;

/// Places that a cache has room for to begin with; it grows when it is full.
pub(crate) const ROOM: usize = 64;

/// What each place says of every token, by a head of its own or by the embedding's vectors.
///
/// # Shapes
///
/// - places: `[batch, seq, d_model]`
/// - result: `[batch, seq, vocabulary]`
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

/// Whether a mechanism can be used for bidirectional attention.
pub(crate) fn check_encoder_mechanism(
    field: &'static str,
    mechanism: &MechanismConfig,
) -> Result<(), ModelError> {
    check_use(
        field,
        mechanism,
        "bidirectional attention",
        mechanism.capabilities().bidirectional,
    )
}

/// Whether a mechanism can be used for attention to another sequence.
pub(crate) fn check_cross_mechanism(
    field: &'static str,
    mechanism: &MechanismConfig,
) -> Result<(), ModelError> {
    check_use(
        field,
        mechanism,
        "cross-attention",
        mechanism.capabilities().cross_attention,
    )
}

fn check_use(
    field: &'static str,
    mechanism: &MechanismConfig,
    what: &'static str,
    support: Support,
) -> Result<(), ModelError> {
    support.map_err(|reason| ModelError::Mechanism {
        field,
        mechanism: mechanism.mechanism(),
        what,
        reason,
    })
}
