//! Printed configs, templates, docs/config.md and the configs in `configs/`.

use std::path::{Path, PathBuf};
use zoo_spec::Mechanism;

use zoo_config::{Config, DOCS_PATH, Model, Override, TEMPLATES, docs, template};

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
    let seq2seq = [
        "copy",
        "reverse",
        "sort",
        "dates",
        "recall",
        "phrases",
        "parallel\"\ntrain = \"a.tsv",
    ];
    let classes = ["documents", "labelled\"\ntrain = \"a.zip"];
    let supported: [(&str, &[&str]); 5] = [
        ("transformer", &seq2seq),
        ("seq2seq", &seq2seq),
        ("han", &classes),
        ("classifier", &["listops", classes[0], classes[1]]),
        ("gpt", &["plain\"\ntrain = \"a.txt"]),
    ];
    let files = supported.iter().flat_map(|(model, data)| {
        let file = move |data: &&str| {
            format!("[data]\nkind = \"{data}\"\n\n[model]\nkind = \"{model}\"\n")
        };
        data.iter().map(file)
    });
    files.collect()
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
        r#"
        [run]
        name = "a \"quoted\" name"
        [backend]
        name = "tch-cuda"
        devices = [0, 1]
        [data]
        kind = "parallel"
        train = ["a.en", "a.de"]
        valid = "b.tsv"
        target_column = 3
        [model]
        kind = "transformer"
        layers = 4
        decoder_layers = 1
        tying = "all"
        encoder_attention = { kind = "performer", features = 64, resample = 9 }
        decoder_attention = { kind = "strided", stride = 4 }
        cross_attention = "concat"
        positions = { kind = "rotary", theta = 1e5 }
        [optimizer]
        kind = "sgd"
        clipping = { kind = "value", at = 0.5 }
        [schedule]
        kind = "cosine"
        steps = 50
        [training]
        epochs = 3
        precision = "f16"
        loss_scale = { kind = "fixed", scale = 128 }
        [decoding]
        strategy = { kind = "beam", beams = 5, length_penalty = 0.6 }
        "#,
        r#"
        [data]
        kind = "labelled"
        train = "a.csv"
        label_field = "stars"
        sentences = "lines"
        max_words = 30
        [tokenizer]
        kind = "bpe"
        load = "tokenizer.json"
        [model]
        kind = "han"
        cell = "lstm"
        [validation]
        metric = "macro-f1"
        patience = 2
        "#,
        r#"
        [data]
        kind = "plain"
        train = "a.txt"
        test_share = 0.05
        [model]
        kind = "gpt"
        attention = { kind = "linear", features = "relu" }
        positions = "none"
        [decoding]
        strategy = { kind = "sample", top_k = 5, top_p = 0.9 }
        "#,
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
        "clipping = { kind = \"norm\", at = 1.0 }\n",
        "# n_heads_kv is not set (default: as the mechanism requires, else `n_heads`)\n",
    ] {
        assert!(printed.contains(line), "{line}{printed}");
    }
}

#[test]
fn default_bleu_tokenizer() {
    let phrases = |direction| format!("kind = \"phrases\"\ndirection = \"{direction}\"");
    let spaces = "[tokenizer]\nkind = \"bpe\"\nwords = \"spaces\"";
    for (data, rest, expected) in [
        ("kind = \"reverse\"".to_owned(), "", Some("none")),
        (phrases("zh-en"), "", Some("13a")),
        (phrases("en-zh"), "", Some("zh")),
        (phrases("zh-en"), spaces, Some("none")),
        (
            phrases("zh-en"),
            "[validation]\nbleu_tokenizer = \"char\"",
            Some("char"),
        ),
        ("kind = \"plain\"\ntrain = \"a\"".to_owned(), "", None),
    ] {
        let model = match expected {
            Some(_) => "transformer",
            None => "gpt",
        };
        let config = read(&format!(
            "[data]\n{data}\n[model]\nkind = \"{model}\"\n{rest}\n"
        ));
        let resolved = config.validation.bleu_tokenizer;
        assert_eq!(
            resolved.map(|tokenizer| tokenizer.name()),
            expected,
            "{data} {rest}"
        );
    }
}

#[test]
fn templates_are_the_defaults_with_comments() {
    for kind in TEMPLATES {
        let text = template(kind).expect("a template");
        let name = format!("my-{kind}.toml");
        let config = Config::parse(&name, &text, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.model.name(), kind);
        let data = match kind {
            "gpt" => "kind = \"plain\"\ntrain = \"data/input.txt\"".to_owned(),
            _ => format!("kind = \"{}\"", config.data.name()),
        };
        let required = format!("[data]\n{data}\n[model]\nkind = \"{kind}\"\n");
        assert_eq!(
            Config::parse(&name, &required, &[]).ok(),
            Some(config.clone()),
            "{text}"
        );
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
        assert!(
            lines.iter().filter(|line| is_default(line)).count() >= 4,
            "{text}"
        );
        let uncommented: Vec<_> = lines
            .iter()
            .map(|line| if is_default(line) { &line[2..] } else { line })
            .collect();
        let uncommented = uncommented.join("\n");
        assert_eq!(Config::parse(&name, &uncommented, &[]).ok(), Some(config));
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

fn shipped_configs() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(workspace().join("configs")).expect("a folder");
    let files = folder.map(|file| file.expect("an entry").path());
    files
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect()
}

#[test]
fn shipped_configs_are_valid_and_documented() {
    let mut names = vec![];
    for path in shipped_configs() {
        let config = Config::read(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        let name = path.file_stem().expect("a name").to_string_lossy();
        assert_eq!(config.run.name.as_deref(), Some(&*name));
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.starts_with("# "), "{name} has no description");
        let command = format!("cargo xtask train configs/{name}.toml");
        assert!(
            text.contains(&command),
            "{name} does not mention its command"
        );
        assert_eq!(read(&config.to_toml()), config, "{name}");
        for key in ["training.steps=1", "run.seed=7"] {
            let change = Override::set(key).expect("a key and a value");
            let changed = Config::read(&path, &[change]);
            let runs_by_epochs = config.training.epochs.is_some() && key.contains("steps");
            assert_eq!(changed.is_err(), runs_by_epochs, "{name}: {key}");
        }
        names.push(name.into_owned());
    }
    for name in [
        "classifier-listops-flash",
        "classifier-listops-linear",
        "classifier-listops-sliding-window",
        "classifier-listops-standard",
        "gpt-shakespeare",
        "gpt-shakespeare-cpu",
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
        assert_eq!(model.attention.mechanism().name(), mechanism);
        model.attention = zoo_spec::MechanismConfig::from(Mechanism::Flash);
        config
    };
    let standard = read("standard");
    for mechanism in ["flash", "sliding-window", "linear"] {
        assert_eq!(read(mechanism), standard, "{mechanism}");
    }
}
