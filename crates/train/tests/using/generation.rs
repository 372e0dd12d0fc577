//! `zoo translate` and `zoo generate`.

use zoo_train::cli::generate::Generate;
use zoo_train::cli::translate::Translate;

use crate::runs::*;

trials! {
    trials(Runs):
    translate_writes_one_line_per_line,
    translate_n_best_with_scores,
    translate_reports_too_long_lines,
    translate_with_seq2seq,
    generate_continues_prompts,
    generate_may_exceed_the_context,
    generate_prints_n_best_texts,
    generate_at_temperature_zero_is_greedy,
    generate_rejects_invalid_arguments,
}

fn translate(runs: &Runs, args: &[&str]) -> String {
    runs.run_ok::<Translate>(Kind::Transformer, args)
}

fn translate_writes_one_line_per_line(runs: &Runs) {
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
    // The input is not overwritten.
    let before = std::fs::read_to_string(&file).unwrap();
    let args = ["--file", &file, "--to", &file];
    let message = runs.run_err::<Translate>(Kind::Transformer, &args);
    assert!(
        message.contains("is the input and would be overwritten"),
        "{message}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    let nowhere = runs.file("no-folder/a.txt").display().to_string();
    let message = run_err::<Translate>(&["nowhere", "--to", &nowhere]);
    starts(&message, format!("--to {nowhere}: no folder "));
}

fn translate_n_best_with_scores(runs: &Runs) {
    let file = runs.text_file("best.txt", "a b\n\nc a\n");
    let args = ["--file", &file, "--beams", "3", "--n-best", "2"];
    let text = translate(runs, &args);
    let columns = text.lines().map(|line| line.split('\t').collect());
    let lines: Vec<Vec<&str>> = columns.collect();
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

fn translate_reports_too_long_lines(runs: &Runs) {
    let file = runs.text_file("long.txt", "a b\na b c d a b c\nc\n");
    let (result, text) = run::<Translate>(&[&runs.arg(Kind::Transformer), "--file", &file]);
    let message = result.unwrap_err().to_string();
    starts(&message, "1 line was too long");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[1]), (3, ""), "{text}");
}

fn translate_with_seq2seq(runs: &Runs) {
    let file = runs.text_file("to-seq2seq.txt", "a b\nd\n");
    let text = runs.run_ok::<Translate>(Kind::Seq2Seq, &["--file", &file]);
    assert_eq!(text.lines().count(), 2);
}

fn generate(runs: &Runs, args: &[&str]) -> String {
    runs.run_ok::<Generate>(Kind::Gpt, args)
}

fn generate_continues_prompts(runs: &Runs) {
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
fn generate_may_exceed_the_context(runs: &Runs) {
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

/// The context is 16 tokens, and the vocabulary has no newline.
fn generate_prints_n_best_texts(runs: &Runs) {
    for length in ["3", "40"] {
        let args = ["--prompt", "to be", "--max-length", length];
        let all = generate(runs, &[&args[..], &["--n-best", "3"]].concat());
        // A text may end with a space.
        let texts: Vec<&str> = all.trim_end_matches('\n').split("\n\n---\n").collect();
        assert_eq!(texts.len(), 3, "{all}");
        for (i, text) in texts.iter().enumerate() {
            assert!(text.starts_with("to be"), "{all}");
            assert_eq!(text.chars().count(), 5 + length.parse::<usize>().unwrap());
            assert!(!texts[..i].contains(text), "{all}");
        }
        let best = generate(runs, &[&args[..], &["--beams", "4"]].concat());
        assert_eq!(best.trim_end_matches('\n'), texts[0]);
    }
}

fn generate_at_temperature_zero_is_greedy(runs: &Runs) {
    let with = |flags: [&str; 2]| {
        let args = ["--prompt", "to be", "--max-length", "9"];
        generate(runs, &[&args[..], &flags].concat())
    };
    assert_eq!(with(["--temperature", "0"]), with(["--strategy", "greedy"]));
}

fn generate_rejects_invalid_arguments(runs: &Runs) {
    let error = |args: &[&str]| runs.run_err::<Generate>(Kind::Gpt, args);
    let message = error(&["--prompt", "to be or not to be, that is"]);
    has(&message, "27 tokens; the model's context is 16");
    has(&error(&["--prompt", ""]), "is empty after tokenization");
    let message = error(&["--count", "2", "--temperature", "0"]);
    has(&message, "--count 2 requires sampling");
    has(&message, "\n  help: use --strategy sample, or --n-best 2");
    let message = error(&["--prompt", "a", "--top-p", "2"]);
    let expected = "decoding: top_p must be above 0 and at most 1, got 2";
    has(&message, expected);
    let message = error(&["--prompt", "a", "--temperature", "0", "--top-p", "2"]);
    has(&message, expected);
}
