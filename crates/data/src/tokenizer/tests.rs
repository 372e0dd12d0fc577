use super::*;
use crate::tasks::{Direction, phrases};
use crate::test_files::Folder;
use crate::{Pair, WordRule};

const TEXTS: [&str; 4] = [
    "long time no see",
    "好久不见",
    "the longest time, the longest see!",
    "don't  see\n\tno time",
];

fn configs() -> Vec<TokenizerConfig> {
    let mut configs = vec![
        TokenizerConfig::chars(),
        TokenizerConfig::chars().with_byte_fallback(true),
    ];
    for words in [WordRule::Spaces, WordRule::Marks] {
        let small = TokenizerConfig::bpe(60).with_byte_fallback(false);
        configs.push(TokenizerConfig::bpe(320).with_words(words));
        configs.push(small.with_words(words));
    }
    configs
}

/// What becomes of a text in a tokenizer that was learned from [`TEXTS`].
fn there_and_back(config: &TokenizerConfig, text: &str) -> (Vec<u32>, String) {
    let tokenizer = config.train(TEXTS).unwrap();
    let ids = tokenizer.encode(text).unwrap();
    assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary()));
    let decoded = tokenizer.decode(&ids).unwrap();
    (ids, decoded)
}

#[test]
fn special_tokens_are_the_same_everywhere() {
    let all = configs().into_iter().chain([TokenizerConfig::words()]);
    for config in all {
        let tokenizer = config.train(TEXTS).unwrap();
        for (id, token) in (0..).zip(SPECIAL_TOKENS) {
            assert_eq!(tokenizer.token(id).as_deref(), Some(token), "{config:?}");
            assert_eq!(tokenizer.id(token), Some(id), "{config:?}");
        }
    }
    assert_eq!([PAD, UNKNOWN, BEGIN, END], [0, 1, 2, 3]);
}

#[test]
fn text_comes_back_as_it_was() {
    let seen = ["", " ", " see", "see ", "no  time", "\n\nlong\n"];
    for config in configs() {
        for text in TEXTS.into_iter().chain(seen) {
            let (ids, decoded) = there_and_back(&config, text);
            assert!(!ids.contains(&UNKNOWN), "{config:?} {text:?}");
            assert_eq!(decoded, text, "{config:?}");
        }
    }
    // By its bytes, if it was never seen.
    let chars = TokenizerConfig::chars();
    for config in [
        TokenizerConfig::bpe(300),
        chars.clone().with_byte_fallback(true),
    ] {
        for text in ["Zürich, 10€", "再见 👋🏽", "Привет…", "ﬁ", "<0x41> <pad>"]
        {
            assert_eq!(there_and_back(&config, text).1, text, "{config:?}");
        }
    }
    // Without bytes it is unknown.
    let (ids, decoded) = there_and_back(&chars, "no 钱!");
    assert_eq!(ids.iter().filter(|id| **id == UNKNOWN).count(), 1);
    assert_eq!(decoded, "no <unk>!");
    let (_, decoded) = there_and_back(&TokenizerConfig::words(), "no money 不见");
    assert_eq!(decoded, "no <unk> 不 见");
}

#[test]
fn one_character_is_one_however_it_was_typed() {
    let composed = "caf\u{e9} 각";
    let taken_apart = "cafe\u{301} \u{1100}\u{1161}\u{11a8}";
    for config in configs() {
        let tokenizer = config.train([composed]).unwrap();
        let ids = tokenizer.encode(taken_apart).unwrap();
        assert_eq!(ids, tokenizer.encode(composed).unwrap());
        assert_eq!(tokenizer.decode(&ids).unwrap(), composed);
    }
}

#[test]
fn words_are_cut_where_the_rule_says() {
    let tokens = |config: &TokenizerConfig, text: &str| {
        let tokenizer = config.train([text]).unwrap();
        let ids = tokenizer.encode(text).unwrap();
        let written = ids.iter().filter_map(|id| tokenizer.token(*id));
        written.collect::<Vec<_>>().join("|")
    };
    let text = "Don't go, go! 好久";
    let words = TokenizerConfig::words();
    let bpe = TokenizerConfig::bpe(400);
    let by_spaces = |config: &TokenizerConfig| config.clone().with_words(WordRule::Spaces);
    for (config, text, expected) in [
        (&words, text, "Don|'|t|go|,|go|!|好|久"),
        (&by_spaces(&words), text, "Don't|go,|go!|好久"),
        (
            &words.clone().with_lowercase(true),
            text,
            "don|'|t|go|,|go|!|好|久",
        ),
        // With room for everything, pieces grow to what merges do not cross.
        (&bpe, text, "▁Don't|▁go|,|▁go|!|▁好久"),
        (
            &by_spaces(&bpe),
            "a man 's , \"hat\"",
            "▁a|▁man|▁'s|▁,|▁\"hat\"",
        ),
    ] {
        assert_eq!(tokens(config, text), expected);
    }
}

