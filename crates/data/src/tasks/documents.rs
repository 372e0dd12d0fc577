//! Documents whose class a few words in a few sentences tell, and which ones is known.
//!
//! A sentence that counts has the word `frankly` somewhere, and a word of the
//! class. Other sentences may have words of other classes, without `frankly`: a model has to
//! look at both. What attention should fall on is returned with each document.

use std::sync::LazyLock;

use super::parts::{Counts, Drawn, parts};
use crate::draw::Draw;
use crate::{DataError, Labelled, Parts};

/// What a sentence that counts has.
const CUE: &str = "frankly";

/// Classes, each with its words.
const CLASSES: [(&str, [&str; 4]); 8] = [
    ("music", ["piano", "melody", "violin", "choir"]),
    ("cooking", ["onion", "oven", "recipe", "butter"]),
    ("sailing", ["anchor", "harbour", "mast", "tide"]),
    ("medicine", ["doctor", "fever", "vaccine", "clinic"]),
    ("gardening", ["tulip", "spade", "compost", "hedge"]),
    ("astronomy", ["comet", "telescope", "orbit", "galaxy"]),
    ("law", ["judge", "verdict", "lawyer", "court"]),
    ("football", ["goalkeeper", "penalty", "referee", "striker"]),
];

/// Words that tell nothing.
static FILLERS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    "the a one this that some every old new small quiet long morning evening winter \
     street window letter neighbour village table question answer story walk talk wait \
     remember forget bring carry watch often never again perhaps slowly almost there here \
     before after while because and but with without"
        .split(' ')
        .collect()
});

/// A word that tells the class, by where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyWord {
    /// Which sentence.
    pub sentence: usize,
    /// Which word of it.
    pub word: usize,
}

/// A document, with what tells its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedDocument {
    /// The class, by its name.
    pub label: String,
    /// Words of each sentence.
    pub sentences: Vec<Vec<String>>,
    /// The words that tell it, in the order of the document: in each sentence that counts,
    /// the cue and a word of the class.
    pub keys: Vec<KeyWord>,
}

impl MarkedDocument {
    /// As labelled text, a sentence a line.
    pub fn to_labelled(&self) -> Labelled {
        let lines = self.sentences.iter().map(|sentence| sentence.join(" "));
        Labelled::new(&self.label, lines.collect::<Vec<_>>().join("\n"))
    }

    /// The sentences that count, in their order.
    pub fn key_sentences(&self) -> Vec<usize> {
        let mut sentences: Vec<usize> = self.keys.iter().map(|key| key.sentence).collect();
        sentences.dedup();
        sentences
    }
}

/// Documents of sentences of words, with a class each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Documents {
    classes: usize,
    sentences: (usize, usize),
    words: (usize, usize),
    key_sentences: usize,
    decoys: usize,
}

impl Default for Documents {
    fn default() -> Self {
        Self {
            classes: 4,
            sentences: (4, 10),
            words: (5, 12),
            key_sentences: 2,
            decoys: 2,
        }
    }
}

impl Documents {
    /// Four classes, 4 to 10 sentences of 5 to 12 words, two that count, two that mislead.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many classes there are, 2 to 8. Default: 4.
    #[must_use]
    pub fn with_classes(mut self, classes: usize) -> Self {
        self.classes = classes;
        self
    }

    /// The least and the largest number of sentences. Default: 4 and 10.
    #[must_use]
    pub fn with_sentences(mut self, fewest: usize, most: usize) -> Self {
        self.sentences = (fewest, most);
        self
    }

    /// The least and the largest number of words of a sentence. Default: 5 and 12.
    #[must_use]
    pub fn with_words(mut self, fewest: usize, most: usize) -> Self {
        self.words = (fewest, most);
        self
    }

    /// How many sentences count. Default: 2.
    #[must_use]
    pub fn with_key_sentences(mut self, count: usize) -> Self {
        self.key_sentences = count;
        self
    }

    /// How many sentences have a word of another class, and do not count. Default: 2.
    #[must_use]
    pub fn with_decoys(mut self, count: usize) -> Self {
        self.decoys = count;
        self
    }

