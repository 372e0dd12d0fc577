//! Property tests of readers, tokenizers, splits and batches.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tempfile::NamedTempFile;
use zoo_data::{
    BatchSize, Batching, DataError, Extent, Labelled, LabelledText, Pair, ParallelText,
    PreTokenization, Sentences, Splits, Splitter, Tokenizer, TokenizerConfig, UNK, Windows,
    split_sentences,
};

fn few() -> ProptestConfig {
    ProptestConfig {
        cases: 60,
        // Failing cases become named tests instead.
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

/// Any non-blank text; characters that are hard to parse are more frequent.
fn text() -> impl Strategy<Value = String> {
    let hard = prop::sample::select(vec![
        "\"", "\"\"", ",", ";", "\t", "\n", "\r\n", " ", "\u{a0}", "<s>", "</s>", "<0x41>", "好",
        "e\u{301}", "🏽", "\u{feff}", "\\", "'", ".", "。",
    ]);
    let part = prop_oneof![hard.prop_map(str::to_owned), any::<String>(), "[a-z ]{0,8}"];
    let parts = prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat());
    parts.prop_filter("blank", |text| !text.trim().is_empty())
}

/// A text on one line without tabs.
fn line() -> impl Strategy<Value = String> {
    let cells = text().prop_map(|text| text.replace(['\n', '\r', '\t'], " "));
    cells.prop_filter("blank", |text| !text.trim().is_empty())
}

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file can be made");
    std::fs::write(file.path(), text).expect("a file can be written");
    file
}

fn trimmed(documents: &[(String, String)]) -> Vec<Labelled> {
    let document = |(label, text): &(String, String)| Labelled::new(label.trim(), text.trim());
    documents.iter().map(document).collect()
}

/// Tokenizers trained on a few words.
fn train<const N: usize>(configs: [TokenizerConfig; N]) -> [Tokenizer; N] {
    let texts = [
        "long time no see, long time",
        "好久不见",
        "don't see\n\tno time",
    ];
    configs.map(|config| config.train(texts).expect("there is text"))
}

static WITH_BYTES: LazyLock<[Tokenizer; 3]> = LazyLock::new(|| {
    let bpe = TokenizerConfig::bpe(300);
    let chars = TokenizerConfig::chars().with_byte_fallback(true);
    train([
        bpe.clone(),
        bpe.with_pre_tokenization(PreTokenization::Whitespace),
        chars,
    ])
});

static FILES: LazyLock<[String; 3]> = LazyLock::new(|| {
    let [chars, words] = [TokenizerConfig::chars(), TokenizerConfig::words()];
    let tokenizers = train([chars, words, TokenizerConfig::bpe(300)]);
    tokenizers.map(|tokenizer| tokenizer.to_json().expect("a tokenizer is JSON"))
});

