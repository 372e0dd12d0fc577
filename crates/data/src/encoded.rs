//! Tokenized examples, and truncation or removal of those that are too long.

use std::fmt;

use zoo_config::Sentences;

use crate::{
    BOS, DataError, EOS, Labelled, Labels, Pair, PairTokenizers, Tokenizer, split_sentences,
};

/// Token ids of a source text and its target text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairIds {
    /// Source token ids.
    pub source: Vec<u32>,
    /// Target token ids, without BOS and EOS.
    pub target: Vec<u32>,
}

impl PairIds {
    /// Decoder input for teacher forcing: BOS, then the target.
    pub fn decoder_input(&self) -> Vec<u32> {
        [&[BOS], self.target.as_slice()].concat()
    }

    /// Decoder labels: the target, then EOS.
    pub fn decoder_output(&self) -> Vec<u32> {
        [self.target.as_slice(), &[EOS]].concat()
    }
}

/// Token ids of a document, and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledIds {
    /// Class index.
    pub label: usize,
    /// Token ids.
    pub ids: Vec<u32>,
}

/// Token ids of each sentence of a document, and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentIds {
    /// Class index.
    pub label: usize,
    /// Token ids by sentence.
    pub sentences: Vec<Vec<u32>>,
}

impl DocumentIds {
    /// Keeps the first `max` sentences and returns how many were dropped.
    pub fn truncate_sentences(&mut self, max: usize) -> usize {
        let before = self.sentences.len();
        self.sentences.truncate(max);
        before - self.sentences.len()
    }
}

/// Size of an example in a padded batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Tokens of the longest row.
    pub width: usize,
    /// Tokens of the shorter side of a pair, 0 if there is one side only. Breaks ties when sorting
    /// by length.
    pub other: usize,
    /// Rows: the number of sentences of a document, otherwise 1.
    pub rows: usize,
}

/// A tokenized example.
pub trait Encoded {
    /// Size in a padded batch.
    fn extent(&self) -> Extent;

    /// Truncates the text, or each sentence, to `max_len` tokens.
    fn truncate(&mut self, max_len: usize);
}

impl Encoded for PairIds {
    /// The target counts one token more, for BOS or EOS.
    fn extent(&self) -> Extent {
        let [source, target] = [self.source.len(), self.target.len() + 1];
        Extent {
            width: source.max(target),
            other: source.min(target),
            rows: 1,
        }
    }

    fn truncate(&mut self, max_len: usize) {
        self.source.truncate(max_len);
        self.target.truncate(max_len.saturating_sub(1));
    }
}

impl Encoded for LabelledIds {
    fn extent(&self) -> Extent {
        Extent {
            width: self.ids.len(),
            other: 0,
            rows: 1,
        }
    }

    fn truncate(&mut self, max_len: usize) {
        self.ids.truncate(max_len);
    }
}

impl Encoded for DocumentIds {
    fn extent(&self) -> Extent {
        Extent {
            width: self.sentences.iter().map(Vec::len).max().unwrap_or(0),
            other: 0,
            rows: self.sentences.len(),
        }
    }

    fn truncate(&mut self, max_len: usize) {
        for sentence in &mut self.sentences {
            sentence.truncate(max_len);
        }
    }
}

impl PairTokenizers {
    /// Tokenizes both sides of all pairs.
    pub fn encode(&self, pairs: &[Pair]) -> Result<Vec<PairIds>, DataError> {
        let sources = pairs.iter().map(|pair| pair.source.as_str());
        let targets = pairs.iter().map(|pair| pair.target.as_str());
        let sources = self.source().encode_batch(sources)?;
        let targets = self.target().encode_batch(targets)?;
        let pair = |(source, target)| PairIds { source, target };
        Ok(sources.into_iter().zip(targets).map(pair).collect())
    }
}

impl Tokenizer {
    /// Tokenizes documents. `split` names the data in errors.
    pub fn encode_labelled(
        &self,
        split: &str,
        examples: &[Labelled],
        labels: &Labels,
    ) -> Result<Vec<LabelledIds>, DataError> {
        let labels = labels.indices(split, examples)?;
        let ids = self.encode_batch(examples.iter().map(|example| example.text.as_str()))?;
        let labelled = |(label, ids)| LabelledIds { label, ids };
        Ok(labels.into_iter().zip(ids).map(labelled).collect())
    }

    /// Splits documents into sentences and tokenizes them. `split` names the data in errors.
    pub fn encode_documents(
        &self,
        split: &str,
        examples: &[Labelled],
        labels: &Labels,
        by: Sentences,
    ) -> Result<Vec<DocumentIds>, DataError> {
        let labels = labels.indices(split, examples)?;
        let texts = examples.iter().map(|example| example.text.as_str());
        let documents: Vec<Vec<&str>> = texts.map(|text| split_sentences(text, by)).collect();
        let all = documents.iter().flatten().copied();
        let mut ids = self.encode_batch(all)?.into_iter();
        let document = |(label, sentences): (usize, &Vec<&str>)| DocumentIds {
            label,
            sentences: ids.by_ref().take(sentences.len()).collect(),
        };
        Ok(labels.into_iter().zip(&documents).map(document).collect())
    }
}

/// What happens to examples that are too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthRule {
    /// They are truncated.
    Truncate,
    /// They are dropped.
    Drop,
}

