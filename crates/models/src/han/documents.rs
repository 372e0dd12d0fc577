//! Documents of sentences of words, checked on the host.

use burn::tensor::{Device, Tensor};
use zoo_attention::Pattern;

use crate::tokens::{row_numbers, shown};
use crate::{Limits, ModelError, Tokens};

/// A batch of documents, of any numbers of sentences, of any numbers of words.
///
/// Sentences that have words lie one above the other, whichever document they are of, so that
/// nothing is computed for those that are not there.
#[derive(Debug, Clone)]
pub struct Documents {
    /// The sentences that have words; one without any if none has.
    sentences: Tokens,
    /// Sentences of each document, those without words counted.
    counts: Vec<usize>,
    /// For each place in `[documents, sentences]` the sentence that is there; one past the
    /// last for those without words and for padding.
    rows: Vec<usize>,
}

impl Documents {
    /// Puts documents side by side on a device. A document without sentences and a sentence
    /// without words are fine: see [`Han`](crate::Han).
    ///
    /// # Errors
    ///
    /// [`ModelError::DocumentToken`] or [`ModelError::SentenceTooLong`] if the model cannot
    /// take one of them, [`ModelError::NoRows`] if there is none.
    pub fn new<Document: AsRef<[Sentence]>, Sentence: AsRef<[u32]>>(
        documents: &[Document],
        limits: Limits,
        device: &Device,
    ) -> Result<Self, ModelError> {
        if documents.is_empty() {
            return Err(ModelError::NoRows);
        }
        let mut with_words: Vec<&[u32]> = vec![];
        let mut places: Vec<Vec<Option<usize>>> = vec![];
        for (at, document) in documents.iter().enumerate() {
            let mut own = vec![];
            for (sentence, words) in document.as_ref().iter().enumerate() {
                let words = words.as_ref();
                limits
                    .check(sentence, words)
                    .map_err(|error| in_document(at, error))?;
                let has_words = !words.is_empty();
                own.push(has_words.then_some(with_words.len()));
                if has_words {
                    with_words.push(words);
                }
            }
            places.push(own);
        }
        let count = with_words.len();
        if count == 0 {
            with_words.push(&[]);
        }
        let sentences = Tokens::new(&with_words, limits, device)?;
        let counts: Vec<usize> = places.iter().map(Vec::len).collect();
        let most = counts.iter().copied().max().unwrap_or(0).max(1);
        let none = with_words.len();
        let row = |document: &Vec<Option<usize>>| -> Vec<usize> {
            let place = |at: usize| document.get(at).copied().flatten().unwrap_or(none);
            (0..most).map(place).collect()
        };
        Ok(Self {
            sentences,
            rows: places.iter().flat_map(row).collect(),
            counts,
        })
    }

    /// Documents, the most sentences that one has (at least 1), and the most words that a
    /// sentence has (at least 1).
    pub fn dims(&self) -> [usize; 3] {
        let [_, words] = self.sentences.dims();
        let documents = self.counts.len();
        [documents, self.rows.len() / documents, words]
    }

    pub(super) fn sentences(&self) -> &Tokens {
        &self.sentences
    }

    /// Sentences of each document, those without words counted.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    pub(super) fn pattern(&self) -> Pattern {
        let [_, sentences, _] = self.dims();
        shown(&self.counts, sentences)
    }

    /// What there is of each sentence, `[rows, width]`, where the sentence is:
    /// `[documents, sentences, width]`. Zeros where there are no words.
    pub(super) fn placed(&self, of_sentences: Tensor<2>) -> Tensor<3> {
        let [documents, sentences, _] = self.dims();
        let [count, width] = of_sentences.dims();
        if self.rows.iter().copied().eq(0..count) {
            return of_sentences.reshape([documents, sentences, width]);
        }
        let device = of_sentences.device();
        let nothing = Tensor::zeros([1, width], (&device, of_sentences.dtype()));
        Tensor::cat(vec![of_sentences, nothing], 0)
            .select(0, row_numbers(&self.rows, &device)) // [documents * sentences, width]
            .reshape([documents, sentences, width])
    }
}

fn in_document(document: usize, error: ModelError) -> ModelError {
    match error {
        ModelError::Token {
            row,
            place,
            id,
            vocabulary,
        } => ModelError::DocumentToken {
            document,
            sentence: row,
            place,
            id,
            vocabulary,
        },
        ModelError::TooLong {
            row,
            length,
            longest,
        } => ModelError::SentenceTooLong {
            document,
            sentence: row,
            length,
            longest,
        },
        other => other,
    }
}