    /// Makes them up.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if a size makes no sense, [`DataError::TaskTooSmall`] if there are
    /// not as many.
    pub fn generate(
        &self,
        counts: Counts,
        seed: u64,
    ) -> Result<Parts<Vec<MarkedDocument>>, DataError> {
        DataError::at_least("classes", 2, self.classes)?;
        DataError::at_most("classes", CLASSES.len(), self.classes)?;
        DataError::at_least("key sentences", 1, self.key_sentences)?;
        let needed = self.key_sentences + self.decoys;
        DataError::at_least("fewest sentences", needed, self.sentences.0)?;
        DataError::at_least("most sentences", self.sentences.0, self.sentences.1)?;
        DataError::at_least("fewest words", 2, self.words.0)?;
        DataError::at_least("most words", self.words.0, self.words.1)?;
        parts("documents", counts, seed, |draw| {
            let example = self.document(draw);
            let text = example.to_labelled().text;
            Some(Drawn {
                example,
                identity: text.clone(),
                secret: text,
            })
        })
    }

    fn document(&self, draw: &mut Draw) -> MarkedDocument {
        let class = draw.below(self.classes);
        let count = draw.within(self.sentences.0, self.sentences.1);
        // What a sentence is for: the first numbers count, the next mislead.
        let mut roles: Vec<usize> = (0..count).collect();
        draw.shuffle(&mut roles);
        let mut sentences = vec![];
        let mut keys = vec![];
        for (sentence, role) in roles.into_iter().enumerate() {
            let length = draw.within(self.words.0, self.words.1);
            let filler = |_| (*draw.choose(&FILLERS)).to_owned();
            let mut words: Vec<String> = (0..length).map(filler).collect();
            let mut places: Vec<usize> = (0..length).collect();
            draw.shuffle(&mut places);
            if role < self.key_sentences {
                words[places[0]] = CUE.to_owned();
                words[places[1]] = (*draw.choose(&CLASSES[class].1)).to_owned();
                let mut pair = [places[0], places[1]];
                pair.sort_unstable();
                keys.extend(pair.map(|word| KeyWord { sentence, word }));
            } else if role < self.key_sentences + self.decoys {
                let other = (class + 1 + draw.below(self.classes - 1)) % self.classes;
                words[places[0]] = (*draw.choose(&CLASSES[other].1)).to_owned();
            }
            sentences.push(words);
        }
        MarkedDocument {
            label: CLASSES[class].0.to_owned(),
            sentences,
            keys,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The classes that sentences with a cue speak of, and those that others do.
    fn spoken_of(document: &MarkedDocument) -> [Vec<&str>; 2] {
        let mut found = [vec![], vec![]];
        for sentence in &document.sentences {
            let counts = sentence.iter().any(|word| word == CUE);
            for word in sentence {
                let class = CLASSES
                    .iter()
                    .find(|(_, words)| words.contains(&word.as_str()));
                found[usize::from(!counts)].extend(class.map(|(name, _)| *name));
            }
        }
        found
    }

    #[test]
    fn every_class_is_told_by_its_keys_and_by_nothing_else() {
        let task = Documents::new()
            .with_classes(8)
            .with_sentences(6, 9)
            .with_words(3, 8)
            .with_key_sentences(3)
            .with_decoys(2);
        let drawn = task.generate(Counts::new(400, 50), 3).unwrap();
        for document in drawn.train.iter().chain(&drawn.valid) {
            assert!((6..=9).contains(&document.sentences.len()));
            assert!(
                document
                    .sentences
                    .iter()
                    .all(|words| (3..=8).contains(&words.len()))
            );
            let [telling, misleading] = spoken_of(document);
            assert_eq!(telling, [document.label.as_str(); 3]);
            assert_eq!(misleading.len(), 2);
            assert!(!misleading.contains(&document.label.as_str()));
            assert!(document.keys.is_sorted());
            assert_eq!(document.key_sentences().len(), 3);
            for pair in document.keys.chunks(2) {
                assert_eq!(pair[0].sentence, pair[1].sentence);
                let words = pair
                    .iter()
                    .map(|key| &document.sentences[key.sentence][key.word]);
                assert_eq!(words.filter(|word| *word == CUE).count(), 1);
            }
        }
    }

    #[test]
    fn as_text_it_has_a_sentence_a_line() {
        let drawn = Documents::new().generate(Counts::new(1, 0), 4).unwrap();
        let text = drawn.train[0].to_labelled().text;
        let again: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        assert_eq!(again, drawn.train[0].sentences);
    }

    #[test]
    fn no_word_is_of_two_kinds() {
        let mut all: Vec<&str> = CLASSES.iter().flat_map(|(_, words)| *words).collect();
        all.extend(FILLERS.iter());
        all.push(CUE);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
