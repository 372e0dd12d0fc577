//! Tests of all tasks: golden examples and invalid sizes.

#![allow(clippy::needless_update, reason = "a task may have no further fields")]

use super::*;
use crate::{Labelled, Pair};

fn lines(splits: &Splits<Vec<Pair>>) -> Vec<String> {
    let pairs = splits.train.iter().chain(&splits.valid);
    pairs
        .map(|pair| format!("{} -> {}", pair.source, pair.target))
        .collect()
}

/// A small task with these fields; the others have their defaults.
macro_rules! few {
    ($task:ident, $train:expr, $valid:expr $(, $size:ident = $value:expr)*) => {
        $task {
            $( $size: $value, )*
            train_size: $train,
            valid_size: $valid,
            test_size: 0,
            ..$task::default()
        }
    };
}

/// The copy task, for tests of all tasks.
impl Generate for Sequences {
    type Example = Pair;

    fn generate(&self, seed: u64) -> Result<Splits<Vec<Pair>>, DataError> {
        SequenceTask::Copy.generate(self, seed)
    }
}

#[test]
fn examples_of_a_fixed_seed() {
    let sequences = few! { Sequences, 3, 1, symbols = 26, min_length = 2, max_length = 4 };
    assert_eq!(
        lines(&SequenceTask::Reverse.generate(&sequences, 1).unwrap()),
        [
            "q r -> r q",
            "z j -> j z",
            "k l z k -> k z l k",
            "z p w a -> a w p z",
        ]
    );
    assert_eq!(
        lines(&few!(Recall, 3, 0).generate(1).unwrap()),
        [
            "s 5 l 1 v 1 ? s -> 5",
            "f 7 q 4 n 6 o 0 s 0 p 1 x 6 r 4 ? f -> 7",
            "u 0 v 5 c 2 z 2 m 3 d 8 p 1 ? c -> 2",
        ]
    );
    let recall = few! { Recall, 2, 0, min_keys = 3, max_keys = 4, symbols = Some(99), values = 50 };
    assert_eq!(
        lines(&recall.generate(1).unwrap()),
        [
            "k98 26 k5 27 k42 37 ? k5 -> 27",
            "k15 1 k53 36 k9 37 k96 40 ? k53 -> 36"
        ]
    );
    assert_eq!(
        lines(&few!(Dates, 4, 0).generate(1).unwrap()),
        [
            "21st of April 1964 -> 1964-04-21",
            "23 AUG 1954 -> 1954-08-23",
            "the 16th of January, 2049 -> 2049-01-16",
            "Wednesday, January 6, 2049 -> 2049-01-06",
        ]
    );
    let listops = few! { ListOps, 3, 0, max_depth = 2, min_length = 6, max_length = 12 };
    assert_eq!(
        listops.generate(1).unwrap().train,
        [
            Labelled::new("5", "[MED [SM 5 9 ] [SM 4 8 5 ] ]"),
            Labelled::new("1", "[MIN [MIN 2 6 9 5 ] 8 1 ]"),
            Labelled::new("7", "[MAX 1 7 4 3 ]"),
        ]
    );
    let documents = few! { Documents, 1, 0, max_sentences = 5, min_words = 3, max_words = 4 };
    let first = &documents.generate(1).unwrap().train[0];
    let text = "again this recipe\n\
                choir walk frankly there\n\
                again carry and question\n\
                fever story question\n\
                choir frankly without";
    assert_eq!(first.to_labelled(), Labelled::new("music", text));
    assert_eq!(first.keys, [(1, 0), (1, 2), (4, 0), (4, 1)]);
    assert_eq!(first.key_sentences(), [1, 4]);
}

#[test]
fn invalid_sizes_are_rejected() {
    macro_rules! check_errors {
        ($($task:ident($($size:ident = $value:expr),*) => $reason:literal;)+) => {$(
            let error = few!($task, 9, 0 $(, $size = $value)*).generate(0).unwrap_err().to_string();
            assert!(error.contains($reason), "{error}");
        )+};
    }
    check_errors! {
        Dates(first_year = 98) => "first_year must be at least 1000, got 98";
        Dates(first_year = 1998, last_year = 1997) => "last_year must be at least 1998, got 1997";
        Dates(last_year = 10_000) => "last_year must be at most 9999, got 10000";
        Recall(min_keys = 0) => "min_keys must be at least 1, got 0";
        Recall(min_keys = 4, max_keys = 3) => "max_keys must be at least 4, got 3";
        Recall(max_keys = 27, symbols = Some(26)) => "max_keys must be at most 26, got 27";
        Recall(train_min_keys = Some(0)) => "train_min_keys must be at least 1, got 0";
        Recall(train_min_keys = Some(3)) => "train_min_keys must be at most 2, got 3";
        Recall(values = 1) => "values must be at least 2, got 1";
        ListOps(max_depth = 0) => "max_depth must be at least 1, got 0";
        ListOps(max_arguments = 1) => "max_arguments must be at least 2, got 1";
        ListOps(min_length = 9, max_length = 8) => "max_length must be at least 9, got 8";
        ListOps(max_depth = 1, max_arguments = 3, min_length = 6) =>
            "min_length must be at most 5, got 6";
        // Two arguments give 4, 7 or 10 tokens.
        ListOps(max_depth = 2, max_arguments = 2, min_length = 8, max_length = 9) =>
            "only about 0 distinct examples";
        Documents(classes = 1) => "classes must be at least 2, got 1";
        Documents(classes = 9) => "classes must be at most 8, got 9";
        Documents(key_sentences = 0) => "key_sentences must be at least 1, got 0";
        Documents(min_sentences = 3) => "min_sentences must be at least 4, got 3";
        Documents(min_sentences = 6, max_sentences = 5) =>
            "max_sentences must be at least 6, got 5";
        Documents(min_words = 1) => "min_words must be at least 2, got 1";
        Documents(min_words = 3, max_words = 2) => "max_words must be at least 3, got 2";
        Sequences(symbols = 1) => "symbols must be at least 2, got 1";
        Sequences(min_length = 0) => "min_length must be at least 1, got 0";
        Sequences(min_length = 4, max_length = 3) => "max_length must be at least 4, got 3";
        Sequences(symbols = 2, min_length = 1, max_length = 2) => "only about 6 distinct examples";
    }
}
