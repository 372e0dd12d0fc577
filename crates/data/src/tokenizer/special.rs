//! Which ids are those of special tokens.

use tokenizers::ModelWrapper;

use super::{BOS, EOS, PAD, UNK};

/// The special tokens of a tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecialIds {
    /// Those of this crate, at their fixed ids.
    Fixed,
    /// Those of a pretrained tokenizer, which the crate tokenizers handles.
    Pretrained {
        /// The token of unknown words or characters, if there is one.
        unknown: Option<u32>,
    },
}

impl SpecialIds {
    pub(super) fn of_pretrained(inner: &tokenizers::Tokenizer) -> Self {
        let unknown = match inner.get_model() {
            ModelWrapper::BPE(model) => model.unk_token.as_ref(),
            ModelWrapper::WordPiece(model) => Some(&model.unk_token),
            ModelWrapper::WordLevel(model) => Some(&model.unk_token),
            // Its id is private.
            ModelWrapper::Unigram(_) => None,
        };
        let unknown = unknown.and_then(|token| inner.token_to_id(token));
        Self::Pretrained { unknown }
    }

    /// Whether text is encoded with the tokens that the post-processor adds.
    pub(super) fn are_added(self) -> bool {
        match self {
            Self::Fixed => false,
            Self::Pretrained { .. } => true,
        }
    }

    /// Whether a token is one that text must not contain.
    pub(super) fn is_control(self, id: u32) -> bool {
        match self {
            Self::Fixed => matches!(id, PAD | BOS | EOS),
            Self::Pretrained { .. } => false,
        }
    }

    pub(super) fn is_unknown(self, id: u32) -> bool {
        match self {
            Self::Fixed => id == UNK,
            Self::Pretrained { unknown } => unknown == Some(id),
        }
    }
}
