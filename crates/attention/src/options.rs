//! What every softmax mechanism can be told besides its tensors.

use crate::Pattern;

/// How to attend: who sees whom, and what scores are multiplied by.
#[derive(Debug, Clone, Default)]
pub struct AttentionOptions {
    /// Who may see whom; everyone sees everything unless said otherwise.
    pub pattern: Pattern,
    /// What scores are multiplied by; `None` is `1/sqrt(d_head)`.
    pub scale: Option<f64>,
}

impl AttentionOptions {
    /// Everyone sees everything, at the default scale.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restricts who may see whom.
    pub fn with_pattern(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    /// Multiplies scores by `scale` instead of `1/sqrt(d_head)`.
    pub fn with_scale(self, scale: f64) -> Self {
        Self {
            scale: Some(scale),
            ..self
        }
    }
}
