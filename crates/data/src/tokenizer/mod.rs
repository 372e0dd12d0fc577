//! Tokenizers, based on the `tokenizers` crate.
//!
//! Text is normalised to Unicode NFC. The special tokens have the same ids in all tokenizers, and
//! text is never encoded as one of them. Files are in the format of the crate, whose panics on
//! malformed files are returned as errors.

mod catch_panic;
mod config;
mod pair;
mod train;

use std::fs;
use std::path::Path;
use std::thread;

use serde::de::IgnoredAny;
use tokenizers::ModelWrapper;
use zoo_spec::Printable;

use self::catch_panic::catch_panic;
pub use self::config::TokenizerConfig;
pub use self::pair::PairTokenizers;
use crate::DataError;

/// Padding token.
pub const PAD: u32 = 0;
/// Unknown token.
pub const UNK: u32 = 1;
/// Beginning-of-sequence token.
pub const BOS: u32 = 2;
/// End-of-sequence token.
pub const EOS: u32 = 3;

/// Special tokens as strings, in the order of their ids.
pub const SPECIAL_TOKENS: [&str; 4] = ["<pad>", "<unk>", "<s>", "</s>"];

/// Whether a token is a special token other than `<unk>`.
fn is_control(id: u32) -> bool {
    matches!(id, PAD | BOS | EOS)
}

const MIN_TEXTS_PER_THREAD: usize = 64;

/// A tokenizer, trained by a [`TokenizerConfig`] or loaded from a file.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    name: String,
    /// Cached, since the crate copies the vocabulary to count it.
    vocab_size: usize,
    inner: Box<tokenizers::Tokenizer>,
}

impl Tokenizer {
    /// Loads a file written by [`to_json`](Self::to_json), or by another program that uses the same
    /// ids for the special tokens.
    ///
    /// # Errors
    ///
    /// [`DataError::Invalid`] if the file cannot be read, [`DataError::Tokenizer`] if it is not a
    /// tokenizer or has other special tokens.
    pub fn load(path: &Path) -> Result<Self, DataError> {
        let bytes = fs::read(path).map_err(|error| DataError::file(path, &error))?;
        let name = path.display().to_string();
        let not_a_tokenizer = |what: &str, reason: &str| DataError::Tokenizer {
            name: name.clone(),
            reason: format!(
                "{what} ({reason})\n  help: use a tokenizer.json from a run folder or from the library \
                 tokenizers"
            ),
        };
        // Checked first, since this error has a line number, and the crate may panic instead.
        serde_json::from_slice::<IgnoredAny>(&bytes)
            .map_err(|error| not_a_tokenizer("the file is not JSON", &error.to_string()))?;
        let inner = guarded(&name, || tokenizers::Tokenizer::from_bytes(bytes));
        let inner = inner.map_err(|error| match error {
            DataError::Tokenizer { reason, .. } => {
                not_a_tokenizer("the file is JSON, but not a tokenizer", &reason)
            }
            other => other,
        })?;
        Self::from_inner(name, inner)
    }

    /// Wraps a tokenizer after checking its special tokens and ids.
    fn from_inner(name: String, mut inner: tokenizers::Tokenizer) -> Result<Self, DataError> {
        for (id, expected) in (0..).zip(SPECIAL_TOKENS) {
            let got = inner.id_to_token(id);
            if got.as_deref() != Some(expected) {
                let got = got.as_deref().unwrap_or("missing");
                let reason = format!(
                    "token {id} must be {expected}, got {}\n  help: train a tokenizer, or change the ids",
                    Printable(got)
                );
                return Err(invalid(&name, reason));
            }
        }
        let size = inner.get_vocab_size(true);
        let ids = inner.get_vocab(true);
        if let Some((token, id)) = ids.iter().find(|(_, id)| **id as usize >= size) {
            let reason = format!(
                "the id {id} of \"{token}\" is out of range for {size} tokens: ids must be contiguous"
            );
            return Err(invalid(&name, reason));
        }
        let mut tokens: Vec<Option<&str>> = vec![None; size];
        for (token, id) in &ids {
            if let Some(other) = tokens[*id as usize].replace(token) {
                let reason = format!("\"{other}\" and \"{token}\" both have the id {id}");
                return Err(invalid(&name, reason));
            }
        }
        if let ModelWrapper::BPE(model) = inner.get_model()
            && model.dropout.is_some()
        {
            let reason =
                "BPE dropout makes encoding random\n  help: set dropout to null in the file";
            return Err(invalid(&name, reason));
        }
        // Truncation and padding are done by the batches.
        inner.with_padding(None);
        if let Err(error) = inner.with_truncation(None) {
            return Err(invalid(&name, error));
        }
        Ok(Self {
            name,
            vocab_size: size,
            inner: Box::new(inner),
        })
    }

    /// Serializes the tokenizer in the format of the crate `tokenizers`.
    pub fn to_json(&self) -> Result<String, DataError> {
        guarded(&self.name, || self.inner.to_string(false))
    }

    /// Vocabulary size, including special tokens; all ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Encodes a text, without BOS and EOS.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let encoding = guarded(&self.name, || self.inner.encode_fast(text, false))?;
        Ok(without_control(encoding.get_ids()))
    }

    /// Encodes texts in parallel.
    pub fn encode_batch<'a>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<Vec<u32>>, DataError> {
        let texts: Vec<&str> = texts.into_iter().collect();
        // Not the threads of the crate, whose panics would be printed.
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let each = texts.len().div_ceil(threads).max(MIN_TEXTS_PER_THREAD);
        thread::scope(|scope| {
            let encode = |chunk: &[&str]| -> Result<Vec<Vec<u32>>, DataError> {
                chunk.iter().map(|text| self.encode(text)).collect()
            };
            let handles: Vec<_> = texts
                .chunks(each)
                .map(|chunk| scope.spawn(move || encode(chunk)))
                .collect();
            let mut encoded = Vec::with_capacity(texts.len());
            for handle in handles {
                match handle.join() {
                    Ok(chunk) => encoded.extend(chunk?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(encoded)
        })
    }

    /// Decodes ids. PAD, BOS and EOS are skipped, and unknown tokens are written `<unk>`.
    ///
    /// # Errors
    ///
    /// [`DataError::Tokenizer`] if an id is out of range.
    pub fn decode(&self, ids: &[u32]) -> Result<String, DataError> {
        let size = self.vocab_size;
        if let Some(id) = ids.iter().find(|id| **id as usize >= size) {
            let reason = format!("token id {id} is out of range for vocabulary size {size}");
            return Err(invalid(&self.name, reason));
        }
        let text_ids: Vec<u32> = ids.iter().copied().filter(|id| !is_control(*id)).collect();
        guarded(&self.name, || self.inner.decode(&text_ids, false))
    }

    /// String of a token, with `▁` for a leading space.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Id of a token string.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }
}

/// Replaces control tokens by UNK: text that contains "</s>" must not end the sequence.
fn without_control(ids: &[u32]) -> Vec<u32> {
    let replaced = |id: &u32| if is_control(*id) { UNK } else { *id };
    ids.iter().map(replaced).collect()
}

/// Calls the crate and converts its errors and panics.
fn guarded<T>(name: &str, call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, DataError> {
    // After a panic, the tokenizer has at most a partially filled cache.
    match catch_panic(call) {
        Ok(result) => result.map_err(|error| invalid(name, error)),
        Err(message) => {
            let reason = format!("the crate tokenizers cannot use it: {message}");
            Err(invalid(name, reason))
        }
    }
}

fn invalid(name: &str, reason: impl ToString) -> DataError {
    DataError::Tokenizer {
        name: name.to_owned(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests;
