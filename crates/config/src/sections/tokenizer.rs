//! `[tokenizer]`.

use super::Files;
use crate::keys::{Presence, STEPS, TOKENS, Values, keys, kinds, names};

kinds! {
    /// Tokenizer.
    pub enum Tokenizer {
        /// Characters.
        Char(CharTokens) = "char",
        /// Words.
        Word(WordTokens) = "word",
        /// Byte-pair encoding.
        Bpe(BpeTokens) = "bpe",
    }
}

/// The default tokenizer for a kind of data.
pub(crate) fn default_kind(data: &str) -> &'static str {
    match data {
        "parallel" => "bpe",
        "copy" | "reverse" | "sort" | "recall" | "listops" | "documents" | "labelled" => "word",
        _ => "char",
    }
}

keys! {
    /// Keys of `char`.
    pub struct CharTokens {
        /// Joint or separate vocabulary of source and target.
        vocabulary: Option<Vocabulary> = None, Values::Names(Vocabulary::NAMES),
            Presence::Optional(VOCABULARY);
        /// Maximum vocabulary size; rarer tokens become `<unk>`.
        vocab_size: Option<usize> = None, TOKENS, Presence::Optional("unlimited");
        /// Minimum frequency of a token.
        min_frequency: usize = 1, STEPS;
        /// Convert text to lower case.
        lowercase: bool = false, Values::Bool;
        /// Encode unknown characters as bytes instead of `<unk>`.
        byte_fallback: bool = false, Values::Bool;
        /// Path of a saved tokenizer, or of two (source and target).
        load: Option<Files> = None, Values::Paths, Presence::Optional("trained on the data");
    }

    /// Keys of `word`.
    pub struct WordTokens {
        /// Joint or separate vocabulary of source and target.
        vocabulary: Option<Vocabulary> = None, Values::Names(Vocabulary::NAMES),
            Presence::Optional(VOCABULARY);
        /// Maximum vocabulary size; rarer tokens become `<unk>`.
        vocab_size: Option<usize> = None, TOKENS, Presence::Optional("unlimited");
        /// Minimum frequency of a token.
        min_frequency: usize = 1, STEPS;
        /// Convert text to lower case.
        lowercase: bool = false, Values::Bool;
        /// Pre-tokenization: how text is split into words.
        pre_tokenizer: Option<PreTokenization> = None, Values::Names(PreTokenization::NAMES), Presence::Optional(PRE_TOKENIZER);
        /// Path of a saved tokenizer, or of two (source and target).
        load: Option<Files> = None, Values::Paths, Presence::Optional("trained on the data");
    }

    /// Keys of `bpe`: Sennrich et al., [Neural Machine Translation of Rare
    /// Words](https://arxiv.org/abs/1508.07909), 2015.
    pub struct BpeTokens {
        /// Joint or separate vocabulary of source and target.
        vocabulary: Option<Vocabulary> = None, Values::Names(Vocabulary::NAMES),
            Presence::Optional(VOCABULARY);
        /// Vocabulary size.
        vocab_size: usize = 8000, TOKENS;
        /// Minimum frequency of a merged pair.
        min_frequency: usize = 2, STEPS;
        /// Convert text to lower case.
        lowercase: bool = false, Values::Bool;
        /// Pre-tokenization: how text is split into words.
        pre_tokenizer: Option<PreTokenization> = None, Values::Names(PreTokenization::NAMES), Presence::Optional(PRE_TOKENIZER);
        /// Encode unknown characters as bytes instead of `<unk>`.
        byte_fallback: bool = true, Values::Bool;
        /// Path of a saved tokenizer, or of two (source and target).
        load: Option<Files> = None, Values::Paths, Presence::Optional("trained on the data");
    }
}

const VOCABULARY: &str = "`joint` with `model.tie_embeddings = \"all\"`, else `separate`; not set for data \
                          without a target text";
const PRE_TOKENIZER: &str = "`whitespace` for synthetic data, else `punctuation`";

names! {
    /// How text is split into words.
    pub enum PreTokenization: "pre-tokenizer" {
        /// At whitespace only, for tokenized text.
        Whitespace = "whitespace",
        /// At whitespace and punctuation; each Chinese character is a word.
        Punctuation = "punctuation",
    }

    /// Joint or separate vocabulary of source and target.
    pub enum Vocabulary: "vocabulary" {
        /// One vocabulary for both.
        Joint = "joint",
        /// One vocabulary for each.
        Separate = "separate",
    }
}

impl Tokenizer {
    /// Joint or separate vocabulary, if set.
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        match self {
            Self::Char(tokens) => tokens.vocabulary,
            Self::Word(tokens) => tokens.vocabulary,
            Self::Bpe(tokens) => tokens.vocabulary,
        }
    }

    pub(crate) fn pre_tokenizer(&self) -> Option<PreTokenization> {
        match self {
            Self::Char(_) => None,
            Self::Word(tokens) => tokens.pre_tokenizer,
            Self::Bpe(tokens) => tokens.pre_tokenizer,
        }
    }

    /// Sets the vocabulary, and the pre-tokenization if it is omitted.
    pub(crate) fn resolve(&mut self, vocabulary: Option<Vocabulary>, rule: PreTokenization) {
        let (own_vocabulary, own_rule) = match self {
            Self::Char(tokens) => (&mut tokens.vocabulary, &mut None),
            Self::Word(tokens) => (&mut tokens.vocabulary, &mut tokens.pre_tokenizer),
            Self::Bpe(tokens) => (&mut tokens.vocabulary, &mut tokens.pre_tokenizer),
        };
        *own_vocabulary = vocabulary;
        own_rule.get_or_insert(rule);
    }

    /// The saved tokenizer to load, if any.
    pub fn load(&self) -> Option<&Files> {
        match self {
            Self::Char(tokens) => tokens.load.as_ref(),
            Self::Word(tokens) => tokens.load.as_ref(),
            Self::Bpe(tokens) => tokens.load.as_ref(),
        }
    }
}
