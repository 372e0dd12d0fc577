//! Printed configs, templates, docs/config.md and the configs in `configs/`.

use std::path::{Path, PathBuf};
use zoo_spec::Mechanism;

use zoo_config::{BleuTokenizer, Config, DOCS_PATH, Model, Override, TEMPLATES, docs, template};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(text: &str) -> Config {
    match Config::parse("a.toml", text, &[]) {
        Ok(config) => config,
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// Minimal configs, one for each model and kind of data.
fn minimal() -> Vec<String> {
    let seq2seq = "copy reverse sort dates recall phrases parallel";
    let supported = [
        ("transformer", seq2seq),
        ("seq2seq", seq2seq),
        ("han", "documents labelled"),
        ("classifier", "recall listops documents labelled"),
        ("gpt", "plain"),
    ];
    let mut files = vec![];
    for (model, kinds) in supported {
        for kind in kinds.split(' ') {
            let train = match kind {
                "parallel" | "labelled" | "plain" => "train = \"a.txt\"\n",
                _ => "",
            };
            files.push(format!(
                "[data]\nkind = \"{kind}\"\n{train}\n[model]\nkind = \"{model}\"\n"
            ));
        }
    }
    files
}

/// Checks that the printed config parses to the same config, and prints the same.
#[track_caller]
fn check_round_trip(text: &str) -> String {
    let config = read(text);
    let printed = config.to_toml();
    let again = read(&printed);
    assert_eq!(again, config, "{printed}");
    assert_eq!(again.to_toml(), printed);
    printed
}

#[test]
fn minimal_configs_round_trip() {
    for text in minimal() {
        check_round_trip(&text);
    }
    // Different numbers of encoder and decoder layers.
    for model in ["transformer", "seq2seq"] {
        for (encoder, decoder) in [(5, 5), (5, 6), (2, 5), (5, 2)] {
            check_round_trip(&format!(
                "[data]\nkind = \"reverse\"\n[model]\nkind = \"{model}\"\n\
                 encoder_layers = {encoder}\ndecoder_layers = {decoder}\n"
            ));
        }
    }
    // The default of d_feed_forward, four times as much, is its maximum.
    let max = 1 << 20;
    check_round_trip(&format!(
        "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\nd_model = {max}\nn_heads = 1\n"
    ));
}

#[test]
fn configs_with_many_keys_round_trip() {
    for text in [
        include_str!("many_keys/transformer.toml"),
        include_str!("many_keys/han.toml"),
        include_str!("many_keys/gpt.toml"),
    ] {
        let printed = check_round_trip(text);
        for section in ["run", "data", "tokenizer", "model", "training"] {
            assert!(printed.contains(&format!("[{section}]\n")), "{printed}");
        }
    }
}

#[test]
fn printed_config_has_resolved_defaults() {
    let text = "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\nlayers = 3\n";
    let printed = check_round_trip(text);
    for line in [
        "name = \"a\"\n",
        "encoder_layers = 3\n",
        "d_feed_forward = 512\n",
        "metric = \"exact\"\n",
        "steps = 2000\n",
        "vocabulary = \"separate\"\n",
        "kind = \"word\"\n",
        "encoder_attention = \"flash\"\n",
        "clipping = { kind = \"norm\", threshold = 1.0 }\n",
        "# n_heads_kv is not set (default: as the mechanism requires, else `n_heads`)\n",
    ] {
        assert!(printed.contains(line), "{line}{printed}");
    }
}

#[test]
fn default_bleu_tokenizer() {
    let phrases = |direction| format!("kind = \"phrases\"\ndirection = \"{direction}\"");
    let spaces = "[tokenizer]\nkind = \"bpe\"\npre_tokenizer = \"whitespace\"";
    let chars = "[validation]\nbleu_tokenizer = \"char\"";
    for (data, rest, expected) in [
        ("kind = \"reverse\"".to_owned(), "", Some("none")),
        (phrases("zh-en"), "", Some("13a")),
        (phrases("en-zh"), "", Some("zh")),
        (phrases("zh-en"), spaces, Some("none")),
        (phrases("zh-en"), chars, Some("char")),
        ("kind = \"plain\"\ntrain = \"a\"".to_owned(), "", None),
    ] {
        let model = expected.map_or("gpt", |_| "transformer");
        let text = format!("[data]\n{data}\n[model]\nkind = \"{model}\"\n{rest}\n");
        let resolved = read(&text).validation.bleu_tokenizer;
        assert_eq!(resolved.map(BleuTokenizer::name), expected, "{text}");
    }
}

#[test]
fn templates_are_the_defaults_with_comments() {
    for kind in TEMPLATES {
        let text = template(kind).expect("a template");
        let is_short = |line: &str| line.chars().count() <= 100;
        assert!(text.lines().all(is_short), "{text}");
        let name = "my.toml";
        let config = Config::parse(name, &text, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.model.name(), kind);
        let data = match kind {
            "gpt" => "kind = \"plain\"\ntrain = \"data/input.txt\"".to_owned(),
            _ => format!("kind = \"{}\"", config.data.name()),
        };
        let required = format!("[data]\n{data}\n[model]\nkind = \"{kind}\"\n");
        let minimal = Config::parse(name, &required, &[]).ok();
        assert_eq!(minimal, Some(config.clone()), "{text}");
        // Every key follows a comment.
        let lines: Vec<_> = text.lines().collect();
        for pair in lines.windows(2) {
            let is_key = pair[1].contains(" = ") && !pair[1].starts_with('#');
            assert!(!is_key || pair[0].starts_with('#'), "{}", pair[1]);
        }
        // Uncommenting the defaults does not change the config.
        let is_default = |line: &&str| {
            let key = line
                .strip_prefix("# ")
                .and_then(|line| line.split_once(" = "));
            key.is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        };
        let defaults = lines.iter().filter(|line| is_default(line));
        assert!(defaults.count() >= 4, "{text}");
        let uncommented: Vec<_> = lines
            .iter()
            .map(|line| if is_default(line) { &line[2..] } else { line })
            .collect();
        let uncommented = uncommented.join("\n");
        assert_eq!(Config::parse(name, &uncommented, &[]).ok(), Some(config));
    }
}

#[test]
fn docs_are_up_to_date() {
    let written = std::fs::read_to_string(workspace().join(DOCS_PATH)).unwrap_or_default();
    assert!(
        written == docs(),
        "{DOCS_PATH} is out of date: run `cargo xtask config-docs`"
    );
}

#[test]
fn shipped_configs_are_valid_and_documented() {
    let folder = std::fs::read_dir(workspace().join("configs")).expect("a folder");
    let files = folder.map(|file| file.expect("an entry").path());
    let mut names = vec![];
    for path in files.filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        let config = Config::read(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        let name = path.file_stem().expect("a name").to_string_lossy();
        assert_eq!(config.run.name.as_deref(), Some(&*name));
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.starts_with("# "), "{name} has no description");
        let command = format!("cargo xtask train configs/{name}.toml");
        assert!(text.contains(&command), "{name} does not say {command}");
        assert_eq!(read(&config.to_toml()), config, "{name}");
        for key in ["training.steps=1", "training.epochs=1", "run.seed=7"] {
            let change = Override::set(key).expect("a key and a value");
            assert!(Config::read(&path, &[change]).is_ok(), "{name}: {key}");
        }
        // Tests run in the folder of the crate, where there is no data.
        match config.check_files(&path, &[], false) {
            Ok(()) => assert!(config.files().is_empty(), "{name}"),
            Err(error) => {
                let message = error.to_string();
                let help = "\n  help: download the data from https://";
                assert!(message.contains(help), "{message}");
            }
        }
        names.push(name.into_owned());
    }
    for name in [
        "classifier-listops-flash",
        "classifier-listops-linear",
        "classifier-listops-long",
        "classifier-listops-sliding-window",
        "classifier-listops-standard",
        "classifier-recall",
        "gpt-shakespeare",
        "gpt-shakespeare-256",
        "gpt-shakespeare-cpu",
        "gpt-shakespeare-hybrid",
        "gpt-shakespeare-sink",
        "han-reviews",
        "han-synthetic",
        "seq2seq-dates",
        "seq2seq-luong",
        "transformer-dates",
        "transformer-multi30k",
        "transformer-reverse",
        "transformer-zh-en",
    ] {
        assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
    }
}

/// The configs are compared with each other, so they must differ in nothing else.
#[test]
fn listops_classifiers_differ_only_in_their_attention() {
    let read = |mechanism: &str| {
        let file = format!("configs/classifier-listops-{mechanism}.toml");
        let mut config = Config::read(&workspace().join(file), &[]).expect("a valid config");
        config.run.name = None;
        let Model::Classifier(model) = &mut config.model else {
            panic!("{mechanism} is a classifier");
        };
        assert_eq!(model.attention.names(), mechanism);
        model.attention = Mechanism::Flash.into();
        config
    };
    let standard = read("standard");
    for mechanism in ["flash", "sliding-window", "linear"] {
        assert_eq!(read(mechanism), standard, "{mechanism}");
    }
}
