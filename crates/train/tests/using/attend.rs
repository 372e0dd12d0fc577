//! Where models look, as pages and pictures.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use zoo_train::cli::attend::Attend;
use zoo_train::{Side, Trained, Which};
use zoo_viz::Part;

use crate::runs::{Kind, Runs};
use crate::shared::has;

/// What depends on the device: the weights.
pub(crate) fn on_devices(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("attend::every_model_has_a_page", every_model),
        runs.trial("attend::a_target_may_be_given", given_target),
    ]
}

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    let browser = browser();
    let is_there = browser.is_some();
    let own = runs.clone();
    vec![
        runs.trial("attend::a_picture_of_one_head", picture),
        runs.trial("attend::what_is_not_there_is_told", refusals),
        // `--ignored` shows what is missing.
        Trial::test("attend::a_browser_shows_the_page", move || {
            in_browser(&own, &browser.ok_or("there is no chromium on the PATH")?)
        })
        .with_ignored_flag(!is_there),
    ]
}

/// A text for each, and what its page has.
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
            &["Self-attention", "Pooling", "taken for "],
        ),
        (
            Kind::Han,
            "one two three .\nfour five .",
            &["class=\"word\"", "taken for "],
        ),
    ]
}

fn page(runs: &Runs, kind: Kind, text: &str) -> PathBuf {
    let to = runs.file(&format!("{kind:?}.html"));
    let words = ["--text", text, "--to", to.to_str().unwrap()];
    let said = runs.printed::<Attend>(kind, &words);
    assert_eq!(said, format!("{}\n", to.display()));
    to
}

fn every_model(runs: &Runs) {
    for (kind, text, parts) in texts() {
        let html = std::fs::read_to_string(page(runs, kind, text)).unwrap();
        for part in parts {
            assert!(html.contains(part), "no {part} on the page of {kind:?}");
        }
        let name = format!("Where {kind:?} looks");
        assert!(html.contains(&name), "{kind:?}");
    }
    // Without another place, it is beside the run.
    runs.printed::<Attend>(Kind::Gpt, &["--text", "to be"]);
    assert!(runs.run(Kind::Gpt).join("attention.html").is_file());
}

fn given_target(runs: &Runs) {
    let trained = Trained::open(runs.run(Kind::Transformer), Which::Last, None, &[]).unwrap();
    let all = trained.attend("a b c", Some("d c"), None).unwrap();
    let titles: Vec<&str> = all
        .page
        .parts
        .iter()
        .map(|part| match part {
            Part::Heads(heads) => heads.title(),
            _ => panic!("a Transformer has heads"),
        })
        .collect();
    assert_eq!(titles.len(), 3, "{titles:?}");
    let svg = all.heat(None, None).unwrap().to_svg();
    // What is written, and what for: the target and its end, by the source.
    for token in [">d<", ">c<", ">&lt;/s&gt;<", ">a<", ">b<"] {
        has(&svg, token);
    }
    let decoder = trained
        .attend("a b c", Some("d c"), Some(Side::Decoder))
        .unwrap();
    assert_eq!(decoder.page.parts.len(), 1);
    let svg = decoder.heat(Some(1), Some(2)).unwrap().to_svg();
    has(&svg, "Decoder, layer 1, head 2");
    has(&svg, ">&lt;s&gt;<");
}

fn picture(runs: &Runs) {
    let [svg, png] = ["one.svg", "one.png"].map(|name| runs.file(name).display().to_string());
    let words = ["--text", "a b", "--svg", &svg, "--png", &png, "--dark"];
    let said = runs.printed::<Attend>(Kind::Seq2Seq, &words);
    assert_eq!(said, format!("{svg}\n{png}\n"), "no page was asked for");
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
}

fn refusals(runs: &Runs) {
    let to = runs.file("none.svg").display().to_string();
    for (kind, words, part) in [
        (
            Kind::Transformer,
            vec!["--text", "a", "--layer", "9", "--svg", &to],
            "has no layer 9: it has 1, counted from 1",
        ),
        (
            Kind::Transformer,
            vec!["--text", "a", "--head", "3", "--svg", &to],
            "has no head 3: it has 2, counted from 1",
        ),
        (
            Kind::Transformer,
            vec!["--text", "a", "--head", "1"],
            "--layer and --head choose a picture",
        ),
        (
            Kind::Transformer,
            vec!["--text", "a b c d a b c"],
            "--text: row 0 has 7 tokens, and the model has positions for 6",
        ),
        (
            Kind::Gpt,
            vec!["--text", "a", "--target", "b"],
            "--target is for models that make one text of another, and this is a gpt",
        ),
        (
            Kind::Seq2Seq,
            vec!["--text", "a", "--part", "cross"],
            "--part is for a transformer",
        ),
        (
            Kind::Seq2Seq,
            vec!["--text", "a", "--layer", "1", "--svg", &to],
            "an alignment has no layers and heads",
        ),
        (
            Kind::Han,
            vec!["--text", "one .", "--svg", &to],
            "a document is shown as a page",
        ),
    ] {
        let said = runs.refused::<Attend>(kind, &words);
        assert!(said.contains(part), "{kind:?} {words:?}: {said}");
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

/// Pages come to the end of their script, without a complaint.
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
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if let Some(complaint) = said.lines().find(|line| line.contains("CONSOLE")) {
            return Err(format!("{kind:?}: {complaint}").into());
        }
        let dom = String::from_utf8_lossy(&output.stdout);
        // Each stack of heads has one that is chosen, and each map has told its scale.
        let (pressed, scales) = match kind {
            Kind::Transformer => (3, 3),
            Kind::Seq2Seq => (0, 1),
            Kind::Gpt => (1, 1),
            Kind::Classifier => (2, 2),
            Kind::Han => (0, 0),
        };
        let found = (
            dom.matches("aria-pressed=\"true\"").count(),
            dom.matches("<span class=\"most\">").count(),
        );
        if found != (pressed, scales) || dom.contains("<span class=\"most\"></span>") {
            return Err(format!("{kind:?}: {found:?} in {dom}").into());
        }
    }
    Ok(())
}
