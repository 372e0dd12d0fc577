use super::*;
use crate::tasks::{Direction, phrases};
use crate::test_files::Folder;
use crate::{Pair, PreTokenization};

const TEXTS: [&str; 4] = [
    "long time no see",
    "好久不见",
    "the longest time, the longest see!",
    "don't  see\n\tno time",
];

fn configs() -> Vec<TokenizerConfig> {
    let chars = TokenizerConfig::chars();
    let mut configs = vec![chars.clone(), chars.with_byte_fallback(true)];
    for words in [PreTokenization::Whitespace, PreTokenization::Punctuation] {
        let small = TokenizerConfig::bpe(60).with_byte_fallback(false);
        configs.push(TokenizerConfig::bpe(320).with_pre_tokenization(words));
        configs.push(small.with_pre_tokenization(words));
    }
    configs
}

/// Encodes and decodes a text with a tokenizer trained on [`TEXTS`].
fn round_trip(config: &TokenizerConfig, text: &str) -> (Vec<u32>, String) {
    let tokenizer = config.train(TEXTS).unwrap();
    let ids = tokenizer.encode(text).unwrap();
    assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
    let decoded = tokenizer.decode(&ids).unwrap();
    (ids, decoded)
}

#[test]
fn special_tokens_have_fixed_ids() {
    let all = configs().into_iter().chain([TokenizerConfig::words()]);
    for config in all {
        let tokenizer = config.train(TEXTS).unwrap();
        for (id, token) in (0..).zip(SPECIAL_TOKENS) {
            assert_eq!(tokenizer.token(id).as_deref(), Some(token), "{config:?}");
            assert_eq!(tokenizer.id(token), Some(id), "{config:?}");
        }
    }
    assert_eq!([PAD, UNK, BOS, EOS], [0, 1, 2, 3]);
}

#[test]
fn decoding_restores_the_text() {
    let seen = ["", " ", " see", "see ", "no  time", "\n\nlong\n"];
    for config in configs() {
        for text in TEXTS.into_iter().chain(seen) {
            let (ids, decoded) = round_trip(&config, text);
            assert!(!ids.contains(&UNK), "{config:?} {text:?}");
            assert_eq!(decoded, text, "{config:?}");
        }
    }
    // Unknown characters are encoded as bytes.
    let chars = TokenizerConfig::chars();
    let unseen = ["Zürich, 10€", "再见 👋🏽", "Привет…", "ﬁ", "<0x41> <pad>"];
    let bytes = chars.clone().with_byte_fallback(true);
    for config in [TokenizerConfig::bpe(300), bytes] {
        for text in unseen {
            assert_eq!(round_trip(&config, text).1, text, "{config:?}");
        }
    }
    // Without byte fallback they are unknown.
    let (ids, decoded) = round_trip(&chars, "no 钱!");
    assert_eq!(ids.iter().filter(|id| **id == UNK).count(), 1);
    assert_eq!(decoded, "no <unk>!");
    let (_, decoded) = round_trip(&TokenizerConfig::words(), "no money 不见");
    assert_eq!(decoded, "no <unk> 不 见");
}

#[test]
fn unknown_parts_are_as_written() {
    let [words, chars] = [TokenizerConfig::words(), TokenizerConfig::chars()];
    let bpe = TokenizerConfig::bpe(60).with_byte_fallback(false);
    for (config, unit, text, expected) in [
        (
            words.clone(),
            "word",
            "Zug, no flerb Zug!",
            &["Zug", "flerb"][..],
        ),
        (
            words.clone().with_lowercase(true),
            "word",
            "NO Zug",
            &["Zug"],
        ),
        (words, "word", "see cafe\u{301}", &["cafe\u{301}"]),
        (chars.clone(), "character", "no 钱 see 钱", &["钱"]),
        (chars.with_byte_fallback(true), "character", "no 钱", &[]),
        (bpe, "character", "钱 no 钱s", &["钱"]),
    ] {
        let tokenizer = config.train(TEXTS).unwrap();
        assert_eq!(tokenizer.unknown(text).unwrap(), expected, "{config:?}");
        assert_eq!(tokenizer.unknown_unit(), unit, "{config:?}");
        // One for each token, known or not.
        let written = tokenizer.written(text).unwrap();
        let is_unknown = written.iter().map(Option::is_some);
        let ids = tokenizer.encode(text).unwrap();
        assert!(is_unknown.eq(ids.iter().map(|id| *id == UNK)), "{config:?}");
    }
}

