//! `zoo translate` and `zoo generate`.

use libtest_mimic::Trial;
use zoo_train::cli::generate::Generate;
use zoo_train::cli::translate::Translate;

use crate::runs::{Kind, Runs, run};
use crate::shared::{has, starts};

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("translate::one_output_line_per_input_line", one_line_each),
        runs.trial("translate::n_best_with_scores", n_best),
        runs.trial("translate::too_long_lines_are_reported", too_long),
        runs.trial("translate::seq2seq", seq2seq),
        runs.trial("generate::prompts_are_continued", continues_prompt),
        runs.trial("generate::output_may_exceed_the_context", exceeds_context),
        runs.trial(
            "generate::invalid_arguments_are_rejected",
            invalid_arguments,
        ),
    ]
}

fn translate(runs: &Runs, args: &[&str]) -> String {
    runs.run_ok::<Translate>(Kind::Transformer, args)
}

fn one_line_each(runs: &Runs) {
    let file = runs.text_file("lines.txt", "a b\n\nc a d b\n  \nd\n");
    let all = translate(runs, &["--file", &file]);
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 5, "{all}");
    assert!(lines[1].is_empty() && lines[3].is_empty(), "{all}");
    // Other lines of the batch have no effect.
    for (i, line) in [(0, "a b"), (2, "c a d b"), (4, "d")] {
        let alone = runs.text_file("line.txt", line);
        let alone = translate(runs, &["--file", &alone]);
        assert_eq!(alone.trim_end_matches('\n'), lines[i]);
    }
    let one = translate(runs, &["--file", &file, "--batch", "1"]);
    assert_eq!(one, all);
    let to = runs.file("written.txt");
    let into = ["--file", &file, "--to", to.to_str().unwrap()];
    assert_eq!(translate(runs, &into), "");
    assert_eq!(std::fs::read_to_string(&to).unwrap(), all);
}

fn n_best(runs: &Runs) {
    let file = runs.text_file("best.txt", "a b\n\nc a\n");
    let args = ["--file", &file, "--beams", "3", "--n-best", "2"];
    let text = translate(runs, &args);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let line_numbers: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    assert_eq!(line_numbers, ["1", "1", "", "3", "3"], "{text}");
    let score = |i: usize| lines[i][1].parse::<f64>().unwrap();
    assert!(score(0) >= score(1) && score(3) >= score(4), "{text}");
    assert!(score(0) < 0.0, "log probabilities: {text}");

    let args = ["--file", &file, "--strategy", "greedy", "--scores"];
    let text = translate(runs, &args);
    let first: Vec<&str> = text.lines().next().unwrap().split('\t').collect();
    assert_eq!(first.len(), 2, "{text}");
    // Beam search with one beam is greedy.
    let args = ["--file", &file, "--beams", "1", "--scores"];
    assert_eq!(translate(runs, &args), text);
}

fn too_long(runs: &Runs) {
    let file = runs.text_file("long.txt", "a b\na b c d a b c\nc\n");
    let (result, text) = run::<Translate>(&[&runs.arg(Kind::Transformer), "--file", &file]);
    let message = result.unwrap_err().to_string();
    starts(&message, "1 line was too long");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[1]), (3, ""), "{text}");
}

fn seq2seq(runs: &Runs) {
    let file = runs.text_file("to-seq2seq.txt", "a b\nd\n");
    let text = runs.run_ok::<Translate>(Kind::Seq2Seq, &["--file", &file]);
    assert_eq!(text.lines().count(), 2);
}

fn generate(runs: &Runs, args: &[&str]) -> String {
    runs.run_ok::<Generate>(Kind::Gpt, args)
}

fn continues_prompt(runs: &Runs) {
    let args = ["--prompt", "to be", "--max-length", "10", "--seed", "3"];
    let text = generate(runs, &args);
    let generated = text.strip_prefix("to be").expect(&text);
    // Each token is a character, and special tokens are never generated.
    assert_eq!(generated.chars().count(), 10 + "\n".len(), "{text:?}");
    assert_eq!(generate(runs, &args), text);
    // The second text uses the next seed.
    let two = [&args[..], &["--count", "2"]].concat();
    let both = generate(runs, &two);
    let next = ["--prompt", "to be", "--max-length", "10", "--seed", "4"];
    let second = generate(runs, &next);
    assert_eq!(both, format!("{text}\n---\n{second}"));
    assert_ne!(text, second);
    // Beam search prints only at the end.
    let beams = ["--prompt", "to be", "--max-length", "3", "--beams", "2"];
    let text = generate(runs, &beams);
    let generated = text.strip_prefix("to be").expect(&text);
    assert_eq!(generated.chars().count(), 3 + "\n".len(), "{text:?}");
    assert_eq!(generate(runs, &beams), text);
}

/// The context is 16 tokens.
fn exceeds_context(runs: &Runs) {
    let args = ["--prompt", "to be", "--strategy", "greedy"];
    let text = |length: &str| {
        let args = [&args[..], &["--max-length", length]].concat();
        generate(runs, &args)
    };
    let [short, long] = ["11", "40"].map(text);
    let [short, long] = [&short, &long].map(|text| text.strip_suffix('\n').expect("a last line"));
    assert!(long.starts_with(short), "{short:?}, then {long:?}");
    let lengths = [short, long].map(|text| text.chars().count());
    assert_eq!(lengths, [5 + 11, 5 + 40], "{short:?}, then {long:?}");
}

fn invalid_arguments(runs: &Runs) {
    let long = "to be or not to be, that is";
    for (args, expected) in [
        (
            &["--prompt", long][..],
            "27 tokens; the model's context is 16",
        ),
        (&["--prompt", ""], "is empty after tokenization"),
        (
            &["--prompt", "a", "--top-p", "2"],
            "decoding: top_p must be above 0 and at most 1, got 2",
        ),
    ] {
        has(&runs.run_err::<Generate>(Kind::Gpt, args), expected);
    }
}
