//! Models on any attention mechanism.
//!
//! No backend is named here: tensors bring their device with them.

#[macro_use]
mod macros;

pub mod blocks;
mod chance;
pub mod classifier;
mod context_attention;
pub mod encoder;
mod error;
pub mod generate;
pub mod gpt;
pub mod han;
mod loss;
pub mod seq2seq;
mod summary;
#[cfg(test)]
mod tests;
mod tokens;
pub mod transformer;
pub mod weights;

pub use classifier::{Classifier, ClassifierConfig, ClassifierLook};
pub use context_attention::{ContextAttention, ContextAttentionConfig, Pooled};
pub use encoder::{TransformerEncoder, TransformerEncoderConfig};
pub use error::ModelError;
pub use generate::{GenerateConfig, Generated, Generative, Stop, Strategy, generate};
pub use gpt::{Gpt, GptConfig, GptState};
pub use han::{Documents, Han, HanConfig};
pub use loss::token_loss;
pub use seq2seq::{Seq2Seq, Seq2SeqConfig, Seq2SeqOutput, Seq2SeqState};
pub use summary::{Part, Summary};
pub use tokens::{Limits, Tokens};
pub use transformer::{Encoded, Transformer, TransformerConfig, TransformerLook, TransformerState};
pub use zoo_spec::{
    Activation, Alignment, Cell, ClassifierSpec, Feeding, GptSpec, HanSpec, Norm, Pooling,
    PositionEncoding, Seq2SeqSpec, TransformerSpec, Tying,
};

/// Runs `work`, in this thread without any kernel of this project: by Burn's own operations, which
/// autodiff records one by one. For measurements and tests that compare the two.
#[doc(hidden)]
pub fn without_kernels<T>(work: impl FnOnce() -> T) -> T {
    zoo_kernels::without_kernels(work)
}

/// The README, whose example is compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
