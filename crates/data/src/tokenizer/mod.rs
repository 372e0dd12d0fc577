//! Text as tokens and back, by the `tokenizers` crate.
//!
//! Text is brought to Unicode's NFC first, so that one character is always the same tokens.
//! The special tokens have the same ids in all of them; text never becomes one of them,
//! whatever is written in it. A file is in the format of the crate, which other programs read.
//! The crate panics over many a file that is not what it expects; that is an error here.

mod caught;
mod config;
mod pair;
mod train;

use std::fs;
use std::path::Path;
use std::thread;

use serde::de::IgnoredAny;
use tokenizers::ModelWrapper;
use zoo_spec::Printable;

use self::caught::caught;
pub use self::config::TokenizerConfig;
pub use self::pair::PairTokenizers;
use crate::DataError;

/// Fills up what is shorter than its neighbours.
pub const PAD: u32 = 0;
/// Stands for what is not in the vocabulary.
pub const UNKNOWN: u32 = 1;
/// What a text that is to be written begins with.
pub const BEGIN: u32 = 2;
/// What it ends with.
pub const END: u32 = 3;

/// How they are written, in the order of their ids.
pub const SPECIAL_TOKENS: [&str; 4] = ["<pad>", "<unk>", "<s>", "</s>"];

/// Whether a token stands for nothing that is in a text. An unknown one stands for something.
fn is_silent(id: u32) -> bool {
    matches!(id, PAD | BEGIN | END)
}

/// Texts for which a thread is started.
const TEXTS_OF_THREAD: usize = 64;

/// What makes tokens of text, and text of tokens. Made by a [`TokenizerConfig`], or read from a
/// file.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    name: String,
    /// Tokens there are. The crate copies all of them to count them.
    vocabulary: usize,
    inner: Box<tokenizers::Tokenizer>,
}

impl Tokenizer {
    /// Reads a file with what [`to_json`](Self::to_json) wrote, or another program that gives the
    /// special tokens the same ids.
    ///
    /// # Errors
    ///
    /// [`DataError::Refused`] if there is none, [`DataError::Tokenizer`] if it is not one, or a special
    /// token is elsewhere.
    pub fn load(path: &Path) -> Result<Self, DataError> {
        let bytes = fs::read(path).map_err(|error| DataError::file(path, &error))?;
        let name = path.display().to_string();
        let no_tokenizer = |what: &str, why: &str| DataError::Tokenizer {
            name: name.clone(),
            why: format!(
                "{what} ({why})\n  do: name a tokenizer.json: a run's folder has those it learned, \
                 and the library tokenizers writes them"
            ),
        };
        // Asked first: this error has a line, and not a panic for a comma.
        serde_json::from_slice::<IgnoredAny>(&bytes)
            .map_err(|error| no_tokenizer("the file is not JSON", &error.to_string()))?;
        let inner = guarded(&name, || tokenizers::Tokenizer::from_bytes(bytes));
        let inner = inner.map_err(|error| match error {
            DataError::Tokenizer { why, .. } => {
                no_tokenizer("the file is JSON, and no tokenizer", &why)
            }
            other => other,
        })?;
        Self::checked(name, inner)
    }

