//! Models on any attention mechanism.
//!
//! No backend is named here: tensors bring their device with them.

mod context_attention;
mod error;
pub mod generate;
pub mod han;
mod loss;
mod summary;
mod tokens;

pub use context_attention::{ContextAttention, ContextAttentionConfig, Pooled};
pub use error::ModelError;
pub use generate::Generative;
pub use han::{Documents, Han, HanConfig};
pub use loss::token_loss;
pub use summary::{Part, Summary};
pub use tokens::{Limits, Tokens};