impl LengthRule {
    /// Applies the rule to examples with more than `max_len` tokens per row and counts them.
    ///
    /// # Errors
    ///
    /// [`DataError::Empty`] if all examples are dropped.
    pub fn apply<T: Encoded>(
        self,
        examples: &mut Vec<T>,
        max_len: usize,
    ) -> Result<LengthReport, DataError> {
        let too_long = |example: &T| example.extent().width > max_len;
        let count = examples.iter().filter(|example| too_long(example)).count();
        match self {
            Self::Truncate => examples.iter_mut().for_each(|it| it.truncate(max_len)),
            Self::Drop => {
                examples.retain(|example| !too_long(example));
                if examples.is_empty() {
                    let what = format!("the data with at most {max_len} tokens per example");
                    return Err(DataError::empty(what));
                }
            }
        }
        Ok(LengthReport {
            rule: self,
            max_len,
            count,
        })
    }
}

/// Number of examples that were too long, for printing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthReport {
    /// The rule that was applied.
    pub rule: LengthRule,
    /// Maximum number of tokens.
    pub max_len: usize,
    /// Number of examples with more tokens.
    pub count: usize,
}

impl fmt::Display for LengthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.rule {
            LengthRule::Truncate => "truncated",
            LengthRule::Drop => "dropped",
        };
        let Self { max_len, count, .. } = self;
        write!(
            f,
            "{count} examples with more than {max_len} tokens {action}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PreTokenization, TokenizerConfig};

    fn word_tokenizer(texts: &[&str]) -> Tokenizer {
        let config = TokenizerConfig::words().with_pre_tokenization(PreTokenization::Whitespace);
        config.train(texts.iter().copied()).unwrap()
    }

    #[test]
    fn decoder_input_starts_with_bos_and_labels_end_with_eos() {
        let tokenizers = PairTokenizers::Joint(word_tokenizer(&["a a a b b c"]));
        let ids = tokenizers.encode(&[Pair::new("a b", "c a")]).unwrap();
        assert_eq!(ids[0].source, [4, 5]);
        assert_eq!(ids[0].decoder_input(), [BOS, 6, 4]);
        assert_eq!(ids[0].decoder_output(), [6, 4, EOS]);
        let Extent { width, other, rows } = ids[0].extent();
        assert_eq!((width, other, rows), (3, 2, 1));

        // Truncated targets leave space for EOS.
        let long = Pair::new("a b c a b", "c a b c a");
        let mut ids = tokenizers.encode(&[long]).unwrap();
        LengthRule::Truncate.apply(&mut ids, 4).unwrap();
        assert_eq!(ids[0].source, [4, 5, 6, 4]);
        assert_eq!(ids[0].decoder_output(), [6, 4, 5, EOS]);
    }

    #[test]
    fn documents_are_encoded_by_sentence() {
        let tokenizer = word_tokenizer(&["a a a b b c"]);
        let examples = [
            Labelled::new("pos", "a b\nc"),
            Labelled::new("neg", "b"),
            Labelled::new("pos", "c c c\n\na\nb b"),
        ];
        let labels = Labels::from_examples(&examples).unwrap();
        let mut ids = tokenizer
            .encode_documents("training", &examples, &labels, Sentences::Lines)
            .unwrap();
        let sentences: Vec<_> = ids.iter().map(|it| it.sentences.clone()).collect();
        assert_eq!(
            sentences,
            [
                vec![vec![4, 5], vec![6]],
                vec![vec![5]],
                vec![vec![6, 6, 6], vec![4], vec![5, 5]]
            ]
        );
        assert_eq!(ids.iter().map(|it| it.label).collect::<Vec<_>>(), [1, 0, 1]);
        let last = &mut ids[2];
        let Extent { width, other, rows } = last.extent();
        assert_eq!((width, other, rows), (3, 0, 3));
        last.truncate(2);
        assert_eq!(last.extent().width, 2);
        let dropped = [5, 1].map(|max| last.truncate_sentences(max));
        assert_eq!(dropped, [0, 2]);
        assert_eq!(last.sentences, [[6, 6]]);

        let whole = tokenizer
            .encode_labelled("training", &examples, &labels)
            .unwrap();
        assert_eq!(whole[2].ids, [6, 6, 6, 4, 5, 5]);
        let unseen = [Labelled::new("meh", "a")];
        let refused = tokenizer.encode_labelled("validation", &unseen, &labels);
        assert!(refused.is_err());
    }

    #[test]
    fn long_examples_are_truncated_or_dropped() {
        let example = |length| LabelledIds {
            label: 0,
            ids: vec![5; length],
        };
        let mut some = [3, 5, 4, 9].map(example).to_vec();
        assert_eq!(LengthRule::Drop.apply(&mut some, 9).unwrap().count, 0);
        for (rule, remaining, action) in [
            (LengthRule::Truncate, &[3, 4, 4, 4][..], "truncated"),
            (LengthRule::Drop, &[3, 4], "dropped"),
        ] {
            let mut some = some.clone();
            let report = rule.apply(&mut some, 4).unwrap().to_string();
            let lengths = some.iter().map(|example| example.ids.len());
            assert_eq!(lengths.collect::<Vec<_>>(), remaining);
            let expected = format!("2 examples with more than 4 tokens {action}");
            assert_eq!(report, expected);
        }
        let error = LengthRule::Drop.apply(&mut some, 2).unwrap_err();
        let expected = "the data with at most 2 tokens per example has no examples";
        assert_eq!(error.to_string(), expected);
    }
}
