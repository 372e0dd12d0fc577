//! Tokenizers, based on the `tokenizers` crate.
//!
//! Text is normalised to Unicode NFC. The special tokens have the same ids in all tokenizers that are
//! trained here, and text is never encoded as one of them. A [pretrained](Tokenizer::load_pretrained)
//! tokenizer is used unchanged. Files are in the format of the crate, whose panics on malformed files
//! are returned as errors.

mod catch_panic;
mod config;
mod pair;
mod special;
mod train;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::thread;

use serde::de::IgnoredAny;
use tokenizers::ModelWrapper;
use zoo_spec::Printable;

use self::catch_panic::catch_panic;
pub use self::config::TokenizerConfig;
pub use self::pair::PairTokenizers;
use self::special::SpecialIds;
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

const MIN_TEXTS_PER_THREAD: usize = 64;

/// A tokenizer, trained by a [`TokenizerConfig`] or loaded from a file.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    name: String,
    /// Cached, since the crate copies the vocabulary to count it.
    vocab_size: usize,
    special: SpecialIds,
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
        let (name, inner) = read(path)?;
        Self::from_inner(name, inner)
    }

    /// Loads a `tokenizer.json` of a pretrained model, with its own special tokens: a text is encoded
    /// as by the library tokenizers, with the tokens that its post-processor adds, and special tokens
    /// in a text are encoded as such.
    ///
    /// # Errors
    ///
    /// [`DataError::Invalid`] if the file cannot be read, [`DataError::Tokenizer`] if it is not a
    /// tokenizer.
    pub fn load_pretrained(path: &Path) -> Result<Self, DataError> {
        let (name, inner) = read(path)?;
        let ids = inner.get_vocab(true).into_values();
        let vocab_size = ids.max().map_or(0, |id| id as usize + 1);
        let special = SpecialIds::of_pretrained(&inner);
        Self::checked(name, inner, vocab_size, special)
    }

    /// Wraps a tokenizer after checking its special tokens and ids.
    fn from_inner(name: String, inner: tokenizers::Tokenizer) -> Result<Self, DataError> {
        let vocab_size = check_ids(&name, &inner)?;
        Self::checked(name, inner, vocab_size, SpecialIds::Fixed)
    }

    fn checked(
        name: String,
        mut inner: tokenizers::Tokenizer,
        vocab_size: usize,
        special: SpecialIds,
    ) -> Result<Self, DataError> {
        if let ModelWrapper::BPE(model) = inner.get_model()
            && model.dropout.is_some()
        {
            let help = "help: set dropout to null in the file";
            let reason = format!("BPE dropout makes encoding random\n  {help}");
            return Err(invalid(&name, reason));
        }
        // Truncation and padding are done by the batches.
        inner.with_padding(None);
        let without_truncation = inner.with_truncation(None);
        without_truncation.map_err(|error| invalid(&name, error))?;
        Ok(Self {
            name,
            vocab_size,
            special,
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

    /// Encodes a text, without BOS and EOS; with those that the post-processor of a
    /// [pretrained](Self::load_pretrained) tokenizer adds.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let adds = self.special.are_added();
        let encoding = guarded(&self.name, || self.inner.encode_fast(text, adds))?;
        // Text that contains "</s>" must not end the sequence.
        let replaced = |id: &u32| match self.special.is_control(*id) {
            true => UNK,
            false => *id,
        };
        Ok(encoding.get_ids().iter().map(replaced).collect())
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

    /// The parts of a text that are encoded as `<unk>`, each once, in the order of the text.
    pub fn unknown(&self, text: &str) -> Result<Vec<String>, DataError> {
        let mut seen = HashSet::new();
        let unknown = self.written(text)?.into_iter().flatten();
        Ok(unknown.filter(|part| seen.insert(part.clone())).collect())
    }

    /// The part of the text for each token that is encoded as `<unk>`; `None` for known tokens.
    pub fn written(&self, text: &str) -> Result<Vec<Option<String>>, DataError> {
        let adds = self.special.are_added();
        let encoding = guarded(&self.name, || self.inner.encode(text, adds))?;
        let offsets = encoding.get_offsets();
        let next = offsets.iter().skip(1).map(|(start, _)| *start);
        let offsets = offsets.iter().zip(next.chain([text.len()]));
        let tokens = encoding.get_ids().iter().zip(offsets);
        let written = tokens.map(|(id, ((start, end), next))| {
            if !self.special.is_unknown(*id) && !self.special.is_control(*id) {
                return None;
            }
            // The crate's offsets leave out a combining character at the end.
            let gap = text.get(*end..next).unwrap_or_default();
            let rest = gap.find(char::is_whitespace).unwrap_or(gap.len());
            text.get(*start..*end + rest).map(str::to_owned)
        });
        Ok(written.collect())
    }

    /// What unknown parts of a text are: `word` or `character`.
    pub fn unknown_unit(&self) -> &'static str {
        match self.inner.get_model() {
            ModelWrapper::WordLevel(_) | ModelWrapper::WordPiece(_) => "word",
            ModelWrapper::BPE(_) | ModelWrapper::Unigram(_) => "character",
        }
    }

    /// Decodes ids. PAD, BOS and EOS are skipped, and unknown tokens are written `<unk>`. A
    /// [pretrained](Self::load_pretrained) tokenizer skips its special tokens, and the ids that only
    /// its model has: embeddings are often padded.
    ///
    /// # Errors
    ///
    /// [`DataError::Tokenizer`] if an id is out of range.
    pub fn decode(&self, ids: &[u32]) -> Result<String, DataError> {
        if self.special != SpecialIds::Fixed {
            return guarded(&self.name, || self.inner.decode(ids, true));
        }
        let size = self.vocab_size;
        if let Some(id) = ids.iter().find(|id| **id as usize >= size) {
            let reason = format!("token id {id} is out of range for vocabulary size {size}");
            return Err(invalid(&self.name, reason));
        }
        let text_ids: Vec<u32> = (ids.iter().copied())
            .filter(|id| !self.special.is_control(*id))
            .collect();
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

/// Reads a file of the crate; its name for messages.
fn read(path: &Path) -> Result<(String, tokenizers::Tokenizer), DataError> {
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
    Ok((name, inner))
}

/// Checks that special tokens have their ids and that ids are contiguous; their number.
fn check_ids(name: &str, inner: &tokenizers::Tokenizer) -> Result<usize, DataError> {
    for (id, expected) in (0..).zip(SPECIAL_TOKENS) {
        let got = inner.id_to_token(id);
        if got.as_deref() != Some(expected) {
            let got = Printable(got.as_deref().unwrap_or("missing"));
            let help = "help: train a tokenizer, or change the ids";
            let reason = format!("token {id} must be {expected}, got {got}\n  {help}");
            return Err(invalid(name, reason));
        }
    }
    let vocab_size = inner.get_vocab_size(true);
    let ids = inner.get_vocab(true);
    let mut tokens: Vec<Option<&str>> = vec![None; vocab_size];
    for (token, id) in &ids {
        let Some(slot) = tokens.get_mut(*id as usize) else {
            let reason = format!(
                "the id {id} of \"{token}\" is out of range for {vocab_size} tokens: ids must be \
                 contiguous"
            );
            return Err(invalid(name, reason));
        };
        if let Some(other) = slot.replace(token) {
            let reason = format!("\"{other}\" and \"{token}\" both have the id {id}");
            return Err(invalid(name, reason));
        }
    }
    Ok(vocab_size)
}

/// Calls the crate and converts its errors and panics.
fn guarded<T>(name: &str, call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, DataError> {
    // After a panic, the tokenizer has at most a partially filled cache.
    let panicked = |message| format!("the crate tokenizers cannot use it: {message}");
    let outcome = catch_panic(call).map_err(|message| invalid(name, panicked(message)))?;
    outcome.map_err(|error| invalid(name, error))
}

fn invalid(name: &str, reason: impl ToString) -> DataError {
    DataError::Tokenizer {
        name: name.to_owned(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests;
