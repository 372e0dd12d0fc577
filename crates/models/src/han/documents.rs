//! Batches of documents, validated on the host.

use burn::tensor::{Device, Tensor};
use zoo_attention::Pattern;

use crate::tokens::{padding_pattern, row_indices};
use crate::{Limits, ModelError, Tokens};

/// A batch of documents with different numbers of sentences and words.
///
/// The non-empty sentences of all documents form one batch, so that padding sentences cost nothing.
#[derive(Debug, Clone)]
pub struct Documents {
    /// Non-empty sentences; a single empty one if there are none.
    sentences: Tokens,
    /// Number of sentences of each document, including empty ones.
    counts: Vec<usize>,
    /// Row in `sentences` for each position of `[documents, sentences]`; one past the last for
    /// empty sentences and padding.
    rows: Vec<usize>,
}

impl Documents {
    /// Pads and moves documents to a device. Documents without sentences and sentences without
    /// words are allowed: see [`Han`](crate::Han).
    ///
    /// # Errors
    ///
    /// [`ModelError::Token`] or [`ModelError::TooLong`] if a sentence exceeds the limits,
    /// [`ModelError::EmptyBatch`] if there are no documents.
    pub fn new<Document: AsRef<[Sentence]>, Sentence: AsRef<[u32]>>(
        documents: &[Document],
        limits: Limits,
        device: &Device,
    ) -> Result<Self, ModelError> {
        if documents.is_empty() {
            return Err(ModelError::EmptyBatch);
        }
        let counts: Vec<usize> = documents.iter().map(|it| it.as_ref().len()).collect();
        let max_sentences = counts.iter().copied().max().unwrap_or(0).max(1);
        let mut non_empty: Vec<&[u32]> = vec![];
        let mut layout = vec![None; documents.len() * max_sentences];
        let slots = layout.chunks_mut(max_sentences);
        for (index, (document, slots)) in documents.iter().zip(slots).enumerate() {
            for (sentence, (words, slot)) in document.as_ref().iter().zip(slots).enumerate() {
                let words = words.as_ref();
                let name = format_args!("sentence {sentence} of document {index}");
                limits.check(name, words)?;
                if !words.is_empty() {
                    *slot = Some(non_empty.len());
                    non_empty.push(words);
                }
            }
        }
        if non_empty.is_empty() {
            non_empty.push(&[]);
        }
        let padding = non_empty.len();
        let rows = layout.into_iter().map(|row| row.unwrap_or(padding));
        Ok(Self {
            sentences: Tokens::new(&non_empty, limits, device)?,
            rows: rows.collect(),
            counts,
        })
    }

    /// Number of documents, maximum number of sentences (at least 1), and maximum number of words
    /// (at least 1).
    pub fn dims(&self) -> [usize; 3] {
        let [_, words] = self.sentences.dims();
        let documents = self.counts.len();
        [documents, self.rows.len() / documents, words]
    }

    pub(super) fn sentences(&self) -> &Tokens {
        &self.sentences
    }

    /// Number of sentences of each document, including empty ones.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    pub(super) fn pattern(&self) -> Pattern {
        let [_, sentences, _] = self.dims();
        padding_pattern(&self.counts, sentences)
    }

    /// Scatters values of the sentences, `[rows, width]`, into their documents:
    /// `[documents, sentences, width]`. Empty sentences and padding are zero.
    pub(super) fn scatter(&self, values: Tensor<2>) -> Tensor<3> {
        let [documents, sentences, _] = self.dims();
        let [count, width] = values.dims();
        if self.rows.iter().copied().eq(0..count) {
            return values.reshape([documents, sentences, width]);
        }
        let device = values.device();
        let zeros = Tensor::zeros([1, width], (&device, values.dtype()));
        Tensor::cat(vec![values, zeros], 0)
            .select(0, row_indices(&self.rows, &device)) // [documents * sentences, width]
            .reshape([documents, sentences, width])
    }
}
