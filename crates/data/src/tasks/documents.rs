//! Documents whose class a few words in a few sentences tell, and which ones is known.
//!
//! A sentence that counts has the word `frankly` somewhere, and a word of the
//! class. Other sentences may have words of other classes, without `frankly`: a model has to
//! look at both. What attention should fall on is returned with each document.

use std::sync::LazyLock;

use zoo_config::Documents;
use zoo_spec::Draw;

use super::Generate;
use super::parts::parts;
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

/// A document, with what tells its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedDocument {
    /// The class, by its name.
    pub label: String,
    /// Words of each sentence.
    pub sentences: Vec<Vec<String>>,
    /// The words that tell it, by sentence and word in it, in the order of the document: in each
    /// sentence that counts, the cue and a word of the class.
    pub keys: Vec<(usize, usize)>,
}

impl MarkedDocument {
    /// As labelled text, a sentence a line.
    pub fn to_labelled(&self) -> Labelled {
        let lines = self.sentences.iter().map(|sentence| sentence.join(" "));
        Labelled::new(&self.label, lines.collect::<Vec<_>>().join("\n"))
    }

    /// The sentences that count, in their order.
    pub fn key_sentences(&self) -> Vec<usize> {
        let mut sentences: Vec<usize> = self.keys.iter().map(|(sentence, _)| *sentence).collect();
        sentences.dedup();
        sentences
    }
}

impl Generate for Documents {
    type Example = MarkedDocument;

    fn generate(&self, seed: u64) -> Result<Parts<Vec<MarkedDocument>>, DataError> {
        DataError::at_least("classes", 2, self.classes)?;
        DataError::at_most("classes", CLASSES.len(), self.classes)?;
        DataError::at_least("key sentences", 1, self.key_sentences)?;
        let needed = self.key_sentences + self.decoys;
        DataError::at_least("fewest sentences", needed, self.min_sentences)?;
        DataError::at_least("most sentences", self.min_sentences, self.max_sentences)?;
        DataError::at_least("fewest words", 2, self.min_words)?;
        DataError::at_least("most words", self.min_words, self.max_words)?;
        let counts = [self.train_size, self.valid_size, self.test_size];
        let draw = |draw: &mut Draw| Some(document(self, draw));
        parts(
            "documents",
            counts,
            seed,
            draw,
            [|it| it.to_labelled().text; 2],
        )
    }
}

fn document(task: &Documents, draw: &mut Draw) -> MarkedDocument {
    let class = draw.below(task.classes);
    let count = draw.within(task.min_sentences, task.max_sentences);
    // What a sentence is for: the first numbers count, the next mislead.
    let mut roles: Vec<usize> = (0..count).collect();
    draw.shuffle(&mut roles);
    let mut sentences = vec![];
    let mut keys = vec![];
    for (sentence, role) in roles.into_iter().enumerate() {
        let length = draw.within(task.min_words, task.max_words);
        let filler = |_| (*draw.choose(&FILLERS)).to_owned();
        let mut words: Vec<String> = (0..length).map(filler).collect();
        let mut places: Vec<usize> = (0..length).collect();
        draw.shuffle(&mut places);
        if role < task.key_sentences {
            words[places[0]] = CUE.to_owned();
            words[places[1]] = (*draw.choose(&CLASSES[class].1)).to_owned();
            let mut pair = [places[0], places[1]];
            pair.sort_unstable();
            keys.extend(pair.map(|word| (sentence, word)));
        } else if role < task.key_sentences + task.decoys {
            let other = (class + 1 + draw.below(task.classes - 1)) % task.classes;
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
        let drawn = task.generate(3).unwrap();
        for document in drawn.train.iter().chain(&drawn.valid) {
            assert!((6..=9).contains(&document.sentences.len()));
            let mut sentences = document.sentences.iter();
            assert!(sentences.all(|words| (3..=8).contains(&words.len())));
            let text = document.to_labelled().text;
            let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            assert_eq!(lines.collect::<Vec<_>>(), document.sentences);
            let [telling, misleading] = spoken_of(document);
            assert_eq!(telling, [document.label.as_str(); 3]);
            assert_eq!(misleading.len(), 2);
            assert!(!misleading.contains(&document.label.as_str()));
            assert!(document.keys.is_sorted());
            assert_eq!(document.key_sentences().len(), 3);
            for pair in document.keys.chunks(2) {
                assert_eq!(pair[0].0, pair[1].0);
                let words = pair
                    .iter()
                    .map(|(sentence, word)| &document.sentences[*sentence][*word]);
                assert_eq!(words.filter(|word| *word == CUE).count(), 1);
            }
        }
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