    /// A tokenizer whose tokens are numbered as all are here.
    fn checked(name: String, mut inner: tokenizers::Tokenizer) -> Result<Self, DataError> {
        for (id, expected) in (0..).zip(SPECIAL_TOKENS) {
            let got = inner.id_to_token(id);
            if got.as_deref() != Some(expected) {
                let got = got.as_deref().unwrap_or("missing");
                let why = format!(
                    "token {id} must be {expected}, and is {}; train one here, or renumber it",
                    Printable(got)
                );
                return Err(DataError::Tokenizer { name, why });
            }
        }
        let size = inner.get_vocab_size(true);
        let ids = inner.get_vocab(true);
        if let Some((token, id)) = ids.iter().find(|(_, id)| **id as usize >= size) {
            let why = format!(
                "it has {size} tokens, and \"{token}\" has the id {id}: ids must have no gaps"
            );
            return Err(DataError::Tokenizer { name, why });
        }
        let mut tokens: Vec<Option<&str>> = vec![None; size];
        for (token, id) in &ids {
            if let Some(other) = tokens[*id as usize].replace(token) {
                let why = format!("\"{other}\" and \"{token}\" both have the id {id}");
                return Err(DataError::Tokenizer { name, why });
            }
        }
        if let ModelWrapper::BPE(model) = inner.get_model()
            && model.dropout.is_some()
        {
            let why = "it leaves out merges at random, and a text would be other tokens each \
                       time: write null for its dropout";
            let why = why.to_owned();
            return Err(DataError::Tokenizer { name, why });
        }
        // Batches are cut and filled up elsewhere.
        inner.with_padding(None);
        if let Err(error) = inner.with_truncation(None) {
            return Err(failed(&name, error.as_ref()));
        }
        Ok(Self {
            name,
            vocabulary: size,
            inner: Box::new(inner),
        })
    }

    /// All of it as text: what a file has.
    pub fn to_json(&self) -> Result<String, DataError> {
        guarded(&self.name, || self.inner.to_string(false))
    }

    /// How many tokens there are, the special ones counted; ids are below it.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Text as tokens, without any at its beginning and end.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let encoding = guarded(&self.name, || self.inner.encode_fast(text, false))?;
        Ok(spoken(encoding.get_ids()))
    }

    /// Many texts at once, on all cores.
    pub fn encode_all<'a>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<Vec<u32>>, DataError> {
        let texts: Vec<&str> = texts.into_iter().collect();
        // On threads of our own and not on those of the crate, where its panics would be printed.
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let each = texts.len().div_ceil(threads).max(TEXTS_OF_THREAD);
        thread::scope(|scope| {
            let encode = |part: &[&str]| -> Result<Vec<Vec<u32>>, DataError> {
                part.iter().map(|text| self.encode(text)).collect()
            };
            let parts = texts.chunks(each);
            let parts: Vec<_> = parts
                .map(|part| scope.spawn(move || encode(part)))
                .collect();
            let mut encoded = Vec::with_capacity(texts.len());
            for part in parts {
                match part.join() {
                    Ok(part) => encoded.extend(part?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(encoded)
        })
    }

    /// Tokens as text. Those that pad, begin and end are left out; unknown ones are
    /// written `<unk>`.
    ///
    /// # Errors
    ///
    /// [`DataError::Tokenizer`] if an id is outside of the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String, DataError> {
        let size = self.vocabulary;
        if let Some(id) = ids.iter().find(|id| **id as usize >= size) {
            let name = self.name.clone();
            let why = format!("there is no token {id}: it has {size}");
            return Err(DataError::Tokenizer { name, why });
        }
        let spoken: Vec<u32> = ids.iter().copied().filter(|id| !is_silent(*id)).collect();
        guarded(&self.name, || self.inner.decode(&spoken, false))
    }

    /// How a token is written, with `▁` for the space that it begins with.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The id of a token that is written so.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }
}

/// Ids that text has become. A text may have "</s>" written in it, and is not over then.
fn spoken(ids: &[u32]) -> Vec<u32> {
    let spoken = |id: &u32| if is_silent(*id) { UNKNOWN } else { *id };
    ids.iter().map(spoken).collect()
}

/// What the crate makes of a file, where it may panic over it.
fn guarded<T>(name: &str, call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, DataError> {
    // What it leaves behind in a tokenizer is a cache, and right as far as it goes.
    match caught(call) {
        Ok(result) => result.map_err(|error| failed(name, error.as_ref())),
        Err(message) => Err(DataError::Tokenizer {
            name: name.to_owned(),
            why: format!("it is not one that the crate tokenizers can use: {message}"),
        }),
    }
}

fn failed(name: &str, error: &dyn std::error::Error) -> DataError {
    DataError::Tokenizer {
        name: name.to_owned(),
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
