//! Texts that come out.

use libtest_mimic::Trial;
use zoo_train::cli::generate::Generate;
use zoo_train::cli::translate::Translate;

use crate::runs::{Kind, Runs, run};
use crate::shared::{has, starts};

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("translate::a_line_comes_out_for_each", a_line_for_each),
        runs.trial("translate::the_best_come_with_their_scores", the_best),
        runs.trial("translate::a_line_too_long_is_told", too_long),
        runs.trial("translate::seq2seq_writes_too", seq2seq),
        runs.trial("generate::a_prompt_is_gone_on_with", goes_on),
        runs.trial("generate::it_goes_on_past_its_places", goes_on_and_on),
        runs.trial("generate::what_cannot_be_is_refused", cannot_go_on),
    ]
}

fn translate(runs: &Runs, words: &[&str]) -> String {
    runs.printed::<Translate>(Kind::Transformer, words)
}

fn a_line_for_each(runs: &Runs) {
    let file = runs.given("lines.txt", "a b\n\nc a d b\n  \nd\n");
    let all = translate(runs, &["--file", &file]);
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 5, "{all}");
    assert!(lines[1].is_empty() && lines[3].is_empty(), "{all}");
    // What is beside a line changes nothing.
    for (at, line) in [(0, "a b"), (2, "c a d b"), (4, "d")] {
        let alone = runs.given("line.txt", line);
        let alone = translate(runs, &["--file", &alone]);
        assert_eq!(alone.trim_end_matches('\n'), lines[at]);
    }
    let one = translate(runs, &["--file", &file, "--batch", "1"]);
    assert_eq!(one, all);
    let to = runs.file("written.txt");
    let into = ["--file", &file, "--to", to.to_str().unwrap()];
    assert_eq!(translate(runs, &into), "");
    assert_eq!(std::fs::read_to_string(&to).unwrap(), all);
}

fn the_best(runs: &Runs) {
    let file = runs.given("best.txt", "a b\n\nc a\n");
    let words = ["--file", &file, "--beams", "3", "--n-best", "2"];
    let text = translate(runs, &words);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let numbers: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    assert_eq!(numbers, ["1", "1", "", "3", "3"], "{text}");
    let score = |at: usize| lines[at][1].parse::<f64>().unwrap();
    assert!(score(0) >= score(1) && score(3) >= score(4), "{text}");
    assert!(score(0) < 0.0, "a logarithm of a probability: {text}");

    let words = ["--file", &file, "--strategy", "greedy", "--scores"];
    let text = translate(runs, &words);
    let first: Vec<&str> = text.lines().next().unwrap().split('\t').collect();
    assert_eq!(first.len(), 2, "{text}");
    // What the search for one text follows is what greedy does.
    let words = ["--file", &file, "--beams", "1", "--scores"];
    assert_eq!(translate(runs, &words), text);
}

fn too_long(runs: &Runs) {
    let file = runs.given("long.txt", "a b\na b c d a b c\nc\n");
    let (done, text) = run::<Translate>(&[&runs.word(Kind::Transformer), "--file", &file]);
    let said = done.unwrap_err().to_string();
    starts(&said, "a line was too long");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[1]), (3, ""), "{text}");
}

fn seq2seq(runs: &Runs) {
    let file = runs.given("to-seq2seq.txt", "a b\nd\n");
    let text = runs.printed::<Translate>(Kind::Seq2Seq, &["--file", &file]);
    assert_eq!(text.lines().count(), 2);
}

fn generate(runs: &Runs, words: &[&str]) -> String {
    runs.printed::<Generate>(Kind::Gpt, words)
}

fn goes_on(runs: &Runs) {
    let words = ["--prompt", "to be", "--max-length", "10", "--seed", "3"];
    let text = generate(runs, &words);
    let made = text.strip_prefix("to be").expect(&text);
    // Each token is a character: special ones are never written, little as it has learned.
    assert_eq!(made.chars().count(), 10 + "\n".len(), "{text:?}");
    assert_eq!(generate(runs, &words), text);
    // The second text is what the next seed draws.
    let two = [&words[..], &["--count", "2"]].concat();
    let both = generate(runs, &two);
    let next = ["--prompt", "to be", "--max-length", "10", "--seed", "4"];
    let second = generate(runs, &next);
    assert_eq!(both, format!("{text}\n---\n{second}"));
    assert_ne!(text, second);
    // A beam search tells at the end what it knows then.
    let beams = ["--prompt", "to be", "--max-length", "3", "--beams", "2"];
    let text = generate(runs, &beams);
    let made = text.strip_prefix("to be").expect(&text);
    assert_eq!(made.chars().count(), 3 + "\n".len(), "{text:?}");
    assert_eq!(generate(runs, &beams), text);
}

/// It has places for 16 tokens, and goes on when they are taken.
fn goes_on_and_on(runs: &Runs) {
    let words = ["--prompt", "to be", "--strategy", "greedy"];
    let text = |length: &str| {
        let words = [&words[..], &["--max-length", length]].concat();
        generate(runs, &words)
    };
    let [short, long] = ["11", "40"].map(text);
    let [short, long] = [&short, &long].map(|text| text.strip_suffix('\n').expect("a last line"));
    assert!(long.starts_with(short), "{short:?}, then {long:?}");
    let lengths = [short, long].map(|text| text.chars().count());
    assert_eq!(lengths, [5 + 11, 5 + 40], "{short:?}, then {long:?}");
}

fn cannot_go_on(runs: &Runs) {
    let long = "to be or not to be, that is";
    for (words, expected) in [
        (
            &["--prompt", long][..],
            "27 tokens, and the model has positions for 16",
        ),
        (&["--prompt", ""], "has no tokens"),
        (
            &["--prompt", "a", "--top-p", "2"],
            "decoding: top_p must be above 0 and at most 1, got 2",
        ),
    ] {
        has(&runs.refused::<Generate>(Kind::Gpt, words), expected);
    }
}
