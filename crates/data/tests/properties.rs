//! What holds for any text, any example and any seed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tempfile::NamedTempFile;
use zoo_data::{
    BatchSize, Batching, DataError, Extent, Labelled, LabelledText, Pair, ParallelText, Parts,
    Sentences, Split, Tokenizer, TokenizerConfig, UNKNOWN, Windows, WordRule, split_sentences,
};

fn few() -> ProptestConfig {
    ProptestConfig {
        cases: 60,
        // A case that failed becomes a test of its own, with a name.
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

/// Any text that is not blank, with what is hard about texts more often than by chance.
fn text() -> impl Strategy<Value = String> {
    let hard = prop::sample::select(vec![
        "\"", "\"\"", ",", ";", "\t", "\n", "\r\n", " ", "\u{a0}", "<s>", "</s>", "<0x41>", "好",
        "e\u{301}", "🏽", "\u{feff}", "\\", "'", ".", "。",
    ]);
    let part = prop_oneof![hard.prop_map(str::to_owned), any::<String>(), "[a-z ]{0,8}"];
    let parts = prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat());
    parts.prop_filter("blank", |text| !text.trim().is_empty())
}

/// The same on one line, without a tab.
fn line() -> impl Strategy<Value = String> {
    let cells = text().prop_map(|text| text.replace(['\n', '\r', '\t'], " "));
    cells.prop_filter("blank", |text| !text.trim().is_empty())
}

/// A file that is there for one case.
fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file can be made");
    std::fs::write(file.path(), text).expect("a file can be written");
    file
}

fn trimmed(documents: &[(String, String)]) -> Vec<Labelled> {
    let document = |(label, text): &(String, String)| Labelled::new(label.trim(), text.trim());
    documents.iter().map(document).collect()
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn files_say_what_was_written(
        documents in prop::collection::vec((text(), text()), 1..8),
        pairs in prop::collection::vec((line(), line()), 1..8),
        delimiter in prop::sample::select(vec![b',', b';', b'\t']),
    ) {
        let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(vec![]);
        writer.write_record(["text", "more", "label"]).unwrap();
        let mut objects = String::new();
        for (label, text) in &documents {
            writer.write_record([text, "", label]).unwrap();
            objects += &(serde_json::json!({"label": label, "text": text}).to_string() + "\n");
        }
        let table = file(&String::from_utf8(writer.into_inner().unwrap()).unwrap());
        let reader = LabelledText::csv(table.path(), "label", "text").with_delimiter(delimiter);
        prop_assert_eq!(reader.read().unwrap().examples, trimmed(&documents));
        let objects = file(&objects);
        let read = LabelledText::json_lines(objects.path(), "label", "text").read().unwrap();
        prop_assert_eq!(read.examples, trimmed(&documents));

        let lines: String = pairs.iter().map(|(a, b)| format!("{a}\t{b}\n")).collect();
        // A mark of the encoding at the very beginning is no part of the text.
        let lines = file(&format!("\u{feff}{lines}"));
        let read = LabelledText::tsv(lines.path()).read().unwrap();
        prop_assert_eq!(read.examples, trimmed(&pairs));
        let read = ParallelText::tsv(lines.path()).read().unwrap();
        let pair = |(a, b): &(String, String)| Pair::new(a.trim(), b.trim());
        prop_assert_eq!(read.examples, pairs.iter().map(pair).collect::<Vec<_>>());
    }

    #[test]
    fn sentences_have_all_of_a_document(document in text()) {
        for by in [Sentences::Lines, Sentences::Marks] {
            let mut rest = document.as_str();
            for sentence in split_sentences(&document, by) {
                prop_assert!(!sentence.is_empty() && sentence.trim() == sentence);
                let (between, after) = rest.split_once(sentence).expect("in its order");
                prop_assert!(between.trim().is_empty(), "{between:?} is lost");
                rest = after;
            }
            prop_assert!(rest.trim().is_empty(), "{rest:?} is lost");
        }
    }
}