#[test]
fn frequent_words_come_first_and_rare_ones_not_at_all() {
    let config = TokenizerConfig::words().with_words(WordRule::Spaces);
    let text = "b a c a b d b";
    let vocabulary = |config: &TokenizerConfig| {
        let tokenizer = config.train([text]).unwrap();
        let tokens = (4..tokenizer.vocabulary() as u32).filter_map(|id| tokenizer.token(id));
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
fn sizes_hold_also_where_there_are_more_characters() {
    let pairs = phrases(Direction::ChineseToEnglish);
    let texts = || pairs.iter().map(|pair| pair.source.as_str());
    for config in [
        TokenizerConfig::bpe(50).with_byte_fallback(false),
        TokenizerConfig::bpe(300),
        TokenizerConfig::bpe(700),
    ] {
        let tokenizer = config.train(texts()).unwrap();
        assert_eq!(Some(tokenizer.vocabulary()), config.size);
    }
    let tokenizer = TokenizerConfig::bpe(300).train(texts()).unwrap();
    for text in texts() {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
}

#[test]
fn the_same_text_trains_the_same_tokenizer() {
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
fn text_never_becomes_a_special_token() {
    let text = "a </s> b <pad> <s> <unk> </s> </s>";
    let mut all = configs();
    all.push(TokenizerConfig::words().with_words(WordRule::Spaces));
    for config in all {
        let tokenizer = config.train([text]).unwrap();
        let ids = tokenizer.encode(text).unwrap();
        assert!(!ids.iter().any(|id| is_silent(*id)), "{config:?} {ids:?}");
    }
}

#[test]
fn silent_tokens_are_not_written_and_many_texts_are_encoded_at_once() {
    let tokenizer = TokenizerConfig::bpe(320).train(TEXTS).unwrap();
    let mut ids = tokenizer.encode("no see").unwrap();
    ids.insert(0, BEGIN);
    ids.extend([END, PAD, PAD]);
    assert_eq!(tokenizer.decode(&ids).unwrap(), "no see");
    let one_by_one = TEXTS.map(|text| tokenizer.encode(text).unwrap());
    assert_eq!(tokenizer.encode_all(TEXTS).unwrap(), one_by_one);
}

#[test]
fn both_sides_or_one_each() {
    let folder = Folder::new();
    let pairs = [Pair::new("好久不见", "long time no see")];
    let chars = TokenizerConfig::chars();
    let separate =
        PairTokenizers::train_separate(&chars, &TokenizerConfig::words(), &pairs).unwrap();
    assert_eq!(separate.source().vocabulary(), 4 + 4);
    assert_eq!(separate.target().vocabulary(), 4 + 4);
    assert_eq!(separate.source().id("l"), None);
    let joint = PairTokenizers::train_joint(&chars, &pairs).unwrap();
    assert_eq!(joint.source().id("好"), joint.target().id("好"));
    assert!(joint.source().id("l").is_some());

    let error = PairTokenizers::load(&folder.path("")).unwrap_err();
    assert!(error.to_string().contains("tokenizer.json"), "{error}");
    let written = |tokenizers: &PairTokenizers| {
        for (name, tokenizer) in tokenizers.files() {
            folder.file(name, tokenizer.to_json().unwrap());
        }
        PairTokenizers::load(&folder.path("")).unwrap()
    };
    assert!(matches!(written(&joint), PairTokenizers::Joint(_)));
    let again = written(&separate).target().to_json().unwrap();
    assert_eq!(again, separate.target().to_json().unwrap());
}

#[test]
fn what_cannot_be_is_explained() {
    let folder = Folder::new();
    let tokenizer = TokenizerConfig::chars().train(["ab"]).unwrap();
    for (error, expected) in [
        (
            TokenizerConfig::bpe(100).train(TEXTS).map(drop),
            "tokenizer size must be at least 261, got 100",
        ),
        (
            TokenizerConfig::chars().train([""]).map(drop),
            "the text to train a tokenizer on has no examples",
        ),
        (
            tokenizer.decode(&[4, 6]).map(drop),
            "tokenizer char: there is no token 6: it has 6",
        ),
    ] {
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
    let missing = folder.path("no/such/tokenizer.json");
    let error = Tokenizer::load(&missing).unwrap_err().to_string();
    assert!(error.starts_with("cannot read "), "{error}");
}

#[test]
fn a_file_that_cannot_be_used_is_told_so() {
    let folder = Folder::new();
    let whole = TokenizerConfig::chars().train(["ab"]).unwrap();
    let whole = whole.to_json().unwrap();
    let changed = |from: &str, to: &str| {
        let changed = whole.replace(from, to);
        assert_ne!(changed, whole);
        changed
    };
    let precompiled = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA==\"}";
    for (text, expected) in [
        (
            "word\n".to_owned(),
            "the file is not JSON (expected value at line 1",
        ),
        (
            "{\"a\": 1}".to_owned(),
            "the file is JSON, and no tokenizer (",
        ),
        // Both found by fuzzing: the crate panics over them.
        (changed("\"Fuse\"}", "\"Fuse\""), "line 1 column"),
        (
            changed("{\"type\":\"NFC\"}", precompiled),
            "the crate tokenizers",
        ),
        (
            changed("\"<pad>\":0,\"<unk>\":1", "\"<unk>\":0,\"<pad>\":1"),
            "token 0 must be <pad>, and is <unk>; train one here, or renumber it",
        ),
        (changed("\"b\":5", "\"b\":9"), "ids must have no gaps"),
        (changed("\"b\":5", "\"b\":4,\"c\":5"), "both have the id 4"),
        (changed("\"dropout\":null", "\"dropout\":0.5"), "at random"),
    ] {
        let path = folder.file("no.json", text);
        let said = Tokenizer::load(&path).unwrap_err().to_string();
        let begin = format!("tokenizer {}: ", path.display());
        assert!(
            said.starts_with(&begin) && said.contains(expected),
            "{said}"
        );
        let is_told = said.contains("\n  do: name a tokenizer.json");
        assert_eq!(is_told, said.contains("the file is "), "{said}");
    }
}
