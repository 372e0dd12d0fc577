//! `[tokenizer]`: how text becomes tokens.

use super::Files;
use crate::keys::{Presence, STEPS, TOKENS, Values, keys, kinds, words};

kinds! {
    /// How text becomes tokens.
    pub enum Tokenizer {
        /// A token for each character.
        Char(CharTokens) = "char",
        /// A token for each word.
        Word(WordTokens) = "word",
        /// Tokens that are found by joining what often comes together.
        Bpe(BpeTokens) = "bpe",
    }
}

/// The one that is taken where a file names none.
pub(crate) fn usual_kind(data: &str) -> &'static str {
    match data {
        "parallel" => "bpe",
        "copy" | "reverse" | "sort" | "recall" | "listops" | "documents" | "labelled" => "word",
        _ => "char",
    }
}

keys! {
    /// Tokens that are characters.
    pub struct CharTokens {
        /// Whether source and target have one vocabulary.
        vocabulary: Option<Vocabulary> = None, Values::Words(Vocabulary::WORDS),
            Presence::Optional(VOCABULARY);
        /// Tokens there are at most, the most frequent ones; others are unknown.
        size: Option<usize> = None, TOKENS, Presence::Optional("any number");
        /// How often something must come in the data to be a token.
        min_frequency: usize = 1, STEPS;
        /// Whether text is put into lower case first.
        lowercase: bool = false, Values::Flag;
        /// Whether a character that was never seen becomes tokens of its bytes, or an unknown one.
        byte_fallback: bool = false, Values::Flag;
        /// A tokenizer that was saved, or two, instead of one that is learned.
        load: Option<Files> = None, Values::Paths, Presence::Optional("it is learned from the data");
    }
}

keys! {
    /// Tokens that are words.
    pub struct WordTokens {
        /// Whether source and target have one vocabulary.
        vocabulary: Option<Vocabulary> = None, Values::Words(Vocabulary::WORDS),
            Presence::Optional(VOCABULARY);
        /// Tokens there are at most, the most frequent ones; others are unknown.
        size: Option<usize> = None, TOKENS, Presence::Optional("any number");
        /// How often something must come in the data to be a token.
        min_frequency: usize = 1, STEPS;
        /// Whether text is put into lower case first.
        lowercase: bool = false, Values::Flag;
        /// Where words begin and end.
        words: Option<WordRule> = None, Values::Words(WordRule::WORDS), Presence::Optional(WORDS);
        /// A tokenizer that was saved, or two, instead of one that is learned.
        load: Option<Files> = None, Values::Paths, Presence::Optional("it is learned from the data");
    }
}

keys! {
    /// Tokens that are found by joining: Sennrich et al., [Neural Machine Translation of Rare
    /// Words](https://arxiv.org/abs/1508.07909), 2015.
    pub struct BpeTokens {
        /// Whether source and target have one vocabulary.
        vocabulary: Option<Vocabulary> = None, Values::Words(Vocabulary::WORDS),
            Presence::Optional(VOCABULARY);
        /// Tokens there are.
        size: usize = 8000, TOKENS;
        /// How often two tokens must come together to be joined.
        min_frequency: usize = 2, STEPS;
        /// Whether text is put into lower case first.
        lowercase: bool = false, Values::Flag;
        /// Where words begin and end.
        words: Option<WordRule> = None, Values::Words(WordRule::WORDS), Presence::Optional(WORDS);
        /// Whether a character that was never seen becomes tokens of its bytes, or an unknown one.
        byte_fallback: bool = true, Values::Flag;
        /// A tokenizer that was saved, or two, instead of one that is learned.
        load: Option<Files> = None, Values::Paths, Presence::Optional("it is learned from the data");
    }
}

const VOCABULARY: &str = "`joint` with `model.tying = \"all\"`, else `separate`; nothing where there is \
                          one text";
const WORDS: &str = "`spaces` for what is made up, else `marks`";

words! {
    /// Where words begin and end.
    pub enum WordRule: "rule for words" {
        /// At spaces only: for text that is tokenized already.
        Spaces = "spaces",
        /// At spaces, and marks are words of their own; so is each Chinese character.
        Marks = "marks",
    }
}

words! {
    /// Whether source and target have one vocabulary.
    pub enum Vocabulary: "vocabulary" {
        /// One for both.
        Joint = "joint",
        /// One for each.
        Separate = "separate",
    }
}

impl Tokenizer {
    /// Whether source and target have one vocabulary, if there are both.
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        match self {
            Self::Char(tokens) => tokens.vocabulary,
            Self::Word(tokens) => tokens.vocabulary,
            Self::Bpe(tokens) => tokens.vocabulary,
        }
    }

    pub(crate) fn vocabulary_mut(&mut self) -> &mut Option<Vocabulary> {
        match self {
            Self::Char(tokens) => &mut tokens.vocabulary,
            Self::Word(tokens) => &mut tokens.vocabulary,
            Self::Bpe(tokens) => &mut tokens.vocabulary,
        }
    }

    pub(crate) fn words(&self) -> Option<WordRule> {
        match self {
            Self::Char(_) => None,
            Self::Word(tokens) => tokens.words,
            Self::Bpe(tokens) => tokens.words,
        }
    }

    pub(crate) fn words_mut(&mut self) -> Option<&mut Option<WordRule>> {
        match self {
            Self::Char(_) => None,
            Self::Word(tokens) => Some(&mut tokens.words),
            Self::Bpe(tokens) => Some(&mut tokens.words),
        }
    }

    /// What is loaded instead of learned.
    pub fn load(&self) -> Option<&Files> {
        match self {
            Self::Char(tokens) => tokens.load.as_ref(),
            Self::Word(tokens) => tokens.load.as_ref(),
            Self::Bpe(tokens) => tokens.load.as_ref(),
        }
    }
}