#[test]
fn text_is_normalized_to_nfc() {
    let composed = "caf\u{e9} 각";
    let decomposed = "cafe\u{301} \u{1100}\u{1161}\u{11a8}";
    for config in configs() {
        let tokenizer = config.train([composed]).unwrap();
        let ids = tokenizer.encode(decomposed).unwrap();
        assert_eq!(ids, tokenizer.encode(composed).unwrap());
        assert_eq!(tokenizer.decode(&ids).unwrap(), composed);
    }
}

#[test]
fn words_are_split_by_the_rule() {
    let tokens = |config: &TokenizerConfig, text: &str| {
        let tokenizer = config.train([text]).unwrap();
        let ids = tokenizer.encode(text).unwrap();
        let tokens = ids.iter().filter_map(|id| tokenizer.token(*id));
        tokens.collect::<Vec<_>>().join("|")
    };
    let text = "Don't go, go! 好久";
    let tokenized = "a man 's , \"hat\"";
    let words = TokenizerConfig::words();
    let lowercase = words.clone().with_lowercase(true);
    let bpe = TokenizerConfig::bpe(400);
    let by_spaces = |config: &TokenizerConfig| {
        config
            .clone()
            .with_pre_tokenization(PreTokenization::Whitespace)
    };
    for (config, text, expected) in [
        (&words, text, "Don|'|t|go|,|go|!|好|久"),
        (&by_spaces(&words), text, "Don't|go,|go!|好久"),
        (&lowercase, text, "don|'|t|go|,|go|!|好|久"),
        // With a large vocabulary, tokens grow to the boundaries of merges.
        (&bpe, text, "▁Don't|▁go|,|▁go|!|▁好久"),
        (&by_spaces(&bpe), tokenized, "▁a|▁man|▁'s|▁,|▁\"hat\""),
    ] {
        assert_eq!(tokens(config, text), expected);
    }
}

#[test]
fn vocabulary_is_sorted_by_frequency() {
    let config = TokenizerConfig::words().with_pre_tokenization(PreTokenization::Whitespace);
    let text = "b a c a b d b";
    let vocabulary = |config: &TokenizerConfig| {
        let tokenizer = config.train([text]).unwrap();
        let tokens = (4..tokenizer.vocab_size() as u32).filter_map(|id| tokenizer.token(id));
        tokens.collect::<String>()
    };
    assert_eq!(vocabulary(&config), "bacd");
    assert_eq!(vocabulary(&config.clone().with_min_frequency(2)), "ba");
    assert_eq!(vocabulary(&config.with_size(7)), "bac");
    let chars = TokenizerConfig::chars();
    assert_eq!(vocabulary(&chars), " bacd");
    assert_eq!(vocabulary(&chars.clone().with_min_frequency(3)), " b");
    assert_eq!(vocabulary(&chars.with_size(6)), " b");
}

