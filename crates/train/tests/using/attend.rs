//! `zoo attend`: HTML pages and heatmaps.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use zoo_train::cli::attend::Attend;
use zoo_train::{AttentionKind, AttentionMaps, AttentionRequest};
use zoo_viz::{Part, browser};

use crate::runs::*;

// Device-dependent.
trials! {
    on_devices(Runs):
    html_page_of_every_model,
    with_a_given_target,
    queries_of_a_long_text,
}

trials! {
    trials(Runs):
    examples_of_the_test_set,
    unknown_words_of_a_document_are_as_written,
    #[cfg(unix)]
    page_is_opened,
    svg_and_png,
    invalid_arguments_are_rejected,
}

pub(crate) fn in_browser(runs: &Runs) -> Trial {
    let runs = runs.clone();
    let browser = browser::find();
    let is_ignored = browser.is_none();
    Trial::test("attend::pages_run_in_a_browser", move || {
        let browser = browser.ok_or("there is no chromium on the PATH")?;
        pages_run(&runs, &browser)
    })
    .with_ignored_flag(is_ignored)
}

/// A text for each model and parts of its page.
fn texts() -> [(Kind, &'static str, &'static [&'static str]); 5] {
    [
        (
            Kind::Transformer,
            "a b c",
            &["Encoder", "Decoder", "Cross-attention", ">&lt;s&gt;<"],
        ),
        (
            Kind::Seq2Seq,
            "a b c",
            &["Alignment", "query (target)", "key (source)"],
        ),
        (Kind::Gpt, "to be", &["Self-attention", "layer 1"]),
        (
            Kind::Classifier,
            "[ MAX 1 2 ]",
            &["Self-attention", "Pooling", "predicted: "],
        ),
        (
            Kind::Han,
            "one two three .\nfour five .",
            &["class=\"word\"", "predicted: "],
        ),
    ]
}

fn page(runs: &Runs, kind: Kind, text: &str) -> PathBuf {
    let to = runs.file(&format!("{kind:?}.html"));
    let args = ["--text", text, "--to", to.to_str().unwrap()];
    let stdout = runs.run_ok::<Attend>(kind, &args);
    assert_eq!(stdout, format!("{}\n", to.display()));
    to
}

fn html_page_of_every_model(runs: &Runs) {
    for (kind, text, parts) in texts() {
        let html = std::fs::read_to_string(page(runs, kind, text)).unwrap();
        for part in parts {
            assert!(html.contains(part), "no {part} on the page of {kind:?}");
        }
        let name = format!("Attention weights of {kind:?}");
        assert!(html.contains(&name), "{kind:?}");
    }
    // By default, the page is in the run folder.
    runs.run_ok::<Attend>(Kind::Gpt, &["--text", "to be"]);
    assert!(runs.folder(Kind::Gpt).join("attention.html").is_file());
}

fn with_a_given_target(runs: &Runs) {
    let trained = runs.open(Kind::Transformer);
    let maps = trained.attention_maps("a b c", Some("d c"), None).unwrap();
    let parts = &maps.page.parts;
    assert_eq!(parts.len(), 3);
    assert!(parts.iter().all(|part| matches!(part, Part::Heads(_))));
    let svg = maps.heatmap(None, None).unwrap().to_svg();
    // The cross-attention is first. Target tokens with the end token, and source tokens.
    has(&svg, "Cross-attention, layer 1, head ");
    for token in [">d<", ">c<", ">&lt;/s&gt;<", ">a<", ">b<"] {
        has(&svg, token);
    }
    let decoder = Some(AttentionKind::Decoder);
    let decoder = trained.attention_maps("a b c", Some("d c"), decoder);
    let decoder = decoder.unwrap();
    assert_eq!(decoder.page.parts.len(), 1);
    let svg = decoder.heatmap(Some(1), Some(2)).unwrap().to_svg();
    has(&svg, "Decoder, layer 1, head 2");
    has(&svg, ">&lt;s&gt;<");
}

/// Some rows of the weights are those of all.
fn queries_of_a_long_text(runs: &Runs) {
    let trained = runs.open(Kind::Gpt);
    let text = "to be or not";
    let maps = |queries: &str| {
        let request = AttentionRequest {
            text,
            queries: queries.parse().unwrap(),
            ..AttentionRequest::default()
        };
        trained.attention(&request).unwrap()
    };
    let (some, all) = (maps("12,3-4"), maps("1-12"));
    let note = "text: 3 of 12 queries, selected; --queries selects others";
    assert_eq!(some.selection, [note]);
    assert!(all.selection.is_empty());
    let cells = |maps: &AttentionMaps| -> Vec<String> {
        let svg = maps.heatmap(Some(1), Some(2)).unwrap().to_svg();
        let titles = svg.split("<title>").skip(1);
        titles
            .map(|it| it.split('<').next().unwrap().to_owned())
            .collect()
    };
    let (some, all) = (cells(&some), cells(&all));
    assert_eq!((some.len(), all.len()), (3 * 12, 12 * 12));
    let expected = [&all[11 * 12..], &all[2 * 12..4 * 12]].concat();
    assert_eq!(some, expected);
}

fn examples_of_the_test_set(runs: &Runs) {
    let page = runs.file("example.html").display().to_string();
    for kind in KINDS {
        let args = ["--example", "2", "--to", &page];
        runs.run_ok::<Attend>(kind, &args);
        let html = std::fs::read_to_string(&page).unwrap();
        assert_eq!(html.contains("reference: "), kind != Kind::Gpt, "{kind:?}");
    }
    for (kind, sizes) in [(Kind::Transformer, "6"), (Kind::Han, "4"), (Kind::Gpt, "8")] {
        for number in ["0", "900"] {
            let message = runs.run_err::<Attend>(kind, &["--example", number]);
            let expected = format!("the test data has {sizes} examples; --example must be from 1");
            assert!(message.contains(&expected), "{kind:?}: {message}");
        }
    }
    // The position of its first token, 16 times the index, overflows to 0.
    let number = ((1_u64 << 60) + 1).to_string();
    let message = runs.run_err::<Attend>(Kind::Gpt, &["--example", &number]);
    has(&message, "the test data has 8 examples");
}

fn unknown_words_of_a_document_are_as_written(runs: &Runs) {
    let page = runs.file("unknown-han.html").display().to_string();
    let text = "one Flerb .\n\nZug two .";
    runs.run_ok::<Attend>(Kind::Han, &["--text", text, "--to", &page]);
    let html = std::fs::read_to_string(&page).unwrap();
    for word in ["Flerb", "Zug"] {
        let position = html.find(&format!(">{word}</span>")).unwrap();
        let start = html[..position].rfind("<span").unwrap();
        assert!(html[start..].starts_with("<span class=\"word unknown\""));
    }
    assert!(!html.contains("&lt;unk&gt;"));
}

/// `xdg-open` is called with the page.
#[cfg(unix)]
fn page_is_opened(runs: &Runs) {
    use std::os::unix::fs::PermissionsExt;
    let folder = runs.file("programs");
    std::fs::create_dir_all(&folder).unwrap();
    let (program, log) = (folder.join("xdg-open"), folder.join("log"));
    let script = format!("#!/bin/sh\necho \"$1\" > {}\n", log.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let page = runs.file("opened.html");
    let attend = |path: &str| {
        let run = runs.arg(Kind::Gpt);
        let mut zoo = Command::new(env!("CARGO_BIN_EXE_zoo"));
        zoo.args(["attend", &run, "--text", "to be", "--open", "--to"]);
        zoo.arg(&page).env("PATH", path).output().unwrap()
    };
    let output = attend(&format!("{}:/usr/bin:/bin", folder.display()));
    assert!(output.status.success(), "{output:?}");
    let start = std::time::Instant::now();
    let opened = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.ends_with('\n') {
            break text;
        }
        assert!(start.elapsed() < TIMEOUT, "the page was not opened");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert_eq!(opened, format!("{}\n", page.display()));
    let output = attend("/nowhere");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in ["cannot open a browser", "help: open ", "opened.html"] {
        assert!(message.contains(part), "{message}");
    }
}

fn svg_and_png(runs: &Runs) {
    let [svg, png] = ["one.svg", "one.png"].map(|name| runs.file(name).display().to_string());
    let args = ["--text", "a b", "--svg", &svg, "--png", &png, "--dark"];
    let stdout = runs.run_ok::<Attend>(Kind::Seq2Seq, &args);
    assert_eq!(stdout, format!("{svg}\n{png}\n"), "only the heatmaps");
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
}

fn invalid_arguments_are_rejected(runs: &Runs) {
    let to = runs.file("none.svg").display().to_string();
    let rejected = |kind: Kind, args: &[&str], expected: &str| {
        let message = runs.run_err::<Attend>(kind, args);
        assert!(message.contains(expected), "{kind:?} {args:?}: {message}");
    };
    let args = ["--text", "a", "--layer", "9", "--svg", &to];
    let expected = "cross-attention has 1 layer; --layer must be 1";
    rejected(Kind::Transformer, &args, expected);
    let args = ["--text", "a", "--head", "3", "--svg", &to];
    let expected = "cross-attention has 2 heads; --head must be 1 or 2";
    rejected(Kind::Transformer, &args, expected);
    let expected = "--text has 7 tokens; the model's context is 6";
    rejected(Kind::Transformer, &["--text", "a b c d a b c"], expected);
    let args = ["--text", "a", "--layer", "1", "--svg", &to];
    let expected = "a seq2seq alignment has no layers or heads";
    rejected(Kind::Seq2Seq, &args, expected);
    let args = ["--text", "one .", "--svg", &to];
    rejected(Kind::Han, &args, "a HAN has no heatmap");
    // Before the file or the text is used.
    let args = ["--file", &to, "--head", "1"];
    let expected = "--layer and --head select a heatmap";
    rejected(Kind::Transformer, &args, expected);
    // Outputs are checked before the run is opened.
    let input = runs.text_file("attend-input.txt", "a b\n");
    for flag in ["--to", "--svg", "--png"] {
        let args = ["--file", &input, flag, &input];
        let expected = format!("{flag} {input} is the input and would be overwritten");
        rejected(Kind::Transformer, &args, &expected);
        let nowhere = runs.file("no-such-folder/a.out").display().to_string();
        let args = ["nowhere", "--text", "a", flag, &nowhere];
        let message = run_err::<Attend>(&args);
        starts(&message, format!("{flag} {nowhere}: no folder "));
        has(&message, "\n  help: create it, or choose another file");
    }
    assert_eq!(std::fs::read_to_string(&input).unwrap(), "a b\n");
    let expected = "--target is for sequence-to-sequence models; this run is a gpt";
    rejected(Kind::Gpt, &["--text", " ", "--target", "b"], expected);
    let args = ["--text", " ", "--attention", "cross"];
    let expected = "--attention is for a transformer; this run is a seq2seq";
    rejected(Kind::Seq2Seq, &args, expected);
    let expected = "--queries is for models with attention heads; this run is a han";
    rejected(Kind::Han, &["--text", "one .", "--queries", "1"], expected);
    let expected = "--queries selects none of 5 tokens";
    rejected(
        Kind::Gpt,
        &["--text", "to be", "--queries", "6-9"],
        expected,
    );
    assert!(!Path::new(&to).exists());
}

/// The scripts of the pages finish without a message on the console.
fn pages_run(runs: &Runs, browser: &Path) -> Result<(), Failed> {
    for (kind, text, _) in texts() {
        let page = page(runs, kind, text);
        let dom = browser::dom(browser, &page)?;
        // One selected head in each overview, and a colour scale for each heatmap.
        let (pressed, scales) = match kind {
            Kind::Transformer => (3, 3),
            Kind::Seq2Seq => (0, 1),
            Kind::Gpt => (1, 1),
            Kind::Classifier => (2, 2),
            Kind::Han => (0, 0),
        };
        let found = (
            dom.matches("aria-pressed=\"true\"").count(),
            dom.matches("<span class=\"max\">").count(),
        );
        if found != (pressed, scales) || dom.contains("<span class=\"max\"></span>") {
            return Err(format!("{kind:?}: {found:?} in {dom}").into());
        }
    }
    Ok(())
}
