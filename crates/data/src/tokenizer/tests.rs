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
    let mut configs = vec![];
    for words in [WordRule::Spaces, WordRule::Marks] {
        configs.push(TokenizerConfig::bpe(320).with_words(words));
        configs.push(
            TokenizerConfig::bpe(60)
                .with_words(words)
                .with_byte_fallback(false),
        );
    }
    configs.push(TokenizerConfig::chars());
    configs.push(TokenizerConfig::chars().with_byte_fallback(true));
    configs
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
    for config in configs() {
        let tokenizer = config.train(TEXTS).unwrap();
        for text in TEXTS
            .into_iter()
            .chain(["", " ", " see", "see ", "no  time", "\n\nlong\n"])
        {
            let ids = tokenizer.encode(text).unwrap();
            assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary()));
            assert!(!ids.contains(&UNKNOWN), "{config:?} {text:?}");
            assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{config:?}");
        }
    }
}

#[test]
fn text_that_was_never_seen_comes_back_by_its_bytes() {
    let unseen = ["Zürich, 10€", "再见 👋🏽", "Привет…", "ﬁ", "<0x41> <pad>"];
    for config in [
        TokenizerConfig::bpe(300),
        TokenizerConfig::chars().with_byte_fallback(true),
    ] {
        let tokenizer = config.train(TEXTS).unwrap();
        for text in unseen {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{config:?}");
        }
    }
}

#[test]
fn without_bytes_it_is_unknown() {
    let tokenizer = TokenizerConfig::chars().train(TEXTS).unwrap();
    let ids = tokenizer.encode("no 钱!").unwrap();
    assert_eq!(ids.iter().filter(|id| **id == UNKNOWN).count(), 1);
    assert_eq!(tokenizer.decode(&ids).unwrap(), "no <unk>!");
    let tokenizer = TokenizerConfig::words().train(TEXTS).unwrap();
    let ids = tokenizer.encode("no money 不见").unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), "no <unk> 不 见");
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
    assert_eq!(tokens(&words, text), "Don|'|t|go|,|go|!|好|久");
    let spaces = words.clone().with_words(WordRule::Spaces);
    assert_eq!(tokens(&spaces, text), "Don't|go,|go!|好久");
    assert_eq!(
        tokens(&words.with_lowercase(true), text),
        "don|'|t|go|,|go|!|好|久"
    );
    // With room for everything, pieces grow to what merges do not cross.
    let bpe = TokenizerConfig::bpe(400);
    assert_eq!(tokens(&bpe, text), "▁Don't|▁go|,|▁go|!|▁好久");
    let spaces = bpe.with_words(WordRule::Spaces);
    assert_eq!(
        tokens(&spaces, "a man 's , \"hat\""),
        "▁a|▁man|▁'s|▁,|▁\"hat\""
    );
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
fn silent_tokens_are_not_written() {
    let tokenizer = TokenizerConfig::bpe(320).train(TEXTS).unwrap();
    let mut ids = tokenizer.encode("no see").unwrap();
    ids.insert(0, BEGIN);
    ids.extend([END, PAD, PAD]);
    assert_eq!(tokenizer.decode(&ids).unwrap(), "no see");
}

#[test]
fn many_at_once_are_the_same_as_one_by_one() {
    let tokenizer = TokenizerConfig::bpe(320).train(TEXTS).unwrap();
    let all = tokenizer.encode_all(TEXTS).unwrap();
    for (ids, text) in all.iter().zip(TEXTS) {
        assert_eq!(*ids, tokenizer.encode(text).unwrap());
    }
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
    let read = Tokenizer::load(&missing);
    assert!(matches!(read, Err(DataError::File { .. })));
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
