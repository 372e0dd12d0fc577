//! Examples as tokens, and what is done with those that are longer than a model or a batch takes.

use std::fmt;

use zoo_config::Sentences;

use crate::{
    BEGIN, DataError, END, Labelled, Labels, Pair, PairTokenizers, Tokenizer, split_sentences,
};

/// A text and what is to be made of it, as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairIds {
    /// What is given.
    pub source: Vec<u32>,
    /// What is wanted, without a beginning and an end.
    pub target: Vec<u32>,
}

impl PairIds {
    /// What a decoder is given: the beginning and the target.
    pub fn decoder_input(&self) -> Vec<u32> {
        [&[BEGIN], self.target.as_slice()].concat()
    }

    /// What it is to say, place by place: the target and the end.
    pub fn decoder_output(&self) -> Vec<u32> {
        [self.target.as_slice(), &[END]].concat()
    }
}

/// A document as one sequence of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledIds {
    /// The class, by its number.
    pub label: usize,
    /// The document.
    pub ids: Vec<u32>,
}

/// A document as sentences of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentIds {
    /// The class, by its number.
    pub label: usize,
    /// The document.
    pub sentences: Vec<Vec<u32>>,
}

impl DocumentIds {
    /// Leaves out what comes after so many sentences. Returns how many that were.
    pub fn keep_sentences(&mut self, most: usize) -> usize {
        let before = self.sentences.len();
        self.sentences.truncate(most);
        before - self.sentences.len()
    }
}

/// How much room an example takes in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Tokens of its longest row.
    pub width: usize,
    /// Tokens of its other side, if it has one: those of the same width are sorted by it.
    pub other: usize,
    /// Rows; a document has one for each sentence, all others have one.
    pub rows: usize,
}

/// An example as tokens, of any kind.
pub trait Encoded {
    /// How much room it takes.
    fn extent(&self) -> Extent;

    /// Cuts what is longer than so many tokens: the end of a text, or of each sentence.
    fn shorten(&mut self, longest: usize);
}

impl Encoded for PairIds {
    /// The target counts one token more: its beginning, or its end.
    fn extent(&self) -> Extent {
        let [source, target] = [self.source.len(), self.target.len() + 1];
        Extent {
            width: source.max(target),
            other: source.min(target),
            rows: 1,
        }
    }

    fn shorten(&mut self, longest: usize) {
        self.source.truncate(longest);
        self.target.truncate(longest.saturating_sub(1));
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

    fn shorten(&mut self, longest: usize) {
        self.ids.truncate(longest);
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

    fn shorten(&mut self, longest: usize) {
        for sentence in &mut self.sentences {
            sentence.truncate(longest);
        }
    }
}

impl PairTokenizers {
    /// Pairs as tokens.
    pub fn encode(&self, pairs: &[Pair]) -> Result<Vec<PairIds>, DataError> {
        let sources = pairs.iter().map(|pair| pair.source.as_str());
        let targets = pairs.iter().map(|pair| pair.target.as_str());
        let sources = self.source().encode_all(sources)?;
        let targets = self.target().encode_all(targets)?;
        let both = sources.into_iter().zip(targets);
        Ok(both
            .map(|(source, target)| PairIds { source, target })
            .collect())
    }
}

impl Tokenizer {
    /// Documents as tokens; `part` is what they are called in errors.
    pub fn encode_labelled(
        &self,
        part: &str,
        examples: &[Labelled],
        labels: &Labels,
    ) -> Result<Vec<LabelledIds>, DataError> {
        let numbers = labels.numbers(part, examples)?;
        let ids = self.encode_all(examples.iter().map(|example| example.text.as_str()))?;
        let both = numbers.into_iter().zip(ids);
        Ok(both
            .map(|(label, ids)| LabelledIds { label, ids })
            .collect())
    }

    /// Documents as sentences of tokens; `part` is what they are called in errors.
    pub fn encode_documents(
        &self,
        part: &str,
        examples: &[Labelled],
        labels: &Labels,
        by: Sentences,
    ) -> Result<Vec<DocumentIds>, DataError> {
        let numbers = labels.numbers(part, examples)?;
        let documents: Vec<Vec<&str>> = examples
            .iter()
            .map(|example| split_sentences(&example.text, by))
            .collect();
        let all = documents.iter().flatten().copied();
        let mut ids = self.encode_all(all)?.into_iter();
        let both = numbers.into_iter().zip(&documents);
        Ok(both
            .map(|(label, sentences)| DocumentIds {
                label,
                sentences: ids.by_ref().take(sentences.len()).collect(),
            })
            .collect())
    }
}

/// What is done with an example that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthRule {
    /// It is cut.
    Shorten,
    /// It is left out.
    LeaveOut,
}

impl LengthRule {
    /// Applies the rule to examples of which none may have more than `longest` tokens a row.
    /// Returns how many were too long.
    ///
    /// # Errors
    ///
    /// [`DataError::Empty`] if all are left out.
    pub fn apply<T: Encoded>(
        self,
        examples: &mut Vec<T>,
        longest: usize,
    ) -> Result<LengthReport, DataError> {
        let too_long = |example: &T| example.extent().width > longest;
        let count = examples.iter().filter(|example| too_long(example)).count();
        match self {
            Self::Shorten => examples.iter_mut().for_each(|it| it.shorten(longest)),
            Self::LeaveOut => {
                examples.retain(|example| !too_long(example));
                if examples.is_empty() {
                    let what = format!("what has at most {longest} tokens");
                    return Err(DataError::Empty { what });
                }
            }
        }
        Ok(LengthReport {
            rule: self,
            longest,
            count,
        })
    }
}

/// What became of examples that were too long. Print it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthReport {
    /// What was done.
    pub rule: LengthRule,
    /// Tokens that were allowed.
    pub longest: usize,
    /// Examples that had more.
    pub count: usize,
}