#[test]
fn vocabulary_size_is_respected_with_more_characters() {
    let pairs = phrases(Direction::ChineseToEnglish);
    let texts = || pairs.iter().map(|pair| pair.source.as_str());
    for size in [50, 300, 700] {
        let has_bytes = size > 256;
        let config = TokenizerConfig::bpe(size).with_byte_fallback(has_bytes);
        let tokenizer = config.train(texts()).unwrap();
        assert_eq!(tokenizer.vocab_size(), size);
        for text in texts().filter(|_| has_bytes) {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }
}

#[test]
fn training_is_deterministic() {
    let pairs = phrases(Direction::ChineseToEnglish);
    let texts = || pairs.iter().map(|pair| pair.target.as_str());
    let all = configs().into_iter().chain([TokenizerConfig::words()]);
    for config in all {
        let first = config.train(texts()).unwrap().to_json().unwrap();
        for _ in 0..3 {
            assert_eq!(config.train(texts()).unwrap().to_json().unwrap(), first);
        }
    }
}

#[test]
fn text_is_never_encoded_as_special_tokens() {
    let text = "a </s> b <pad> <s> <unk> </s> </s>";
    let mut all = configs();
    all.push(TokenizerConfig::words().with_pre_tokenization(PreTokenization::Whitespace));
    for config in all {
        let tokenizer = config.train([text]).unwrap();
        let ids = tokenizer.encode(text).unwrap();
        assert!(
            !ids.iter().any(|id| SpecialIds::Fixed.is_control(*id)),
            "{config:?} {ids:?}"
        );
    }
}

#[test]
fn decoding_skips_control_tokens_and_batches_equal_single_texts() {
    let tokenizer = TokenizerConfig::bpe(320).train(TEXTS).unwrap();
    let mut ids = tokenizer.encode("no see").unwrap();
    ids.insert(0, BOS);
    ids.extend([EOS, PAD, PAD]);
    assert_eq!(tokenizer.decode(&ids).unwrap(), "no see");
    let one_by_one = TEXTS.map(|text| tokenizer.encode(text).unwrap());
    assert_eq!(tokenizer.encode_batch(TEXTS).unwrap(), one_by_one);
}

#[test]
fn joint_and_separate_tokenizers() {
    let folder = Folder::new();
    let pairs = [Pair::new("好久不见", "long time no see")];
    let chars = TokenizerConfig::chars();
    let separate =
        PairTokenizers::train_separate(&chars, &TokenizerConfig::words(), &pairs).unwrap();
    assert_eq!(separate.source().vocab_size(), 4 + 4);
    assert_eq!(separate.target().vocab_size(), 4 + 4);
    assert_eq!(separate.source().id("l"), None);
    let joint = PairTokenizers::train_joint(&chars, &pairs).unwrap();
    assert_eq!(joint.source().id("好"), joint.target().id("好"));
    assert!(joint.source().id("l").is_some());

    let error = PairTokenizers::load(&folder.path("")).unwrap_err();
    assert!(error.to_string().contains("tokenizer.json"), "{error}");
    let save_and_load = |tokenizers: &PairTokenizers| {
        for (name, tokenizer) in tokenizers.files() {
            folder.file(name, tokenizer.to_json().unwrap());
        }
        PairTokenizers::load(&folder.path("")).unwrap()
    };
    assert!(matches!(save_and_load(&joint), PairTokenizers::Joint(_)));
    let again = save_and_load(&separate).target().to_json().unwrap();
    assert_eq!(again, separate.target().to_json().unwrap());
}

#[test]
fn invalid_arguments_are_rejected() {
    let train = |config: TokenizerConfig, text| config.train([text]).unwrap_err().to_string();
    let size = train(TokenizerConfig::bpe(100), "ab");
    assert_eq!(size, "tokenizer size must be at least 261, got 100");
    let empty = train(TokenizerConfig::chars(), "");
    assert_eq!(empty, "the text to train a tokenizer on has no examples");
    let tokenizer = TokenizerConfig::chars().train(["ab"]).unwrap();
    let id = tokenizer.decode(&[4, 6]).unwrap_err().to_string();
    let expected = "tokenizer char: token id 6 is out of range for vocabulary size 6";
    assert_eq!(id, expected);
    let missing = Tokenizer::load(&Folder::new().path("no/such/tokenizer.json"));
    let missing = missing.unwrap_err().to_string();
    assert!(missing.starts_with("cannot read "), "{missing}");
}

#[test]
fn invalid_files_are_rejected() {
    let folder = Folder::new();
    let whole = TokenizerConfig::chars().train(["ab"]).unwrap();
    let whole = whole.to_json().unwrap();
    let changed = |from: &str, to: &str| {
        let changed = whole.replace(from, to);
        assert_ne!(changed, whole);
        changed
    };
    let precompiled = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA==\"}";
    let nfc = "{\"type\":\"NFC\"}";
    let [ids, swapped] = ["\"<pad>\":0,\"<unk>\":1", "\"<unk>\":0,\"<pad>\":1"];
    for (text, expected) in [
        ("word\n", "the file is not JSON (expected value at line 1"),
        ("{\"a\": 1}", "the file is JSON, but not a tokenizer ("),
        // Found by fuzzing: the crate panics.
        (&changed("\"Fuse\"}", "\"Fuse\""), "line 1 column"),
        (&changed(nfc, precompiled), "the crate tokenizers"),
        (&changed(ids, swapped), "token 0 must be <pad>, got <unk>"),
        (&changed("\"b\":5", "\"b\":9"), "ids must be contiguous"),
        (&changed("\"b\":5", "\"b\":4,\"c\":5"), "both have the id 4"),
        (&changed("dropout\":null", "dropout\":0.5"), "BPE dropout"),
    ] {
        let path = folder.file("no.json", text);
        let error = Tokenizer::load(&path).unwrap_err().to_string();
        let name = format!("tokenizer {}: ", path.display());
        assert!(error.starts_with(&name), "{error}");
        assert!(error.contains(expected), "{error}");
        let has_help = error.contains("\n  help: use a tokenizer.json");
        assert_eq!(has_help, error.contains("the file is "), "{error}");
    }
}
