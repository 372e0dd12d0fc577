//! Models built on any attention mechanism.
//!
//! The crate enables no backend; models run on the device of their tensors.

#[macro_use]
mod macros;

pub mod blocks;
pub mod classifier;
mod context_attention;
pub mod encoder;
mod error;
pub mod generate;
pub mod gpt;
pub mod han;
mod loss;
mod random;
pub mod seq2seq;
mod summary;
#[cfg(test)]
mod tests;
mod tokens;
pub mod transformer;
pub mod weights;

pub use classifier::{Classifier, ClassifierAttention, ClassifierConfig};
pub use context_attention::{ContextAttention, PoolingOutput};
pub use encoder::{TransformerEncoder, TransformerEncoderConfig};
pub use error::ModelError;
pub use generate::{GenerateConfig, GeneratedSequence, Generative, Stop, Strategy, generate};
pub use gpt::{Gpt, GptConfig, GptState};
pub use han::{Documents, Han, HanConfig, HanOutput};
pub use loss::token_loss;
pub use seq2seq::{Seq2Seq, Seq2SeqConfig, Seq2SeqOutput, Seq2SeqState};
pub use summary::{Part, Summary};
pub use tokens::{Limits, Tokens};
pub use transformer::{
    EncoderOutput, Transformer, TransformerAttention, TransformerConfig, TransformerState,
};
pub use zoo_spec::{
    Activation, Alignment, Cell, ClassifierSpec, GptSpec, HanSpec, InputFeeding, LayerMechanisms,
    Norm, PairLayout, Pooling, PositionEncoding, Rotary, RotaryScaling, Seq2SeqSpec,
    TransformerSpec, Tying,
};

// For measurements and tests that compare this project's kernels with Burn's operations.
#[doc(hidden)]
pub use zoo_kernels::without_kernels;

/// The README, whose example is compiled as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
