//! `zoo attend`: HTML pages and heatmaps.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use zoo_train::cli::attend::Attend;
use zoo_train::{AttentionKind, CheckpointChoice, TrainedRun};
use zoo_viz::Part;

use crate::runs::{Kind, Runs};
use crate::shared::has;

/// Device-dependent tests.
pub(crate) fn on_devices(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("attend::html_page_of_every_model", every_model),
        runs.trial("attend::with_a_given_target", given_target),
    ]
}

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    let browser = browser();
    let has_browser = browser.is_some();
    let own_runs = runs.clone();
    vec![
        runs.trial("attend::svg_and_png", heatmap_files),
        runs.trial("attend::invalid_arguments_are_rejected", refusals),
        Trial::test("attend::pages_run_in_a_browser", move || {
            in_browser(
                &own_runs,
                &browser.ok_or("there is no chromium on the PATH")?,
            )
        })
        .with_ignored_flag(!has_browser),
    ]
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

fn every_model(runs: &Runs) {
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

fn given_target(runs: &Runs) {
    let trained = TrainedRun::open(
        runs.folder(Kind::Transformer),
        CheckpointChoice::Last,
        None,
        &[],
    )
    .unwrap();
    let maps = trained.attention_maps("a b c", Some("d c"), None).unwrap();
    let titles: Vec<&str> = maps
        .page
        .parts
        .iter()
        .map(|part| match part {
            Part::Heads(heads) => heads.title(),
            _ => panic!("not attention heads"),
        })
        .collect();
    assert_eq!(titles.len(), 3, "{titles:?}");
    let svg = maps.heatmap(None, None).unwrap().to_svg();
    // Target tokens with the end token, and source tokens.
    for token in [">d<", ">c<", ">&lt;/s&gt;<", ">a<", ">b<"] {
        has(&svg, token);
    }
    let decoder = trained
        .attention_maps("a b c", Some("d c"), Some(AttentionKind::Decoder))
        .unwrap();
    assert_eq!(decoder.page.parts.len(), 1);
    let svg = decoder.heatmap(Some(1), Some(2)).unwrap().to_svg();
    has(&svg, "Decoder, layer 1, head 2");
    has(&svg, ">&lt;s&gt;<");
}

fn heatmap_files(runs: &Runs) {
    let [svg, png] = ["one.svg", "one.png"].map(|name| runs.file(name).display().to_string());
    let args = ["--text", "a b", "--svg", &svg, "--png", &png, "--dark"];
    let stdout = runs.run_ok::<Attend>(Kind::Seq2Seq, &args);
    assert_eq!(stdout, format!("{svg}\n{png}\n"), "only the heatmaps");
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
}

fn refusals(runs: &Runs) {
    let to = runs.file("none.svg").display().to_string();
    for (kind, args, part) in [
        (
            Kind::Transformer,
            vec!["--text", "a", "--layer", "9", "--svg", &to],
            "cross-attention has 1 layer; --layer must be 1",
        ),
        (
            Kind::Transformer,
            vec!["--text", "a", "--head", "3", "--svg", &to],
            "cross-attention has 2 heads; --head must be 1 or 2",
        ),
        (
            Kind::Transformer,
            vec!["--text", "a", "--head", "1"],
            "--layer and --head select a heatmap",
        ),
        (
            Kind::Transformer,
            vec!["--text", "a b c d a b c"],
            "--text has 7 tokens; the model's context is 6",
        ),
        (
            Kind::Gpt,
            vec!["--text", "a", "--target", "b"],
            "--target is for sequence-to-sequence models; this run is a gpt",
        ),
        (
            Kind::Seq2Seq,
            vec!["--text", "a", "--part", "cross"],
            "--part is for a transformer",
        ),
        (
            Kind::Seq2Seq,
            vec!["--text", "a", "--layer", "1", "--svg", &to],
            "a seq2seq alignment has no layers or heads",
        ),
        (
            Kind::Han,
            vec!["--text", "one .", "--svg", &to],
            "a HAN has no heatmap",
        ),
    ] {
        let message = runs.run_err::<Attend>(kind, &args);
        assert!(message.contains(part), "{kind:?} {args:?}: {message}");
    }
    assert!(!Path::new(&to).exists());
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| {
            ["chromium", "chromium-browser", "google-chrome"].map(|name| folder.join(name))
        })
        .find(|file| file.is_file())
}

/// The scripts of the pages finish without a message on the console.
fn in_browser(runs: &Runs, browser: &Path) -> Result<(), Failed> {
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
