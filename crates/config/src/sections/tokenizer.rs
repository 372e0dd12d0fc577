//! `[tokenizer]`: how text becomes tokens.

use super::Files;
use crate::keys::{Presence, SIZE, Values, keys, kinds, words};

kinds! {
    /// How text becomes tokens.
    pub enum Tokenizer {
        /// A token for each character.
        Char(Units) = "char",
        /// A token for each word, and for what stands between them.
        Word(Units) = "word",
        /// Tokens that are found by joining what often comes together.
        Bpe(Bpe) = "bpe",
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
    /// Tokens that are characters, or words.
    pub struct Units {
        /// Whether source and target have one vocabulary.
        vocabulary: Option<Vocabulary> = None, Values::Words(Vocabulary::WORDS),
            Presence::Optional(VOCABULARY);
        /// Tokens there are at most, the most frequent ones; others are unknown.
        size: Option<usize> = None, Values::Count { least: 8 }, Presence::Optional("any number");
        /// How often something must come in the data to be a token.
        min_frequency: usize = 1, SIZE;
        /// Whether text is put into lower case first.
        lowercase: bool = false, Values::Flag;
        /// A tokenizer that was saved, or two, instead of one that is learned.
        load: Option<Files> = None, Values::Paths, Presence::Optional("it is learned from the data");
    }
}

keys! {
    /// Tokens that are found by joining: Sennrich et al., [Neural Machine Translation of Rare
    /// Words](https://arxiv.org/abs/1508.07909), 2015.
    pub struct Bpe {
        /// Whether source and target have one vocabulary.
        vocabulary: Option<Vocabulary> = None, Values::Words(Vocabulary::WORDS),
            Presence::Optional(VOCABULARY);
        /// Tokens there are.
        size: usize = 8000, Values::Count { least: 8 };
        /// How often two tokens must come together to be joined.
        min_frequency: usize = 2, SIZE;
        /// Whether text is put into lower case first.
        lowercase: bool = false, Values::Flag;
        /// A tokenizer that was saved, or two, instead of one that is learned.
        load: Option<Files> = None, Values::Paths, Presence::Optional("it is learned from the data");
    }
}

const VOCABULARY: &str =
    "`joint` with `model.tying = \"all\"`, else `separate`; nothing where there is one text";

words! {
    /// Whether source and target have one vocabulary.
    pub enum Vocabulary {
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
            Self::Char(units) | Self::Word(units) => units.vocabulary,
            Self::Bpe(bpe) => bpe.vocabulary,
        }
    }

    pub(crate) fn vocabulary_mut(&mut self) -> &mut Option<Vocabulary> {
        match self {
            Self::Char(units) | Self::Word(units) => &mut units.vocabulary,
            Self::Bpe(bpe) => &mut bpe.vocabulary,
        }
    }

    /// What is loaded instead of learned.
    pub fn load(&self) -> Option<&Files> {
        match self {
            Self::Char(units) | Self::Word(units) => units.load.as_ref(),
            Self::Bpe(bpe) => bpe.load.as_ref(),
        }
    }
}
