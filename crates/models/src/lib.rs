//! Models on any attention mechanism.
//!
//! No backend is named here: tensors bring their device with them.

mod chance;
mod context_attention;
mod error;
pub mod generate;
mod loss;
mod summary;
mod tokens;
pub mod weights;

pub use context_attention::{ContextAttention, ContextAttentionConfig, Pooled};
pub use error::ModelError;
pub use generate::{GenerateConfig, Generated, Generative, Stop, Strategy, generate};
pub use loss::token_loss;
pub use summary::{Part, Summary};
pub use tokens::{Limits, Tokens};
