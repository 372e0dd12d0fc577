//! What makes tokens of a run's texts, learned or loaded, and kept in the run's folder.

use std::path::Path;

use zoo_config::{Config, Data, Files, Model, Sentences, Tokenizer as Said, Vocabulary, WordRule};
use zoo_data::{
    DocumentIds, Encoded, LabelledIds, Labels, LengthRule, PairIds, PairTokenizers, Parts,
    SentenceRule, Tokenizer, TokenizerConfig,
};

use crate::run::write_atomic;
use crate::{Speech, Texts, TrainError};

const TOKENIZER: &str = "tokenizer.json";
const LABELS: &str = "labels.json";

/// What makes tokens of texts, and texts of tokens.
#[derive(Debug, Clone)]
pub enum Tokenizers {
    /// Of what is given and of what is wanted.
    Pair(PairTokenizers),
    /// Of texts, which are of these classes.
    Labelled(Tokenizer, Labels),
    /// Of running text.
    Plain(Tokenizer),
}

/// Examples as tokens, in three parts.
#[derive(Debug, Clone)]
pub enum Examples {
    /// Of texts and what is to be made of them.
    Pairs(Parts<Vec<PairIds>>),
    /// Of texts and their classes.
    Labelled(Parts<Vec<LabelledIds>>),
    /// The same, as sentences.
    Documents(Parts<Vec<DocumentIds>>),
    /// Running text.
    Plain(Parts<Vec<u32>>),
}

impl Tokenizers {
    /// Learns them from the texts to learn from, or loads them, as the config says.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`].
    pub fn prepare(config: &Config, texts: &Texts) -> Result<Self, TrainError> {
        let learned = tokenizer_config(&config.tokenizer);
        let loaded = config.tokenizer.load();
        Ok(match texts {
            Texts::Pairs(parts) => Self::Pair(match (loaded, config.vocabulary()) {
                (Some(Files::Two([source, target])), _) => PairTokenizers::Separate {
                    source: Tokenizer::load(source)?,
                    target: Tokenizer::load(target)?,
                },
                (Some(Files::One(both)), _) => PairTokenizers::Joint(Tokenizer::load(both)?),
                (None, Some(Vocabulary::Joint)) => {
                    PairTokenizers::train_joint(&learned, &parts.train)?
                }
                (None, _) => PairTokenizers::train_separate(&learned, &learned, &parts.train)?,
            }),
            Texts::Labelled(parts) => {
                let labels = Labels::of(&parts.train)?;
                let texts = parts.train.iter().map(|example| example.text.as_str());
                Self::Labelled(one(&learned, loaded, texts)?, labels)
            }
            Texts::Plain(parts) => {
                Self::Plain(one(&learned, loaded, [parts.train.as_str()].into_iter())?)
            }
        })
    }

    /// Writes them into a run's folder.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`] or [`TrainError::File`] if that cannot be.
    pub fn save(&self, folder: &Path) -> Result<(), TrainError> {
        let files = match self {
            Self::Pair(pair) => pair.files(),
            Self::Labelled(tokenizer, _) | Self::Plain(tokenizer) => vec![(TOKENIZER, tokenizer)],
        };
        for (name, tokenizer) in files {
            write_atomic(&folder.join(name), tokenizer.to_json()?.as_bytes())?;
        }
        if let Self::Labelled(_, labels) = self {
            let text = serde_json::to_string_pretty(labels);
            let path = folder.join(LABELS);
            write_atomic(&path, text.map_err(TrainError::content(&path))?.as_bytes())?;
        }
        Ok(())
    }