/// Those that know every byte, learned from a few words.
static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let learned = [
        "long time no see, long time",
        "好久不见",
        "don't see\n\tno time",
    ];
    let pieces = TokenizerConfig::bpe(300);
    let chars = TokenizerConfig::chars().with_byte_fallback(true);
    let all = [pieces.clone(), pieces.with_words(WordRule::Spaces), chars];
    all.iter()
        .map(|config| config.train(learned).expect("there is text"))
        .collect()
});

proptest! {
    #![proptest_config(few())]

    #[test]
    fn any_text_comes_back_from_its_tokens(text in text()) {
        // What a space is written as in a token is a space when it is read.
        let text = text.replace('▁', "_");
        for tokenizer in TOKENIZERS.iter() {
            let ids = tokenizer.encode(&text).unwrap();
            for id in &ids {
                prop_assert!((*id as usize) < tokenizer.vocabulary());
                prop_assert!(*id > 3 || *id == UNKNOWN, "{}", id);
            }
            // As Unicode composes it; that is the same again.
            let composed = tokenizer.decode(&ids).unwrap();
            prop_assert_eq!(tokenizer.encode(&composed).unwrap(), ids);
            if text.is_ascii() {
                prop_assert_eq!(&composed, &text);
            }
        }
    }

    #[test]
    fn any_text_trains_a_tokenizer(texts in prop::collection::vec(text(), 1..4)) {
        for config in [
            TokenizerConfig::chars(),
            TokenizerConfig::words(),
            TokenizerConfig::bpe(40).with_byte_fallback(false),
            TokenizerConfig::bpe(300).with_words(WordRule::Spaces),
        ] {
            let tokenizer = config.train(texts.iter().map(String::as_str)).unwrap();
            let file = file(&tokenizer.to_json().unwrap());
            let again = Tokenizer::load(file.path()).unwrap();
            prop_assert_eq!(again.to_json().unwrap(), tokenizer.to_json().unwrap());
            prop_assert_eq!(again.vocabulary(), tokenizer.vocabulary());
            for text in &texts {
                let ids = tokenizer.encode(text).unwrap();
                prop_assert_eq!(again.decode(&ids).unwrap(), tokenizer.decode(&ids).unwrap());
                prop_assert_eq!(again.encode(text).unwrap(), ids);
            }
        }
    }
}

