//! How each mechanism weighs keys, apart from how it gets by without writing that out.

use burn::tensor::Tensor;

use crate::mechanisms::linear::{FeatureMap, retention_decays};
use crate::mechanisms::strided_pattern;
use crate::mechanisms::{MechanismConfig, as_flash, matrix_for, vector_for, within};
use crate::{AttentionOptions, AttentionShape, Choice, Lsh, Pattern};

/// What makes weights of queries and keys.
pub(crate) enum Weighing {
    /// The softmax of products.
    Softmax,
    /// The softmax of products through matrices, `[heads, d_head, d_head]`.
    Multiplicative(Tensor<3>),
    /// The softmax of a small network with these vectors, `[heads, d_head]`.
    Additive(Tensor<2>),
    /// Shares of products of features.
    Features(FeatureMap),
    /// Products that fade, by a decay for each key and value head.
    Retention(Vec<f64>),
    /// The softmax of products with the queries made keys, over those that hash alike.
    Hashed(Lsh),
    /// All of one.
    Hard(Choice),
    /// Near places that vectors and matrices predict, within a window.
    Predicted(Box<(Tensor<2>, Tensor<3>)>, usize),
}

impl Weighing {
    /// How a mechanism weighs, and with what options: it may see less than they show. What
    /// is learned is as [`attend`](crate::attend) takes it, drawn before anything is.
    pub(crate) fn of(
        mechanism: &MechanismConfig,
        query: &Tensor<4>,
        shape: &AttentionShape,
        options: &AttentionOptions,
    ) -> (Self, AttentionOptions) {
        let seq_k = shape.seq_k;
        let as_they_are = |weighing: Self| (weighing, options.clone());
        match *mechanism {
            MechanismConfig::Standard
            | MechanismConfig::Flash
            | MechanismConfig::MultiQuery
            | MechanismConfig::GroupedQuery { .. }
            | MechanismConfig::Dot
            | MechanismConfig::SlidingWindow { .. }
            | MechanismConfig::LocalM { .. }
            | MechanismConfig::Block { .. }
            | MechanismConfig::Longformer { .. }
            | MechanismConfig::BigBird { .. } => {
                let own = as_flash(mechanism, options, seq_k);
                (Self::Softmax, own.unwrap_or_else(|| options.clone()))
            }
            MechanismConfig::Strided { stride } => {
                let stride = MechanismConfig::stride(stride, seq_k);
                (Self::Softmax, within(options, strided_pattern(stride)))
            }
            MechanismConfig::Fixed { block, summary } => {
                let block = MechanismConfig::stride(block, seq_k);
                let seen = Pattern::fixed(block, summary);
                (Self::Softmax, within(options, seen))
            }
            MechanismConfig::Lsh {
                bucket,
                rounds,
                seed,
            } => as_they_are(Self::Hashed(Lsh::new(bucket, rounds, seed))),
            MechanismConfig::Hard { temperature, seed } => {
                as_they_are(Self::Hard(Choice::Sampled { temperature, seed }))
            }
            MechanismConfig::LocalP { window } => as_they_are(Self::Predicted(
                Box::new((vector_for(query), matrix_for(query))),
                window,
            )),
            MechanismConfig::Multiplicative => as_they_are(Self::Multiplicative(matrix_for(query))),
            MechanismConfig::Additive => as_they_are(Self::Additive(vector_for(query))),
            MechanismConfig::Linear { .. } | MechanismConfig::Performer { .. } => {
                let features = FeatureMap::of_mechanism(mechanism).unwrap_or_default();
                as_they_are(Self::Features(features))
            }
            MechanismConfig::Retention { .. } => {
                as_they_are(Self::Retention(retention_decays(shape.kv_heads)))
            }
        }
    }
}