    /// Reads what [`save`](Self::save) wrote for the model of the config.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`] or [`TrainError::File`] if that is not there any more.
    pub fn load(config: &Config, folder: &Path) -> Result<Self, TrainError> {
        Ok(match config.model {
            Model::Transformer(_) | Model::Seq2Seq(_) => Self::Pair(PairTokenizers::load(folder)?),
            Model::Gpt(_) => Self::Plain(Tokenizer::load(&folder.join(TOKENIZER))?),
            Model::Han(_) | Model::Classifier(_) => {
                let path = folder.join(LABELS);
                let text = std::fs::read_to_string(&path).map_err(TrainError::file(&path))?;
                let labels = serde_json::from_str(&text).map_err(TrainError::content(&path))?;
                Self::Labelled(Tokenizer::load(&folder.join(TOKENIZER))?, labels)
            }
        })
    }

    /// What reads and writes them.
    pub fn speech(&self) -> Speech<'_> {
        match self {
            Self::Pair(pair) => Speech::Pair(pair),
            Self::Labelled(tokenizer, labels) => Speech::Labelled(tokenizer, labels),
            Self::Plain(tokenizer) => Speech::Plain(tokenizer),
        }
    }

    /// Tokens of what is given, and of what is wanted if that is another text.
    pub fn sizes(&self) -> (usize, Option<usize>) {
        match self {
            Self::Pair(pair) => (pair.source().vocabulary(), Some(pair.target().vocabulary())),
            Self::Labelled(tokenizer, _) | Self::Plain(tokenizer) => (tokenizer.vocabulary(), None),
        }
    }

    /// The texts as tokens, and what was cut off or left out: lines to show.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`]: a class that is not among those to learn from, nothing short enough.
    pub fn encode(
        &self,
        config: &Config,
        texts: &Texts,
    ) -> Result<(Examples, Vec<String>), TrainError> {
        let mut notes = vec![];
        let examples = match (self, texts) {
            (Self::Pair(tokenizers), Texts::Pairs(parts)) => {
                let mut parts = Parts {
                    train: tokenizers.encode(&parts.train)?,
                    valid: tokenizers.encode(&parts.valid)?,
                    test: tokenizers.encode(&parts.test)?,
                };
                if let Data::Parallel(data) = &config.data
                    && let Some(longest) = data.max_length
                {
                    // What is looked at stays whole: a number about part of it is none.
                    shorten(
                        LengthRule::LeaveOut,
                        "training",
                        &mut parts.train,
                        longest,
                        &mut notes,
                    )?;
                }
                Examples::Pairs(parts)
            }
            (Self::Labelled(tokenizer, labels), Texts::Labelled(parts)) => {
                let of_han = matches!(config.model, Model::Han(_));
                match of_han {
                    true => Examples::Documents(documents(
                        config, tokenizer, labels, parts, &mut notes,
                    )?),
                    false => {
                        Examples::Labelled(sequences(config, tokenizer, labels, parts, &mut notes)?)
                    }
                }
            }
            (Self::Plain(tokenizer), Texts::Plain(parts)) => Examples::Plain(Parts {
                train: tokenizer.encode(&parts.train)?,
                valid: tokenizer.encode(&parts.valid)?,
                test: tokenizer.encode(&parts.test)?,
            }),
            _ => unreachable!("the config was checked: its model takes its data"),
        };
        Ok((examples, notes))
    }
}

fn one<'a>(
    learned: &TokenizerConfig,
    loaded: Option<&Files>,
    texts: impl Iterator<Item = &'a str>,
) -> Result<Tokenizer, TrainError> {
    Ok(match loaded {
        Some(Files::One(path)) => Tokenizer::load(path)?,
        Some(Files::Two([path, _])) => Tokenizer::load(path)?,
        None => learned.train(texts)?,
    })
}