/// Every number once, in the order of each part.
fn assert_complete(parts: &Parts<Vec<usize>>, count: usize) -> Result<(), TestCaseError> {
    let all = [&parts.train, &parts.valid, &parts.test];
    for part in all {
        prop_assert!(part.is_sorted());
    }
    let together: Vec<usize> = all.into_iter().flatten().copied().collect();
    prop_assert_eq!(together.len(), count);
    prop_assert_eq!(together.into_iter().collect::<BTreeSet<_>>().len(), count);
    Ok(())
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn parts_are_disjoint_and_complete(
        count in 0_usize..200,
        [valid, test] in prop::array::uniform2(prop_oneof![Just(0.0), 0.0..1.0]),
        seed in any::<u64>(),
    ) {
        let split = Split::new(valid, seed).with_test(test);
        let examples: Vec<usize> = (0..count).collect();
        match split.examples(examples.clone()) {
            Ok(parts) => {
                assert_complete(&parts, count)?;
                prop_assert_eq!(split.examples(examples).unwrap(), parts);
            }
            Err(DataError::Range { .. }) => prop_assert!(valid + test >= 1.0),
            Err(DataError::Empty { .. }) => {}
            Err(other) => prop_assert!(false, "{}", other),
        }
        let classes = ["a", "b", "c"];
        let document = |at: usize| Labelled::new(classes[at % 3], at.to_string());
        if let Ok(parts) = split.labelled((0..count).map(document).collect()) {
            let numbers = |part: Vec<Labelled>| {
                part.iter().map(|it| it.text.parse().unwrap()).collect::<Vec<usize>>()
            };
            let learned: BTreeSet<_> = parts.train.iter().map(|it| it.label.clone()).collect();
            prop_assert_eq!(learned.len(), count.min(3));
            let [train, valid, test] = [parts.train, parts.valid, parts.test].map(numbers);
            assert_complete(&Parts { train, valid, test }, count)?;
        }
    }

    #[test]
    fn parts_of_a_text_are_the_text(
        text in text(),
        [valid, test] in prop::array::uniform2(0.0..1.0),
    ) {
        if let Ok(parts) = Split::new(valid, 1).with_test(test).text(&text) {
            prop_assert_eq!(parts.train + &parts.valid + &parts.test, text);
        }
    }

    #[test]
    fn batches_have_every_example_once(
        sizes in prop::collection::vec((0_usize..40, 0_usize..4), 1..100),
        most in 1_usize..300,
        by_tokens in any::<bool>(),
        (seed, epoch) in (any::<u64>(), 0_usize..9),
    ) {
        let extent = |(width, rows): &(usize, usize)| Extent { width: *width, other: 0, rows: *rows };
        let extents: Vec<Extent> = sizes.iter().map(extent).collect();
        let size = match by_tokens {
            true => BatchSize::Tokens(most),
            false => BatchSize::Examples(most),
        };
        let plan = match Batching::new(size, seed).plan(extents) {
            Ok(plan) => plan,
            Err(DataError::TooLong { length, longest, .. }) => {
                prop_assert!(by_tokens && length > longest);
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        for batches in [plan.epoch(epoch), plan.in_order()] {
            let mut examples = batches.concat();
            examples.sort_unstable();
            prop_assert!(examples.into_iter().eq(0..sizes.len()));
            for batch in batches {
                let used = if by_tokens { plan.padded(&batch) } else { batch.len() };
                prop_assert!(!batch.is_empty() && used <= most, "{} of {}", used, most);
            }
        }
        prop_assert_eq!(plan.epoch(epoch), plan.epoch(epoch));
    }

    #[test]
    fn windows_say_every_token_but_the_first_once(count in 0_u32..60, context in 1_usize..20) {
        let tokens: Vec<u32> = (0..count).collect();
        let windows: Vec<_> = Windows::new(context, 1, 0).all(&tokens).collect();
        for window in &windows {
            prop_assert!(window.input.iter().map(|token| token + 1).eq(window.target.iter().copied()));
        }
        let said: Vec<u32> = windows.iter().flat_map(|window| window.target.to_vec()).collect();
        prop_assert_eq!(said.as_slice(), tokens.get(1..).unwrap_or_default());
    }
}

/// Tokenizers of each kind, as they are written.
static WRITTEN: LazyLock<Vec<String>> = LazyLock::new(|| {
    let texts = ["the cat sat on the mat", "好久不见 the dog", "a b c a b"];
    [
        TokenizerConfig::chars(),
        TokenizerConfig::words(),
        TokenizerConfig::bpe(300),
    ]
    .map(|config| {
        let tokenizer = config.train(texts).expect("texts");
        tokenizer.to_json().expect("a tokenizer is JSON")
    })
    .to_vec()
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..few() })]

    /// A file of a tokenizer that was cut, written into or mixed up is refused in words, or is one
    /// that works: nothing that is read from it ends the program later.
    #[test]
    fn damaged_tokenizer_files_are_refused_or_work(
        which in 0..3_usize,
        at in any::<prop::sample::Index>(),
        until in any::<prop::sample::Index>(),
        instead in prop_oneof![Just(String::new()), "[0-9]{1,4}", text(), Just("null".to_owned())],
        asked in text(),
    ) {
        let whole = &WRITTEN[which];
        let places: Vec<usize> = whole.char_indices().map(|(at, _)| at).collect();
        let (a, b) = (*at.get(&places), *until.get(&places));
        let (from, to) = (a.min(b), a.max(b).min(a.min(b) + 40));
        let to = (to..=whole.len()).find(|at| whole.is_char_boundary(*at)).unwrap_or(whole.len());
        let damaged = format!("{}{instead}{}", &whole[..from], &whole[to..]);
        let file = file(&damaged);
        match Tokenizer::load(file.path()) {
            Ok(tokenizer) => {
                if let Ok(ids) = tokenizer.encode(&asked) {
                    prop_assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary()));
                    let _ = tokenizer.decode(&ids);
                }
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
