//! `zoo attend`: HTML pages and heatmaps.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use zoo_train::AttentionKind;
use zoo_train::cli::attend::Attend;
use zoo_viz::Part;

use crate::browser::browser;
use crate::runs::*;

// Device-dependent.
trials! {
    on_devices(Runs):
    html_page_of_every_model,
    with_a_given_target,
}

trials! {
    trials(Runs):
    svg_and_png,
    invalid_arguments_are_rejected,
}

pub(crate) fn in_browser(runs: &Runs) -> Trial {
    let runs = runs.clone();
    let browser = browser();
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
        (Kind::Seq2Seq, "a b c", &["Alignment", "<path d="]),
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
    // Target tokens with the end token, and source tokens.
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
    let expected = "--target is for sequence-to-sequence models; this run is a gpt";
    rejected(Kind::Gpt, &["--text", " ", "--target", "b"], expected);
    let args = ["--text", " ", "--attention", "cross"];
    let expected = "--attention is for a transformer; this run is a seq2seq";
    rejected(Kind::Seq2Seq, &args, expected);
    assert!(!Path::new(&to).exists());
}

/// The scripts of the pages finish without a message on the console.
fn pages_run(runs: &Runs, browser: &Path) -> Result<(), Failed> {
    for (kind, text, _) in texts() {
        let page = page(runs, kind, text);
        let profile = runs.file(&format!("profile-{kind:?}"));
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--enable-logging=stderr", "--log-level=0", "--dump-dom"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("file://{}", page.display()))
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if let Some(line) = stderr.lines().find(|line| line.contains("CONSOLE")) {
            return Err(format!("{kind:?}: {line}").into());
        }
        let dom = String::from_utf8_lossy(&output.stdout);
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