fn sequences(
    config: &Config,
    tokenizer: &Tokenizer,
    labels: &Labels,
    parts: &Parts<Vec<zoo_data::Labelled>>,
    notes: &mut Vec<String>,
) -> Result<Parts<Vec<LabelledIds>>, TrainError> {
    let longest = match &config.data {
        Data::Labelled(data) => data.max_length,
        _ => None,
    };
    let mut part = |name: &'static str, examples: &[zoo_data::Labelled]| {
        let mut ids = tokenizer.encode_labelled(name, examples, labels)?;
        if let Some(longest) = longest {
            shorten(LengthRule::Shorten, name, &mut ids, longest, notes)?;
        }
        Ok::<_, TrainError>(ids)
    };
    Ok(Parts {
        train: part("training", &parts.train)?,
        valid: part("validation", &parts.valid)?,
        test: part("test", &parts.test)?,
    })
}

fn documents(
    config: &Config,
    tokenizer: &Tokenizer,
    labels: &Labels,
    parts: &Parts<Vec<zoo_data::Labelled>>,
    notes: &mut Vec<String>,
) -> Result<Parts<Vec<DocumentIds>>, TrainError> {
    let rule = sentence_rule(config);
    let (most_sentences, most_words) = match &config.data {
        Data::Labelled(data) => (data.max_sentences, data.max_words),
        _ => (None, None),
    };
    let mut part = |name: &'static str, examples: &[zoo_data::Labelled]| {
        let mut ids = tokenizer.encode_documents(name, examples, labels, rule)?;
        if let Some(most) = most_sentences {
            let longer =
                ids.iter_mut()
                    .filter_map(|document| match document.keep_sentences(most) {
                        0 => None,
                        _ => Some(()),
                    });
            match longer.count() {
                0 => {}
                count => notes.push(format!(
                    "{name}: {count} documents of more than {most} sentences shortened"
                )),
            }
        }
        if let Some(most) = most_words {
            shorten(LengthRule::Shorten, name, &mut ids, most, notes)?;
        }
        Ok::<_, TrainError>(ids)
    };
    Ok(Parts {
        train: part("training", &parts.train)?,
        valid: part("validation", &parts.valid)?,
        test: part("test", &parts.test)?,
    })
}

/// Where sentences of the config's documents end.
pub(crate) fn sentence_rule(config: &Config) -> SentenceRule {
    match &config.data {
        Data::Labelled(data) => match data.sentences {
            Some(Sentences::Lines) => SentenceRule::Lines,
            Some(Sentences::Marks) | None => SentenceRule::Marks,
        },
        // Those that are made up have a sentence a line.
        _ => SentenceRule::Lines,
    }
}

fn shorten<T: Encoded>(
    rule: LengthRule,
    part: &str,
    examples: &mut Vec<T>,
    longest: usize,
    notes: &mut Vec<String>,
) -> Result<(), TrainError> {
    if examples.is_empty() {
        return Ok(());
    }
    let report = rule.apply(examples, longest)?;
    if report.count > 0 {
        notes.push(format!("{part}: {report}"));
    }
    Ok(())
}

fn tokenizer_config(said: &Said) -> TokenizerConfig {
    let rule = |words: Option<WordRule>| match words {
        Some(WordRule::Spaces) => zoo_data::WordRule::Spaces,
        Some(WordRule::Marks) | None => zoo_data::WordRule::Marks,
    };
    let sized = |config: TokenizerConfig, size: Option<usize>| match size {
        Some(size) => config.with_size(size),
        None => config,
    };
    match said {
        Said::Char(said) => sized(TokenizerConfig::chars(), said.size)
            .with_min_frequency(said.min_frequency as u64)
            .with_lowercase(said.lowercase)
            .with_byte_fallback(said.byte_fallback),
        Said::Word(said) => sized(TokenizerConfig::words(), said.size)
            .with_min_frequency(said.min_frequency as u64)
            .with_lowercase(said.lowercase)
            .with_words(rule(said.words)),
        Said::Bpe(said) => TokenizerConfig::bpe(said.size)
            .with_min_frequency(said.min_frequency as u64)
            .with_lowercase(said.lowercase)
            .with_words(rule(said.words))
            .with_byte_fallback(said.byte_fallback),
    }
}