/// Every index occurs once, and splits keep the order.
fn assert_complete(splits: &Splits<Vec<usize>>, count: usize) -> Result<(), TestCaseError> {
    let all = [&splits.train, &splits.valid, &splits.test];
    prop_assert!(all.iter().all(|split| split.is_sorted()));
    let together: Vec<usize> = all.into_iter().flatten().copied().collect();
    prop_assert_eq!(together.len(), count);
    prop_assert_eq!(together.into_iter().collect::<BTreeSet<_>>().len(), count);
    Ok(())
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn readers_restore_written_files(
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
        // With a byte order mark.
        let lines = file(&format!("\u{feff}{lines}"));
        let read = LabelledText::tsv(lines.path()).read().unwrap();
        prop_assert_eq!(read.examples, trimmed(&pairs));
        let read = ParallelText::tsv(lines.path()).read().unwrap();
        let pair = |(a, b): &(String, String)| Pair::new(a.trim(), b.trim());
        prop_assert_eq!(read.examples, pairs.iter().map(pair).collect::<Vec<_>>());
    }

    #[test]
    fn sentences_cover_the_document(document in text()) {
        for by in [Sentences::Lines, Sentences::Punctuation] {
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

    #[test]
    fn tokenizers_restore_any_text(text in text()) {
        // The replacement of spaces in tokens is decoded as a space.
        let text = text.replace('▁', "_");
        for tokenizer in WITH_BYTES.iter() {
            let ids = tokenizer.encode(&text).unwrap();
            for id in &ids {
                prop_assert!((*id as usize) < tokenizer.vocab_size());
                prop_assert!(*id > 3 || *id == UNK, "{}", id);
            }
            // Decoded text is NFC, and encodes to the same tokens.
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
            TokenizerConfig::bpe(300).with_pre_tokenization(PreTokenization::Whitespace),
        ] {
            let tokenizer = config.train(texts.iter().map(String::as_str)).unwrap();
            let file = file(&tokenizer.to_json().unwrap());
            let again = Tokenizer::load(file.path()).unwrap();
            prop_assert_eq!(again.to_json().unwrap(), tokenizer.to_json().unwrap());
            prop_assert_eq!(again.vocab_size(), tokenizer.vocab_size());
            for text in &texts {
                let ids = tokenizer.encode(text).unwrap();
                prop_assert_eq!(again.decode(&ids).unwrap(), tokenizer.decode(&ids).unwrap());
                prop_assert_eq!(again.encode(text).unwrap(), ids);
            }
        }
    }

    #[test]
    fn splits_are_disjoint_and_complete(
        count in 0_usize..200,
        [valid, test] in prop::array::uniform2(prop_oneof![Just(0.0), 0.0..1.0]),
        seed in any::<u64>(),
    ) {
        let split = Splitter::new(valid, seed).with_test(test);
        let examples: Vec<usize> = (0..count).collect();
        match split.examples(examples.clone()) {
            Ok(splits) => {
                assert_complete(&splits, count)?;
                prop_assert_eq!(split.examples(examples).unwrap(), splits);
            }
            Err(DataError::Range { .. }) => prop_assert!(valid + test >= 1.0),
            Err(DataError::Empty { .. }) => {}
            Err(other) => prop_assert!(false, "{}", other),
        }
        let classes = ["a", "b", "c"];
        let document = |i: usize| Labelled::new(classes[i % 3], i.to_string());
        if let Ok(splits) = split.labelled((0..count).map(document).collect()) {
            let indices = |split: Vec<Labelled>| {
                split.iter().map(|it| it.text.parse().unwrap()).collect::<Vec<usize>>()
            };
            let classes: BTreeSet<_> = splits.train.iter().map(|it| it.label.clone()).collect();
            prop_assert_eq!(classes.len(), count.min(3));
            let [train, valid, test] = [splits.train, splits.valid, splits.test].map(indices);
            assert_complete(&Splits { train, valid, test }, count)?;
        }
    }

    #[test]
    fn text_splits_are_consecutive(
        text in text(),
        [valid, test] in prop::array::uniform2(0.0..1.0),
    ) {
        if let Ok(splits) = Splitter::new(valid, 1).with_test(test).text(&text) {
            prop_assert_eq!(splits.train + &splits.valid + &splits.test, text);
        }
    }

    #[test]
    fn batches_contain_every_example_once(
        sizes in prop::collection::vec((0_usize..40, 0_usize..4), 1..100),
        max in 1_usize..300,
        by_tokens in any::<bool>(),
        (seed, epoch) in (any::<u64>(), 0_usize..9),
    ) {
        let extent = |(width, rows): &(usize, usize)| Extent { width: *width, other: 0, rows: *rows };
        let extents: Vec<Extent> = sizes.iter().map(extent).collect();
        let size = if by_tokens { BatchSize::Tokens(max) } else { BatchSize::Examples(max) };
        let plan = match Batching::new(size, seed).plan(extents) {
            Ok(plan) => plan,
            Err(DataError::TooLong { length, max, .. }) => {
                prop_assert!(by_tokens && length > max);
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        for batches in [plan.epoch(epoch), plan.sorted_batches()] {
            let mut examples = batches.concat();
            examples.sort_unstable();
            prop_assert!(examples.into_iter().eq(0..sizes.len()));
            for batch in batches {
                let used = if by_tokens { plan.padded_tokens(&batch) } else { batch.len() };
                prop_assert!(!batch.is_empty() && used <= max, "{} of {}", used, max);
            }
        }
        prop_assert_eq!(plan.epoch(epoch), plan.epoch(epoch));
    }

    #[test]
    fn consecutive_windows_predict_every_token_but_the_first_once(count in 0_u32..60, context in 1_usize..20) {
        let tokens: Vec<u32> = (0..count).collect();
        let windows: Vec<_> = Windows::new(context, 1, 0).consecutive(&tokens).collect();
        for window in &windows {
            prop_assert!(window.input.iter().map(|token| token + 1).eq(window.target.iter().copied()));
        }
        let targets: Vec<u32> = windows.iter().flat_map(|window| window.target.to_vec()).collect();
        prop_assert_eq!(targets.as_slice(), tokens.get(1..).unwrap_or_default());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..few() })]

    /// A tokenizer file with random edits is rejected with an error or works: it never causes a
    /// panic later.
    #[test]
    fn damaged_tokenizer_files_are_rejected_or_work(
        which in 0..3_usize,
        i in any::<prop::sample::Index>(),
        until in any::<prop::sample::Index>(),
        replacement in prop_oneof![Just(String::new()), "[0-9]{1,4}", text(), Just("null".to_owned())],
        input in text(),
    ) {
        let whole = &FILES[which];
        let offsets: Vec<usize> = whole.char_indices().map(|(i, _)| i).collect();
        let (a, b) = (*i.get(&offsets), *until.get(&offsets));
        let (from, to) = (a.min(b), a.max(b).min(a.min(b) + 40));
        let to = (to..=whole.len()).find(|i| whole.is_char_boundary(*i)).unwrap_or(whole.len());
        let damaged = format!("{}{replacement}{}", &whole[..from], &whole[to..]);
        let file = file(&damaged);
        match Tokenizer::load(file.path()) {
            Ok(tokenizer) => {
                if let Ok(ids) = tokenizer.encode(&input) {
                    prop_assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
                    let _ = tokenizer.decode(&ids);
                }
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