impl fmt::Display for LengthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.rule {
            LengthRule::Shorten => "shortened",
            LengthRule::LeaveOut => "left out",
        };
        let Self { longest, count, .. } = self;
        write!(f, "{count} examples of more than {longest} tokens {done}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TokenizerConfig, WordRule};

    fn words(texts: &[&str]) -> Tokenizer {
        let config = TokenizerConfig::words().with_words(WordRule::Spaces);
        config.train(texts.iter().copied()).unwrap()
    }

    #[test]
    fn pairs_begin_and_end_for_the_decoder() {
        let tokenizers = PairTokenizers::Joint(words(&["a a a b b c"]));
        let ids = tokenizers.encode(&[Pair::new("a b", "c a")]).unwrap();
        assert_eq!(ids[0].source, [4, 5]);
        assert_eq!(ids[0].decoder_input(), [BEGIN, 6, 4]);
        assert_eq!(ids[0].decoder_output(), [6, 4, END]);
        let Extent { width, other, rows } = ids[0].extent();
        assert_eq!((width, other, rows), (3, 2, 1));
    }

    #[test]
    fn documents_are_sentences_of_words() {
        let tokenizer = words(&["a a a b b c"]);
        let examples = [
            Labelled::new("pos", "a b\nc"),
            Labelled::new("neg", "b"),
            Labelled::new("pos", "c c c\n\na\nb b"),
        ];
        let labels = Labels::of(&examples).unwrap();
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
        let Extent { width, other, rows } = ids[2].extent();
        assert_eq!((width, other, rows), (3, 0, 3));
        ids[2].shorten(2);
        assert_eq!(ids[2].extent().width, 2);
        assert_eq!((ids[2].keep_sentences(5), ids[2].keep_sentences(1)), (0, 2));
        assert_eq!(ids[2].sentences, [[6, 6]]);

        let whole = tokenizer
            .encode_labelled("training", &examples, &labels)
            .unwrap();
        assert_eq!(whole[2].ids, [6, 6, 6, 4, 5, 5]);
        let unseen = [Labelled::new("meh", "a")];
        let refused = tokenizer.encode_labelled("validation", &unseen, &labels);
        assert!(refused.is_err());
    }

    fn examples(lengths: &[usize]) -> Vec<LabelledIds> {
        let example = |length: &usize| LabelledIds {
            label: 0,
            ids: vec![5; *length],
        };
        lengths.iter().map(example).collect()
    }

    fn lengths(examples: &[LabelledIds]) -> Vec<usize> {
        examples.iter().map(|example| example.ids.len()).collect()
    }

    #[test]
    fn each_rule_does_what_it_says() {
        for (rule, left, said) in [
            (LengthRule::Shorten, &[3, 4, 4, 4][..], "shortened"),
            (LengthRule::LeaveOut, &[3, 4][..], "left out"),
        ] {
            let mut some = examples(&[3, 5, 4, 9]);
            let report = rule.apply(&mut some, 4).unwrap().to_string();
            assert_eq!(lengths(&some), left);
            assert_eq!(report, format!("2 examples of more than 4 tokens {said}"));
        }
        let mut some = examples(&[3, 5, 4, 9]);
        assert_eq!(LengthRule::LeaveOut.apply(&mut some, 9).unwrap().count, 0);
        let error = LengthRule::LeaveOut.apply(&mut some, 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "what has at most 2 tokens has no examples"
        );
    }

    #[test]
    fn a_target_keeps_room_for_its_end() {
        let mut pairs = vec![PairIds {
            source: vec![4; 9],
            target: vec![4; 9],
        }];
        LengthRule::Shorten.apply(&mut pairs, 6).unwrap();
        assert_eq!(pairs[0].decoder_output().len(), 6);
        assert_eq!(pairs[0].source.len(), 6);
    }
}
