//! Synthetic documents whose class depends on a few known words.
//!
//! A key sentence contains the cue word `frankly` and a word of the class. Decoy sentences contain
//! words of other classes without the cue: a model has to attend to both. The positions of the key
//! words are returned with each document.

use std::sync::LazyLock;

use zoo_config::Documents;
use zoo_spec::SplitMix64;

use super::Generate;
use super::splits::generate_splits;
use crate::{DataError, Labelled, Splits};

const CUE: &str = "frankly";

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

/// Words without information about the class.
static FILLERS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    "the a one this that some every old new small quiet long morning evening winter \
     street window letter neighbour village table question answer story walk talk wait \
     remember forget bring carry watch often never again perhaps slowly almost there here \
     before after while because and but with without"
        .split(' ')
        .collect()
});

/// A document with the positions of its key words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedDocument {
    /// Class name.
    pub label: String,
    /// Words of each sentence.
    pub sentences: Vec<Vec<String>>,
    /// Key words as (sentence, word) in document order: the cue and a class word of each key
    /// sentence.
    pub keys: Vec<(usize, usize)>,
}

impl MarkedDocument {
    /// Converts to labelled text, one sentence per line.
    pub fn to_labelled(&self) -> Labelled {
        let lines = self.sentences.iter().map(|sentence| sentence.join(" "));
        Labelled::new(&self.label, lines.collect::<Vec<_>>().join("\n"))
    }

    /// Indices of the key sentences.
    pub fn key_sentences(&self) -> Vec<usize> {
        let mut sentences: Vec<usize> = self.keys.iter().map(|(sentence, _)| *sentence).collect();
        sentences.dedup();
        sentences
    }
}

impl Generate for Documents {
    type Example = MarkedDocument;

    fn generate(&self, seed: u64) -> Result<Splits<Vec<MarkedDocument>>, DataError> {
        DataError::at_least("classes", 2, self.classes)?;
        DataError::at_most("classes", CLASSES.len(), self.classes)?;
        DataError::at_least("key_sentences", 1, self.key_sentences)?;
        let needed = self.key_sentences + self.distractors;
        DataError::at_least("min_sentences", needed, self.min_sentences)?;
        DataError::at_least("max_sentences", self.min_sentences, self.max_sentences)?;
        DataError::at_least("min_words", 2, self.min_words)?;
        DataError::at_least("max_words", self.min_words, self.max_words)?;
        let counts = [self.train_size, self.valid_size, self.test_size];
        let sample = |rng: &mut SplitMix64| Some(document(self, rng));
        let text = |it: &MarkedDocument| it.to_labelled().text;
        generate_splits("documents", counts, seed, sample, [text; 2])
    }
}

fn document(task: &Documents, rng: &mut SplitMix64) -> MarkedDocument {
    let class = rng.below(task.classes);
    let count = rng.within(task.min_sentences, task.max_sentences);
    // Roles of sentences: the first are key sentences, the next distractors.
    let mut roles: Vec<usize> = (0..count).collect();
    rng.shuffle(&mut roles);
    let mut sentences = vec![];
    let mut keys = vec![];
    for (sentence, role) in roles.into_iter().enumerate() {
        let length = rng.within(task.min_words, task.max_words);
        let filler = |_| (*rng.choose(&FILLERS)).to_owned();
        let mut words: Vec<String> = (0..length).map(filler).collect();
        let mut positions: Vec<usize> = (0..length).collect();
        rng.shuffle(&mut positions);
        if role < task.key_sentences {
            words[positions[0]] = CUE.to_owned();
            words[positions[1]] = (*rng.choose(&CLASSES[class].1)).to_owned();
            let mut pair = [positions[0], positions[1]];
            pair.sort_unstable();
            keys.extend(pair.map(|word| (sentence, word)));
        } else if role < task.key_sentences + task.distractors {
            let other = (class + 1 + rng.below(task.classes - 1)) % task.classes;
            words[positions[0]] = (*rng.choose(&CLASSES[other].1)).to_owned();
        }
        sentences.push(words);
    }
    MarkedDocument {
        label: CLASSES[class].0.to_owned(),
        sentences,
        keys,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Class words in sentences with the cue, and in sentences without.
    fn class_words(document: &MarkedDocument) -> [Vec<&str>; 2] {
        let mut found = [vec![], vec![]];
        for sentence in &document.sentences {
            let has_cue = sentence.iter().any(|word| word == CUE);
            for word in sentence {
                let mut classes = CLASSES.iter();
                let class = classes.find(|(_, words)| words.contains(&word.as_str()));
                found[usize::from(!has_cue)].extend(class.map(|(name, _)| *name));
            }
        }
        found
    }

    #[test]
    fn key_words_determine_the_class() {
        let task = Documents {
            classes: 8,
            min_sentences: 6,
            max_sentences: 9,
            min_words: 3,
            max_words: 8,
            key_sentences: 3,
            train_size: 400,
            ..Documents::default()
        };
        let splits = task.generate(3).unwrap();
        for document in splits.train.iter().chain(&splits.valid) {
            assert!((6..=9).contains(&document.sentences.len()));
            let mut sentences = document.sentences.iter();
            assert!(sentences.all(|words| (3..=8).contains(&words.len())));
            let text = document.to_labelled().text;
            let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            assert_eq!(lines.collect::<Vec<_>>(), document.sentences);
            let [keys, distractors] = class_words(document);
            assert_eq!(keys, [document.label.as_str(); 3]);
            assert_eq!(distractors.len(), 2);
            assert!(!distractors.contains(&document.label.as_str()));
            assert!(document.keys.is_sorted());
            assert_eq!(document.key_sentences().len(), 3);
            for pair in document.keys.chunks(2) {
                assert_eq!(pair[0].0, pair[1].0);
                let is_cue = |key: &&(usize, usize)| document.sentences[key.0][key.1] == CUE;
                assert_eq!(pair.iter().filter(is_cue).count(), 1);
            }
        }
    }

    #[test]
    fn vocabularies_are_disjoint() {
        let mut all: Vec<&str> = CLASSES.iter().flat_map(|(_, words)| *words).collect();
        all.extend(FILLERS.iter());
        all.push(CUE);
        let distinct: HashSet<&str> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
