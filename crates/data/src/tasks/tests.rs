//! What holds for every task in the same way.

use super::*;
use crate::{DataError, Labelled, Pair, Parts};

fn shown(parts: &Parts<Vec<Pair>>) -> Vec<String> {
    let pairs = parts.train.iter().chain(&parts.valid);
    pairs
        .map(|pair| format!("{} -> {}", pair.source, pair.target))
        .collect()
}

#[test]
fn the_first_ones_of_a_seed() {
    let reverse = Sequences::new(Arrangement::Reverse).with_lengths(2, 4);
    assert_eq!(
        shown(&reverse.generate(Counts::new(3, 1), 1).unwrap()),
        [
            "q r -> r q",
            "z j -> j z",
            "k l z k -> k z l k",
            "z p w a -> a w p z",
        ]
    );
    assert_eq!(
        shown(&Recall::new().generate(Counts::new(3, 0), 1).unwrap()),
        [
            "s 5 l 1 v 1 ? s -> 5",
            "f 7 q 4 n 6 o 0 s 0 p 1 x 6 r 4 ? f -> 7",
            "u 0 v 5 c 2 z 2 m 3 d 8 p 1 ? c -> 2",
        ]
    );
    assert_eq!(
        shown(&Dates::new().generate(Counts::new(4, 0), 1).unwrap()),
        [
            "21st of April 1964 -> 1964-04-21",
            "23 AUG 1954 -> 1954-08-23",
            "the 16th of January, 2049 -> 2049-01-16",
            "Wednesday, January 6, 2049 -> 2049-01-06",
        ]
    );
    let listops = ListOps::new().with_depth(2).with_lengths(6, 12);
    assert_eq!(
        listops.generate(Counts::new(3, 0), 1).unwrap().train,
        [
            Labelled::new("5", "[MED [SM 5 9 ] [SM 4 8 5 ] ]"),
            Labelled::new("1", "[MIN [MIN 2 6 9 5 ] 8 1 ]"),
            Labelled::new("7", "[MAX 1 7 4 3 ]"),
        ]
    );
    let documents = Documents::new().with_sentences(4, 5).with_words(3, 4);
    let first = &documents.generate(Counts::new(1, 0), 1).unwrap().train[0];
    let text = "again this recipe\n\
                choir walk frankly there\n\
                again carry and question\n\
                fever story question\n\
                choir frankly without";
    assert_eq!(first.to_labelled(), Labelled::new("music", text));
    let keys = first.keys.iter().map(|key| (key.sentence, key.word));
    assert_eq!(keys.collect::<Vec<_>>(), [(1, 0), (1, 2), (4, 0), (4, 1)]);
    assert_eq!(first.key_sentences(), [1, 4]);
}

#[test]
fn sizes_that_make_no_sense() {
    let said = |result: Result<(), DataError>| result.unwrap_err().to_string();
    let nine = Counts::new(9, 0);
    let dates = |first, last| {
        let dates = Dates::new().with_years(first, last);
        said(dates.generate(nine, 0).map(drop))
    };
    let recall = |fewest, most| {
        let recall = Recall::new().with_keys(fewest, most);
        said(recall.generate(nine, 0).map(drop))
    };
    let sequences = |symbols, shortest, longest| {
        let copy = Sequences::new(Arrangement::Copy).with_symbols(symbols);
        let copy = copy.with_lengths(shortest, longest);
        said(copy.generate(nine, 0).map(drop))
    };
    let listops = |depth, arguments, (shortest, longest)| {
        let listops = ListOps::new().with_depth(depth).with_arguments(arguments);
        let listops = listops.with_lengths(shortest, longest);
        said(listops.generate(nine, 0).map(drop))
    };
    let documents = |documents: Documents| said(documents.generate(nine, 0).map(drop));
    let usual = Documents::new();
    for (said, expected) in [
        (dates(98, 1998), "first year must be at least 1000, got 98"),
        (
            dates(1998, 1997),
            "last year must be at least 1998, got 1997",
        ),
        (
            dates(1998, 10_000),
            "last year must be at most 9999, got 10000",
        ),
        (recall(0, 3), "fewest keys must be at least 1, got 0"),
        (recall(4, 3), "most keys must be at least 4, got 3"),
        (recall(4, 27), "most keys must be at most 26, got 27"),
        (sequences(1, 1, 10), "symbols must be at least 2, got 1"),
        (sequences(26, 0, 3), "shortest must be at least 1, got 0"),
        (sequences(26, 4, 3), "longest must be at least 4, got 3"),
        (listops(0, 5, (4, 100)), "depth must be at least 1, got 0"),
        (
            listops(4, 1, (4, 100)),
            "arguments must be at least 2, got 1",
        ),
        (listops(4, 5, (9, 8)), "longest must be at least 9, got 8"),
        (listops(1, 3, (6, 90)), "shortest must be at most 5, got 6"),
        (
            documents(usual.with_classes(1)),
            "classes must be at least 2, got 1",
        ),
        (
            documents(usual.with_classes(9)),
            "classes must be at most 8, got 9",
        ),
        (
            documents(usual.with_key_sentences(0)),
            "key sentences must be at least 1, got 0",
        ),
        (
            documents(usual.with_sentences(3, 9)),
            "fewest sentences must be at least 4, got 3",
        ),
        (
            documents(usual.with_sentences(6, 5)),
            "most sentences must be at least 6, got 5",
        ),
        (
            documents(usual.with_words(1, 5)),
            "fewest words must be at least 2, got 1",
        ),
        (
            documents(usual.with_words(3, 2)),
            "most words must be at least 3, got 2",
        ),
    ] {
        assert_eq!(said, expected);
    }
    assert!(sequences(2, 1, 2).contains("gives about 6"));
    // Two arguments each make 4, 7 or 10 words of it.
    assert!(listops(2, 2, (8, 9)).contains("gives about 0"));
}
